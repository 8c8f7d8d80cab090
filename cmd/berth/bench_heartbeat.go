package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/cmd/berth/internal/load"
	"berth/cmd/berth/internal/pause"
	"berth/cmd/berth/internal/progress"
)

// benchHeartbeatCmd measures what a fleet that only beats costs the server.
type benchHeartbeatCmd struct {
	Instances int           `default:"1000" help:"Registered instances, each on a connection of its own."`
	Rate      float64       `default:"1" help:"Heartbeats a second of each."`
	Warmup    time.Duration `default:"2s" help:"Time before the measured one."`
	For       time.Duration `default:"10s" help:"Measured time."`
	Store     string        `help:"redis:// URL of a single server, whose keys under berth-bench: are written and removed (default: an embedded store that is removed afterwards)."`
	JSON      bool          `help:"Print JSON for scripts."`
}

// Help says how it is measured.
func (c *benchHeartbeatCmd) Help() string {
	return "The server is a child process, `berth serve` of this same binary, and its CPU time is read from the kernel's clock of" +
		" that process at both ends of the measured time: HTTP, JSON, the store's calls, snapshots, health and garbage collection" +
		" are in it, the senders in this process and a Redis are not. Each instance beats when the answer to its last heartbeat says" +
		" (next_ms), as the client does. As many requests in as many bunches then go to a bare net/http handler, also a child, which" +
		" shows what HTTP alone costs. Linux only."
}

// heartbeatFigures is what the benchmark prints. Shares are CPU time of the server
// over the time that passed.
type heartbeatFigures struct {
	CoreShare     float64 `json:"core_share"`
	BareShare     float64 `json:"bare_share"` // of the bare handler, at the same requests
	IdleShare     float64 `json:"idle_share"` // while nobody beats
	USPerBeat     float64 `json:"us_per_beat"`
	BareUSPerBeat float64 `json:"bare_us_per_beat"`
	BeatsPerS     float64 `json:"beats_per_s"`
	P50MS         float64 `json:"p50_ms"`
	P99MS         float64 `json:"p99_ms"`
	Instances     int     `json:"instances"`
	Store         string  `json:"store"`
}

func (f *heartbeatFigures) print(out io.Writer) error {
	_, err := fmt.Fprintf(out, `%d instances, %.0f heartbeats/s, %s store
berth  %6.2f %% of one core  %6.1f µs a heartbeat  (%.2f %% while nobody beats)
bare   %6.2f %% of one core  %6.1f µs a request
answer    p50 %.1f ms  p99 %.1f ms
`, f.Instances, f.BeatsPerS, f.Store, 100*f.CoreShare, f.USPerBeat, 100*f.IdleShare, 100*f.BareShare, f.BareUSPerBeat, f.P50MS, f.P99MS)
	return err
}

// period is the time between two heartbeats of an instance.
func (c *benchHeartbeatCmd) period() time.Duration {
	return time.Duration(float64(time.Second) / c.Rate).Round(time.Millisecond)
}

// bunches is in how many, within a period, the fleet begins to beat, and goes on where
// no answer moves it.
const bunches = 10

// Run serves in a child, registers the fleet, and lets it beat.
func (c *benchHeartbeatCmd) Run(ctx context.Context, std *streams) (err error) {
	if c.Instances < 1 || c.Rate <= 0 || c.Rate > 1000 || c.For < 100*time.Millisecond {
		return errors.New("instances must be at least 1, the rate above 0 and at most 1000, the measured time at least 100ms")
	}
	if c.Store != "" && !strings.HasPrefix(c.Store, "redis://") {
		return errors.New("--store: want a redis:// URL of a single server")
	}
	if _, err := cpuTime(os.Getpid()); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if c.Store != "" {
		defer func() { err = errors.Join(err, removeKeys(context.WithoutCancel(ctx), c.Store, benchPrefix)) }()
	}
	berth, err := c.measure(ctx, std, "berth", func() (*child, error) {
		period := c.period()
		return startServe(ctx, "--store="+cmp.Or(c.Store, dir), "--redis-prefix="+benchPrefix,
			"--heartbeat="+period.String(), "--suspect-after="+(3*period).String(), "--down-after="+max(8*period, 15*time.Second).String())
	})
	if err != nil {
		return err
	}
	answer := `{"incarnation":"00112233445566778899aabbccddeeff","state":"ready","tasks":[],"lease_ms":15000}` // without next_ms
	bare, err := c.measure(ctx, std, "the bare handler", func() (*child, error) { return startChild(ctx, "bench", "bare", "--answer="+answer) })
	if err != nil {
		return err
	}
	f := berth.figures(c.Instances)
	f.BareShare, f.BareUSPerBeat = bare.busy.share(), bare.perBeat()
	if c.JSON {
		return printJSON(std, f)
	}
	return f.print(std.out)
}

// beatRun is what one server did.
type beatRun struct {
	busy, idle use
	times      []time.Duration // of the exchanges, in order of length
	store      string
}

// perBeat is in µs.
func (r *beatRun) perBeat() float64 { return r.busy.cpu.Seconds() * 1e6 / float64(len(r.times)) }

