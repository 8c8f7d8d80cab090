package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/client"
)

// every is the time between two appends of a stream, 50 a second.
const every = 20 * time.Millisecond

// flow is appends to one session, each sent until it is acknowledged. It asks the
// processes in turn where the session belongs, and takes the answer for what it is.
type flow struct {
	session string
	atOnce  int // appends under way at most; the turns of more than one have no order
	routes  []*client.Gateway
	byID    map[string]*engine

	begun, acked, followed atomic.Int64

	mu    sync.Mutex
	acks  []client.Receipt
	first time.Time
	last  time.Time
}

// run sends until enough ends. An append that began then is still acknowledged.
func (s *flow) run(ctx, enough context.Context) error {
	var g errgroup.Group
	g.SetLimit(s.atOnce)
	tick := time.NewTicker(every)
	defer tick.Stop()
	s.first = time.Now()
	for enough.Err() == nil && ctx.Err() == nil {
		n := s.begun.Add(1) - 1
		g.Go(func() error { return s.send(ctx, int(n)) })
		select {
		case <-tick.C:
		case <-enough.Done():
		}
	}
	return g.Wait()
}

// send takes one append to whoever is said to own the session, until it is
// acknowledged. What it may be refused with is what the caller can follow.
func (s *flow) send(ctx context.Context, n int) error {
	w := client.Write{Op: fmt.Sprintf("op-%d", n), Turns: []client.Turn{client.JSON(fmt.Appendf(nil, `"turn %d"`, n))}}
	if s.atOnce > 1 {
		w.At = client.AtEnd
	}
	for attempt := 0; ; attempt++ {
		got, err := s.attempt(ctx, s.routes[(n+attempt)%len(s.routes)], w)
		switch {
		case err == nil:
			s.mu.Lock()
			defer s.mu.Unlock()
			s.acks, s.last = append(s.acks, got), time.Now()
			s.acked.Add(1)
			return nil
		case errors.Is(err, client.ErrNotOwner), errors.Is(err, client.ErrStaleHandle):
			s.followed.Add(1)
			if err := sleep(ctx, 5*time.Millisecond); err != nil {
				return err
			}
		default:
			return fmt.Errorf("append %d: %w", n, err)
		}
	}
}

func (s *flow) attempt(ctx context.Context, at *client.Gateway, w client.Write) (client.Receipt, error) {
	r, err := at.Route(ctx, client.RouteRequest{Session: client.SessionKey{ID: s.session}})
	if err != nil {
		return client.Receipt{}, err
	}
	return s.byID[r.Instance].turn(ctx, s.session, r.Hint(), w)
}

// awaitMore waits until n further appends were acknowledged, or the stream ended.
func (s *flow) awaitMore(t *testing.T, n int64, ended <-chan error) {
	t.Helper()
	from := s.acked.Load()
	eventually(t, fmt.Sprintf("%d further appends are acknowledged", n), func() error {
		select {
		case err := <-ended:
			t.Fatalf("the stream ended early: %v", err)
		default:
		}
		if got := s.acked.Load() - from; got < n {
			return fmt.Errorf("%d are", got)
		}
		return nil
	})
}

// check holds what is stored against what was acknowledged.
func (s *flow) check(t *testing.T, at api) {
	t.Helper()
	got, err := at.load(t.Context(), s.session)
	must(t, err)
	if n := int(s.begun.Load()); got.Count != n || len(s.acks) != n || got.Version != uint64(n) {
		t.Errorf("%d appends: %d acknowledged, %d stored, version %d", n, len(s.acks), got.Count, got.Version)
	}
	stored := got.values()
	for i, ack := range s.acks {
		var n int
		if _, err := fmt.Sscanf(ack.Op, "op-%d", &n); err != nil {
			t.Fatalf("op %q: %v", ack.Op, err)
		}
		switch want := fmt.Sprintf(`"turn %d"`, n); {
		case ack.Version == 0 || ack.Version > uint64(len(stored)) || stored[ack.Version-1] != want:
			t.Errorf("%s was acknowledged as version %d, which is another turn or none", ack.Op, ack.Version)
		case s.atOnce == 1 && (n != i || ack.Version != uint64(n+1)):
			t.Errorf("acknowledgement %d is of %s as version %d", i, ack.Op, ack.Version)
		}
	}
	c, err := s.byID[got.Owner.Instance].open(s.session)
	must(t, err)
	left, err := c.session.Recover(t.Context(), client.RecoverRequest{Mode: client.Read, NoTurns: true})
	must(t, err)
	if len(left.Parked) > 0 {
		t.Errorf("%d writes are parked that were acknowledged since", len(left.Parked))
	}
}

