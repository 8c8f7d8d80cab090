package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"berth/cmd/berth/internal/drainbench"
	"berth/cmd/berth/internal/progress"
	"berth/services"
	"berth/statestore"
	"berth/statestore/boltstore"
	"berth/statestore/redisstore"
)

// benchDrainCmd measures drains while traffic runs.
type benchDrainCmd struct {
	Store       string        `help:"redis:// URL, whose keys under berth-bench: are written and removed; by default an embedded store that is removed."`
	Sessions    int           `default:"10000" help:"Sessions on the instance that is drained."`
	Targets     int           `default:"4" help:"Other instances."`
	Clients     int           `default:"20" help:"Clients that take turns meanwhile."`
	IdleBelow   time.Duration `default:"2s" help:"Sessions idle for less are handed over with their KV cache, the others cold: a stand-in for the ten minutes of a real drain."`
	Pace        float64       `default:"400" help:"Sessions a second of the paced drain; 0: none."`
	Concurrency int           `default:"256" help:"Sessions under way at once."`
	JSON        bool          `help:"Print JSON for scripts."`
}

// Run measures and cleans up after itself.
func (c *benchDrainCmd) Run(ctx context.Context, std *streams) (err error) {
	if c.Sessions < 1 || c.Targets < 2 || c.Clients < 0 || c.Clients > c.Sessions || c.Concurrency < 1 {
		return errors.New("want at least 1 session, 2 targets, and no more clients than sessions")
	}
	store, remove, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close(), remove(context.WithoutCancel(ctx))) }()
	berth, err := startLocal(ctx, store, anyPort, func(o *services.Options) {
		o.HintValid, o.CacheTTL = 500*time.Millisecond, 500*time.Millisecond
		// Whoever measures on a busy machine measures no outages.
		o.StoreTimeout, o.SuspectAfter, o.DownAfter = 10*time.Second, 10*time.Minute, 20*time.Minute
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, berth.stop()) }()
	bar := progress.New(std.err, "", 0)
	defer bar.Done()
	f, err := drainbench.Run(ctx, drainbench.Config{
		URL: berth.url(), Pool: "bench", Sessions: c.Sessions, Targets: c.Targets, Clients: c.Clients,
		IdleBelow: c.IdleBelow, Pace: c.Pace, Concurrency: c.Concurrency, PerTarget: c.Concurrency,
		Step: func(what string, done, total int) { bar.Describe(what); bar.Set(done, total) },
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std, f)
	}
	return printDrain(std.out, &f)
}

// open opens the store, and returns what removes what was written.
func (c *benchDrainCmd) open(ctx context.Context) (store statestore.Store, remove func(context.Context) error, err error) {
	if c.Store != "" {
		remove = func(ctx context.Context) error { return removeKeys(ctx, c.Store, benchPrefix) }
		store, err = redisstore.Open(ctx, c.Store, redisstore.Options{Prefix: benchPrefix})
		return store, remove, err
	}
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a directory: %w", err)
	}
	store, err = boltstore.Open(ctx, dir+"/berth.db", boltstore.Options{})
	return store, func(context.Context) error { return os.RemoveAll(dir) }, err
}

func printDrain(out io.Writer, f *drainbench.Figures) error {
	_, err := fmt.Fprintf(out, `%d sessions moved at %.0f/s, %d of them prewarmed, %d offloaded; safe to stop after %.1f s
at a pace of %.0f/s it was %.1f/s, %.1f %% off
%d turns of %d sessions taken meanwhile, %d answers followed, %d failed
%d turns lost, %d doubled, %d new sessions sent to an instance that was being drained
`, f.Sessions, f.SessionsPerS, f.Prewarmed, f.Offloaded, float64(f.SafeToStopMS)/1000, f.AskedPerS, f.PacedPerS, 100*f.PacedError,
		f.Turns, f.NewSessions, f.Redirections, f.FailedTurns, f.Lost, f.Doubled, f.NewHintsToSource)
	return err
}