func (r *beatRun) figures(instances int) *heartbeatFigures {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	n := len(r.times)
	return &heartbeatFigures{
		CoreShare: r.busy.share(), IdleShare: r.idle.share(), USPerBeat: r.perBeat(), BeatsPerS: float64(n) / r.busy.wall.Seconds(),
		P50MS: ms(r.times[n/2]), P99MS: ms(r.times[n*99/100]), Instances: instances, Store: r.store,
	}
}

// measure starts a server, registers the fleet, and reads the server's CPU time
// while it beats and while it does not.
func (c *benchHeartbeatCmd) measure(ctx context.Context, std *streams, name string, start func() (*child, error)) (r *beatRun, err error) {
	server, err := start()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	beaters, err := c.enlist(ctx, std, name, server.addr)
	defer func() {
		for _, b := range beaters {
			err = errors.Join(err, b.Close())
		}
	}()
	if err != nil {
		return nil, err
	}
	bar := progress.New(std.err, "heartbeats to "+name, 0)
	defer bar.Done()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, beating := errgroup.WithContext(ctx)
	for i, b := range beaters {
		group.Go(func() error { return b.run(beating, c.period(), c.period()*time.Duration(i%bunches)/bunches) })
	}
	_ = pause.For(beating, c.Warmup)
	takeTimes(beaters)
	r = &beatRun{store: server.store}
	r.busy, err = server.use(beating, c.For)
	r.times = takeTimes(beaters)
	ended := context.Cause(beating)
	stop()
	if err := errors.Join(err, ended, group.Wait()); err != nil {
		return nil, err
	}
	if len(r.times) == 0 {
		return nil, errors.New("no heartbeat was answered")
	}
	slices.Sort(r.times)
	r.idle, err = server.use(context.WithoutCancel(ctx), c.For/4) // nobody is suspect yet
	return r, err
}

// enlist registers the fleet, every instance over the connection that it keeps.
func (c *benchHeartbeatCmd) enlist(ctx context.Context, std *streams, name, addr string) ([]*beater, error) {
	bar := progress.New(std.err, "registering instances with "+name, c.Instances)
	defer bar.Done()
	beaters := make([]*beater, c.Instances)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	for i := range beaters {
		group.Go(func() (err error) {
			beaters[i], err = newBeater(ctx, addr, i)
			bar.Add(1)
			return err
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(beaters, func(b *beater) bool { return b == nil }), err
}

// beater is one instance.
type beater struct {
	*load.Conn
	head, incarnation string
	body, request     []byte
	beats             int
	told              time.Duration // to the next, by the last answer; 0: nothing

	mu    sync.Mutex
	times []time.Duration // of its exchanges
}

// newBeater registers an instance and makes it ready.
func newBeater(ctx context.Context, addr string, i int) (*beater, error) {
	conn, err := load.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	id := "bench-" + strconv.Itoa(i)
	b := &beater{Conn: conn, head: "POST /v1/instances/" + id + "/heartbeat HTTP/1.1\r\nHost: " + addr + "\r\nContent-Type: application/json\r\nContent-Length: "}
	body := fmt.Sprintf(`{"address":"10.%d.%d.%d:8000","labels":{"replicaset":"bench"},"max_running":256}`, i>>16, i>>8&255, i&255)
	status, answer, err := b.Do([]byte("PUT /v1/instances/" + id + " HTTP/1.1\r\nHost: " + addr +
		"\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body))
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", status, answer)
	}
	var got struct{ Incarnation string }
	if err == nil {
		err = json.Unmarshal(answer, &got)
	}
	if b.incarnation = got.Incarnation; err == nil {
		err = b.beat()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("enlist %s: %w", id, err), conn.Close())
	}
	return b, nil
}

// beat sends one heartbeat, as a busy worker would.
func (b *beater) beat() error {
	b.beats++
	b.body = fmt.Appendf(b.body[:0], `{"incarnation":%q,"ready":true,"running":%d,"waiting":%d,"max_running":256,"kv_usage":0.%02d,"prefix_queries":%d,"prefix_hits":%d}`,
		b.incarnation, b.beats%200, b.beats%7, b.beats%100, 10_000*b.beats, 9_000*b.beats)
	b.request = append(append(b.request[:0], b.head...), strconv.Itoa(len(b.body))...)
	b.request = append(append(b.request, "\r\n\r\n"...), b.body...)
	start := time.Now()
	status, answer, err := b.Do(b.request)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", status, answer)
	}
	took := time.Since(start)
	var got struct {
		NextMS int64 `json:"next_ms"`
	}
	if err == nil {
		err = json.Unmarshal(answer, &got)
	}
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told, b.times = time.Duration(got.NextMS)*time.Millisecond, append(b.times, took)
	return nil
}

// run beats until ctx ends, beginning a while from now.
func (b *beater) run(ctx context.Context, period, begin time.Duration) error {
	next := time.Now().Add(begin)
	for pause.For(ctx, time.Until(next)) == nil {
		if err := b.beat(); err != nil {
			return err
		}
		if next = next.Add(period); b.told > 0 {
			next = time.Now().Add(b.told)
		}
	}
	return nil
}

// takeTimes collects how long exchanges took since the last call.
func takeTimes(beaters []*beater) (times []time.Duration) {
	for _, b := range beaters {
		b.mu.Lock()
		times = append(times, b.times...)
		b.times = b.times[:0]
		b.mu.Unlock()
	}
	return times
}
