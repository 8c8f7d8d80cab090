package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/cmd/berth/internal/load"
	"berth/cmd/berth/internal/progress"
	"berth/services"
	"berth/statestore"
	"berth/statestore/boltstore"
)

// benchRouteCmd measures the hot path on a warm cache.
type benchRouteCmd struct {
	BenchFlags `embed:""`
	Sessions   int `default:"1000" help:"Bound sessions."`
	Instances  int `default:"10" help:"Registered instances."`
}

// routeFigures is what the benchmark prints.
type routeFigures struct {
	Ratio     float64 `json:"ratio"` // Berth's requests a second over the bare handler's
	BerthRPS  float64 `json:"berth_rps"`
	BareRPS   float64 `json:"bare_rps"`
	P50US     float64 `json:"p50_us"`
	P99US     float64 `json:"p99_us"`
	BareP50US float64 `json:"bare_p50_us"`
	BareP99US float64 `json:"bare_p99_us"`
	RatioMin  float64 `json:"ratio_min"`
	RatioMax  float64 `json:"ratio_max"`
	Sessions  int     `json:"sessions"`
	Instances int     `json:"instances"`
}

// Run populates an embedded store, warms the cache, and measures.
func (c *benchRouteCmd) Run(ctx context.Context, std *streams) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	if c.Sessions < 1 || c.Instances < 1 {
		return errors.New("sessions and instances must be at least 1")
	}
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := boltstore.Open(ctx, filepath.Join(dir, "berth.db"), boltstore.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := c.populate(ctx, std, store); err != nil {
		return err
	}
	// The cache holds them all, for as long as the run takes: what is measured is
	// the path that makes no store round trip.
	berth, err := startLocal(ctx, store, anyPort, func(o *services.Options) {
		o.CacheEntries, o.CacheTTL, o.MissRate = 2*c.Sessions+1000, time.Hour, 1<<30
		o.SuspectAfter, o.DownAfter = time.Hour, time.Hour // nobody beats for these instances
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, berth.stop()) }()
	figures, err := c.measure(ctx, std, berth.addr)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std, figures)
	}
	return figures.print(std.out)
}

func (f *routeFigures) print(out io.Writer) error {
	_, err := fmt.Fprintf(out, `%d sessions on %d instances
berth  %8.0f routes/s   p50 %5.0f µs   p99 %6.0f µs
bare   %8.0f requests/s p50 %5.0f µs   p99 %6.0f µs
ratio  %8.3f  (rounds %.3f to %.3f)
`, f.Sessions, f.Instances, f.BerthRPS, f.P50US, f.P99US, f.BareRPS, f.BareP50US, f.BareP99US, f.Ratio, f.RatioMin, f.RatioMax)
	return err
}

func benchSession(i int) string { return fmt.Sprintf("session-%08d-aaaa-bbbb-cccc", i) }

// populate registers the instances and binds the sessions to them.
func (c *benchRouteCmd) populate(ctx context.Context, std *streams, store statestore.Store) error {
	owners := make([]statestore.Owner, c.Instances)
	for i := range owners {
		owners[i] = statestore.Owner{Instance: fmt.Sprintf("i%d", i), Incarnation: statestore.IncarnationDigest(strconv.Itoa(i))}
		_, err := store.Register(ctx, statestore.InstanceSpec{
			ID: owners[i].Instance, Pool: statestore.DefaultName, Incarnation: owners[i].Incarnation, Weight: 100,
			Address: fmt.Sprintf("10.%d.%d.%d:8000", i>>16, i>>8&255, i&255),
		})
		if err != nil {
			return fmt.Errorf("register: %w", err)
		}
		if _, err := store.Heartbeat(ctx, owners[i], statestore.Heartbeat{Ready: true}); err != nil {
			return fmt.Errorf("heartbeat: %w", err)
		}
	}
	bar := progress.New(std.err, "binding sessions", c.Sessions)
	defer bar.Done()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(256)
	for i := range c.Sessions {
		group.Go(func() error {
			_, err := store.Append(ctx, statestore.Append{
				Key: statestore.SessionKey{Tenant: statestore.DefaultName, Pool: statestore.DefaultName, ID: benchSession(i)},
				By:  owners[i%len(owners)], Op: "1", Turns: []statestore.Turn{{Type: statestore.TurnJSON, Value: []byte("1")}},
				Lifetimes: statestore.Lifetimes{Affinity: 12 * time.Hour, Retention: 24 * time.Hour, Tombstone: 25 * time.Hour},
			})
			bar.Add(1)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("bind sessions: %w", err)
	}
	return nil
}

// measure warms every session once and compares.
func (c *benchRouteCmd) measure(ctx context.Context, std *streams, addr string) (f routeFigures, err error) {
	sample, err := c.warm(ctx, addr)
	if err != nil {
		return f, err
	}
	bareAddr, stop, err := serveOn(ctx, anyPort, sample)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	berth, err := c.clients(ctx, "berth", addr)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, closeAll(berth.Clients)) }()
	bare, err := c.clients(ctx, "bare", bareAddr)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, closeAll(bare.Clients)) }()
	r, err := load.Compare(ctx, c.plan(std), berth, bare)
	if err != nil {
		return f, err
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	return routeFigures{
		Ratio: r.Ratio, BerthRPS: r.First.PerSecond, BareRPS: r.Second.PerSecond, P50US: us(r.First.P50), P99US: us(r.First.P99),
		BareP50US: us(r.Second.P50), BareP99US: us(r.Second.P99), RatioMin: r.RatioMin, RatioMax: r.RatioMax,
		Sessions: c.Sessions, Instances: c.Instances,
	}, nil
}

// sample is an answer of Berth's, served by a bare handler.
type sample struct {
	header http.Header
	body   []byte
}

// ServeHTTP writes the same bytes again.
func (s *sample) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	for name, values := range s.header {
		h[name] = values
	}
	_, _ = w.Write(s.body) // the client is gone if this fails
}

// warm asks for every session once and keeps the last answer.
func (c *benchRouteCmd) warm(ctx context.Context, addr string) (*sample, error) {
	conn, err := load.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // only read from
	for i := range c.Sessions {
		status, body, err := conn.Do(routeRequest(benchSession(i), addr))
		if err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
		if status != http.StatusOK {
			return nil, fmt.Errorf("warm up: status %d: %s", status, body)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/route?session="+benchSession(0), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("take a sample: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("take a sample: %w", err)
	}
	// net/http writes these two by itself.
	resp.Header.Del("Date")
	resp.Header.Del("Content-Length")
	return &sample{header: resp.Header, body: body}, nil
}

func routeRequest(session, addr string) []byte {
	return []byte("GET /route?session=" + session + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n")
}

func (c *benchRouteCmd) clients(ctx context.Context, name, addr string) (load.Target, error) {
	t := load.Target{Name: name}
	for i := range c.Connections {
		conn, err := load.Dial(ctx, addr)
		if err != nil {
			return t, errors.Join(err, closeAll(t.Clients))
		}
		t.Clients = append(t.Clients, &routeClient{
			Conn: conn, addr: addr, sessions: c.Sessions, pick: rand.New(rand.NewPCG(uint64(i), 1)), //nolint:gosec // a load, not a secret
		})
	}
	return t, nil
}

// routeClient asks for a random session at a time.
type routeClient struct {
	*load.Conn
	addr     string
	sessions int
	pick     *rand.Rand
}

// Next makes one exchange.
func (c *routeClient) Next() error {
	status, body, err := c.Do(routeRequest(benchSession(c.pick.IntN(c.sessions)), c.addr))
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", status, body)
	}
	return err
}
