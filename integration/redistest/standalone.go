package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Standalone returns an empty database on a Redis server, found by the ladder that
// the package comment draws. Where no rung holds, the test is skipped, or fails
// when redis is required.
func Standalone(t testing.TB, opts ...Option) Server {
	t.Helper()
	s, err := shared.standalone(t, newConfig(opts))
	if errors.As(err, new(absent)) {
		missing(t, needRedis, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	n, giveBack, err := s.lend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	atEnd(t, giveBack)
	return s.database(n)
}

// Main runs the tests of a package, stops the servers they shared and exits:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
func Main(m interface{ Run() int }) {
	shared.keep()
	code := m.Run()
	if err := shared.stop(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// pool holds the servers that the tests of this binary share, by what was asked of
// them. An unsuccessful search is kept as well: asking a daemon that is not there
// takes longer than most tests.
type pool struct {
	mu       sync.Mutex
	keeping  bool // Main will stop them; otherwise each test stops its own
	servers  map[config]found[*server]
	clusters map[config]found[*cluster]
}

type found[S any] struct {
	server S
	err    error
}

var shared = pool{servers: map[config]found[*server]{}, clusters: map[config]found[*cluster]{}}

func (p *pool) keep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keeping = true
}

// standalone returns the server for c, started if it is the first to ask.
func (p *pool) standalone(t testing.TB, c config) (*server, error) {
	req := mustRequirements(t)
	open := func(ctx context.Context) (*server, error) { return climb(ctx, ladder(), c, req) }
	return lookup(t, p, p.servers, c, open, func(s *server) func(context.Context) error { return s.stop })
}

// lookup finds what tests share under c, or opens it. What a test must not share,
// or nobody would stop, ends with the test.
func lookup[S any](t testing.TB, p *pool, in map[config]found[S], c config,
	open func(context.Context) (S, error), stop func(S) func(context.Context) error,
) (S, error) {
	p.mu.Lock()
	if c.private || !p.keeping {
		p.mu.Unlock()
		s, err := open(t.Context())
		if err == nil {
			atEnd(t, stop(s))
		}
		return s, err
	}
	defer p.mu.Unlock()
	f, ok := in[c]
	if !ok {
		// The server outlives the test that happens to ask first.
		f.server, f.err = open(context.WithoutCancel(t.Context()))
		in[c] = f
	}
	return f.server, f.err
}

func (p *pool) stop(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, f := range p.servers {
		if f.err == nil {
			errs = append(errs, f.server.stop(ctx))
		}
	}
	for _, f := range p.clusters {
		if f.err == nil {
			errs = append(errs, f.server.stop(ctx))
		}
	}
	return errors.Join(errs...)
}

// atEnd runs f when the test has ended, with time of its own: t.Context is over by then.
func atEnd(t testing.TB, f func(context.Context) error) {
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
		defer cancel()
		if err := f(ctx); err != nil {
			t.Error(err)
		}
	})
}
