package drainbench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/client"
	"berth/cmd/berth/internal/pause"
)

const (
	think    = 50 * time.Millisecond // between two turns of one client
	arrivals = 10 * time.Millisecond // between two new sessions
	tries    = 100                   // of one turn, before its user sees it fail
	retry    = 10 * time.Millisecond
)

// traffic is the clients that go on while sessions move.
type traffic struct {
	s      *stage
	routes *client.Gateway

	turns, failed, redirected, begun, wrong atomic.Int64

	mu     sync.Mutex
	source map[string]bool // instances that must not be hinted to new sessions any more
	acked  map[string]int  // turns after the first, by session
}

func newTraffic(s *stage) *traffic {
	return &traffic{s: s, source: map[string]bool{}, acked: map[string]int{}}
}

// closed says that a drain of the instance was answered: from then on no new session
// may be sent there.
func (t *traffic) closed(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.source[id] = true
}

func (t *traffic) isClosed(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.source[id]
}

// run takes turns until ctx ends.
func (t *traffic) run(ctx context.Context) (err error) {
	if t.routes, err = client.NewGateway(t.s.berth); err != nil {
		return fmt.Errorf("make a gateway: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range t.s.c.Clients {
		g.Go(func() error {
			for n := 1; pause.For(ctx, think) == nil; n++ {
				if err := t.take(ctx, seated(i), n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		for n := 0; pause.For(ctx, arrivals) == nil; n++ {
			if err := t.arrive(ctx, fmt.Sprintf("new-%d", n)); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

// take takes one turn of a session, following every answer.
func (t *traffic) take(ctx context.Context, id string, n int) error {
	// A turn that has begun is taken to its end, so that it is known what became of it.
	ctx = context.WithoutCancel(ctx)
	turn := turnOf(id, n)
	for range tries {
		route, err := t.routes.Route(ctx, client.RouteRequest{Session: t.s.key(id)})
		if err == nil {
			_, err = t.s.workers[route.Instance].Serve(ctx, request(t.s.key(id), route, turn))
		}
		switch {
		case err == nil:
			t.turns.Add(1)
			t.mu.Lock()
			t.acked[id] = n
			t.mu.Unlock()
			return nil
		case errors.Is(err, client.ErrNotOwner), errors.Is(err, client.ErrStaleHandle), errors.Is(err, client.ErrBadHandle), errors.Is(err, client.ErrNotEligible):
			t.redirected.Add(1)
			_ = pause.For(ctx, retry)
		default:
			return fmt.Errorf("turn %d of %s: %w", n, id, err)
		}
	}
	t.failed.Add(1)
	return fmt.Errorf("turn %d of %s was refused %d times", n, id, tries)
}

// arrive begins a new session where Berth says.
func (t *traffic) arrive(ctx context.Context, id string) error {
	closed := map[string]bool{}
	for _, i := range t.s.ids {
		closed[i] = t.isClosed(i)
	}
	route, err := t.routes.Route(context.WithoutCancel(ctx), client.RouteRequest{Session: t.s.key(id)})
	if err != nil {
		return fmt.Errorf("route a new session: %w", err)
	}
	if closed[route.Instance] {
		t.wrong.Add(1)
	}
	if err := t.take(ctx, id, 0); err != nil {
		return err
	}
	t.begun.Add(1)
	return nil
}

// acknowledged is how many turns of each session were acknowledged.
func (t *traffic) acknowledged(seats int) map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]int{}
	for i := range seats {
		all[seated(i)] = 1
	}
	for id, n := range t.acked {
		all[id] = n + 1
	}
	return all
}
