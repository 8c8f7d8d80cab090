package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/client"
	"berth/cmd/berth/internal/demo"
	"berth/cmd/berth/internal/progress"
	"berth/cmd/berth/internal/scoreboard"
	"berth/cmd/berth/internal/trace"
	"berth/services"
)

// demoCmd shows the main job.
type demoCmd struct {
	Requests int    `help:"Play only the first so many requests of the trace."`
	Trace    string `type:"existingfile" help:"Another trace in the format of the embedded one (JSON lines, gzip allowed)."`
	Store    string `env:"BERTH_DEMO_STORE" help:"redis:// URL to run on; default: an embedded store in a temporary directory."`
	Listen   string `default:"127.0.0.1:0" help:"Address of the demo's server."`
	Keep     bool   `help:"Leave server and workers running at the end."`
	JSON     bool   `help:"Print the scoreboard as JSON; the story goes to stderr."`
}

// Run tells one session's life, plays the trace, and prints the scoreboard.
func (c *demoCmd) Run(ctx context.Context, std *streams) (err error) {
	if c.Requests < 0 {
		return errors.New("--requests: want a positive number")
	}
	played, err := loadTrace(c.Trace, c.Requests)
	if err != nil {
		return err
	}
	store, remove, err := c.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	server, err := startLocal(ctx, store, c.Listen, demoOptions)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	defer func() { err = errors.Join(err, server.stop(), store.Close()) }()

	say := &narrator{out: std.err}
	if !c.JSON {
		say.out = std.out
	}
	report, err := c.play(ctx, server.url(), played, say)
	if err != nil {
		return err
	}
	if c.JSON {
		err = report.WriteJSON(std.out)
	} else {
		_, _ = fmt.Fprintln(std.out) // the table's own error is the one to tell
		err = report.WriteTable(std.out)
	}
	if err != nil || !c.Keep {
		return err
	}
	return c.keep(ctx, server.url(), say)
}

// demoOptions lets a demo of a minute show what takes longer in life: hints are
// short-lived, so that a drain need not wait for old ones.
func demoOptions(o *services.Options) {
	o.HintValid, o.CacheTTL = 200*time.Millisecond, 800*time.Millisecond
	o.StoreTimeout = 2 * time.Second // server, workers and gateways share the machine
	o.HeartbeatEvery, o.SuspectAfter, o.DownAfter = 250*time.Millisecond, 2*time.Second, 4*time.Second
}

// openStore opens a store of the demo's own, and returns what removes it.
func (c *demoCmd) openStore(ctx context.Context) (serverStore, func() error, error) {
	if c.Store == "" {
		dir, err := os.MkdirTemp("", "berth-demo-")
		if err != nil {
			return nil, nil, fmt.Errorf("make a directory: %w", err)
		}
		store, err := openStore(ctx, StoreFlag{Store: dir})
		return store, func() error { return os.RemoveAll(dir) }, err
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
	prefix := "berth-demo-" + hex.EncodeToString(b[:])
	store, err := openStore(ctx, StoreFlag{Store: c.Store, RedisPrefix: prefix, RedisPartitions: 64})
	return store, func() error { return removeKeys(context.WithoutCancel(ctx), c.Store, prefix) }, err
}

// removeKeys deletes everything under a prefix, on a single server.
func removeKeys(ctx context.Context, storeURL, prefix string) error {
	options, err := redis.ParseURL(storeURL)
	if err != nil {
		return nil //nolint:nilerr // a cluster: its keys end by themselves within a day
	}
	db := redis.NewClient(options)
	it := db.Scan(ctx, 0, prefix+":*", 1000).Iterator()
	for it.Next(ctx) {
		if err := db.Unlink(ctx, it.Val()).Err(); err != nil {
			return errors.Join(fmt.Errorf("remove the keys of the run: %w", err), db.Close())
		}
	}
	return errors.Join(it.Err(), db.Close())
}

// play runs both parts and the baselines.
func (c *demoCmd) play(ctx context.Context, url string, played trace.Trace, say *narrator) (scoreboard.Report, error) {
	berth, fleet := client.Config{BaseURLs: []string{url}}, demo.Fleet{URL: url}
	if err := demo.Story(ctx, berth, fleet, say); err != nil {
		return scoreboard.Report{}, fmt.Errorf("tell the story: %w", err)
	}
	say.Say("\nAn hour of a production chat service: %d requests of %d sessions, on %d instances:",
		len(played.Turns), played.Sessions, scoreboard.Instances)
	started := time.Now()
	own, err := demo.Play(ctx, berth, fleet, played, say)
	if err != nil {
		return scoreboard.Report{}, err
	}
	say.Say("played in %s", time.Since(started).Round(100*time.Millisecond))
	others, err := scoreboard.Baselines(played.Turns, scoreboard.Schedule(len(played.Turns)))
	if err != nil {
		return scoreboard.Report{}, err
	}
	return scoreboard.NewReport(played, append([]scoreboard.Policy{own}, others...)...), nil
}

// keep leaves a crew running until the user has seen enough.
func (c *demoCmd) keep(ctx context.Context, url string, say *narrator) error {
	crew, err := demo.Keep(ctx, client.Config{BaseURLs: []string{url}}, demo.Fleet{URL: url})
	if err != nil {
		return err
	}
	say.Say("\nThe server and three workers go on at %s. Three things to try:", url)
	say.Say("  go run ./cmd/berth instances --berth %s", url)
	say.Say("  go run ./cmd/berth route my-chat --pool %s --berth %s", demo.KeptPool, url)
	say.Say("  go run ./cmd/berth drain k1 --berth %s", url)
	say.Say("The API's page is %s/docs. Ctrl-C ends it.", url)
	<-ctx.Done()
	return crew.Close()
}

// narrator prints the demo's lines and its progress.
type narrator struct {
	out io.Writer
	bar *progress.Bar
	on  string
}

// Say prints one line.
func (n *narrator) Say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if n.bar != nil {
		n.bar.Println(line)
		return
	}
	_, _ = fmt.Fprintln(n.out, line) // nothing to do about a closed terminal
}

// Progress moves the bar.
func (n *narrator) Progress(what string, done, of int) {
	if n.on != what {
		n.on, n.bar = what, progress.New(n.out, what, of)
	}
	n.bar.Set(done, of)
	if done == of {
		n.bar.Done()
	}
}