// TestAppendsToASessionThatMovesBetweenProcesses holds that a stream of 50 appends a
// second on one session that ten jobs move, at two processes on one Redis, is stored
// whole, each append once and as the version that it was acknowledged as. A refusal
// is one that the caller can follow.
func TestAppendsToASessionThatMovesBetweenProcesses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grace  time.Duration
		atOnce int
	}{
		"of workers that let go":                {30 * time.Second, 1},
		"and is not waited for":                 {0, 1},
		"with requests at once, that let go":    {30 * time.Second, 8},
		"with requests at once, not waited for": {0, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := onOneRedis(t)
			s := &flow{session: "stream", atOnce: c.atOnce, byID: map[string]*engine{}}
			for i, url := range p.urls() {
				s.routes = append(s.routes, gateway(t, url))
				// Each worker speaks to another process first.
				id := fmt.Sprintf("i%d", i+1)
				s.byID[id] = boot(t, id, fmt.Sprintf("10.0.0.%d:80", i+1), nil, url, p.urls()[1-i])
			}
			awaitReady(t, p, "i1", "i2")
			ctx := t.Context()
			enough, stop := context.WithCancel(ctx)
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- s.run(ctx, enough) }()
			moves := 10
			if testing.Short() {
				moves = 3
			}
			for n := range moves {
				s.awaitMore(t, 10, ended)
				moveOnce(t, []api{p.s1.api(), p.s2.api()}[n%2], s.session, c.grace)
			}
			s.awaitMore(t, 10, ended)
			stop()
			must(t, <-ended)
			s.check(t, p.s1.api())
			s.check(t, p.s2.api())
			t.Logf("%d appends, %.1f a second, %d refusals followed", len(s.acks), float64(len(s.acks))/s.last.Sub(s.first).Seconds(), s.followed.Load())
		})
	}
}

// awaitReady waits until both processes place sessions on these.
func awaitReady(t *testing.T, p pair, ids ...string) {
	t.Helper()
	for _, at := range []*berth{p.s1, p.s2} {
		eventually(t, "all are ready at "+at.url, func() error {
			states, err := at.api().states(t.Context())
			for _, id := range ids {
				if err == nil && states[id] != "ready" {
					err = fmt.Errorf("%s is %q", id, states[id])
				}
			}
			return err
		})
	}
}

// moveOnce has a job move the session to the other of i1 and i2.
func moveOnce(t *testing.T, at api, session string, grace time.Duration) {
	t.Helper()
	owner := at.owner(t, session)
	var j job
	must(t, at.do(t.Context(), http.MethodPost, "/v1/rebalances", map[string]any{
		"sessions": []string{session}, "target": map[string]string{"i1": "i2", "i2": "i1"}[owner],
		"in_flight_grace_ms": grace.Milliseconds(),
	}, &j))
	eventually(t, "the session has moved", func() (err error) {
		if j, err = at.job(t.Context(), j.ID); err == nil && !j.ended() {
			err = fmt.Errorf("%+v", j)
		}
		return err
	})
	if j.State != "succeeded" || j.Progress.Moved != 1 {
		t.Errorf("the job that was to move the session away from %s ended as %+v", owner, j)
	}
}
