package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/client"
)

// engine is a worker of package client that cooperates: it lets a turn end before a
// session leaves.
type engine struct {
	*client.Worker
	id   string
	stop context.CancelFunc

	mu       sync.Mutex
	sessions map[string]*chat
}

// chat is an engine's copy of one session, one turn at a time.
type chat struct {
	mu      sync.Mutex
	session *client.Session
}

// boot starts an engine.
func boot(t *testing.T, id, address string, labels map[string]string, urls ...string) *engine {
	t.Helper()
	w, err := client.NewWorker(client.Config{BaseURLs: urls}, client.Instance{ID: id, Address: address, Labels: labels})
	must(t, err)
	must(t, w.Register(t.Context()))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	e := &engine{Worker: w, id: id, stop: cancel, sessions: map[string]*chat{}}
	ended := make(chan error, 1)
	go func() {
		ended <- w.Run(ctx, client.RunConfig{
			Load: func() client.Load { return client.Load{Ready: true} },
			Tasks: client.TaskHandlers{
				Prewarm: func(context.Context, client.Task) (client.TaskAnswer, error) { return client.TaskAnswer{}, nil },
				Release: e.release,
			},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("engine %s: %v", id, err)
		}
	})
	return e
}

func (e *engine) open(id string) (*chat, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.sessions[id]; c != nil {
		return c, nil
	}
	s, err := e.Open(client.SessionKey{ID: id})
	e.sessions[id] = &chat{session: s}
	return e.sessions[id], err
}

// release answers when no turn of the session runs.
func (e *engine) release(_ context.Context, t client.Task) (client.TaskAnswer, error) {
	c, err := e.open(t.Session.ID)
	if err != nil {
		return client.TaskAnswer{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return client.TaskAnswer{}, nil
}

// turn serves one request: it makes the copy current, and saves.
func (e *engine) turn(ctx context.Context, id string, hint client.Hint, w client.Write) (client.Receipt, error) {
	c, err := e.open(id)
	if err != nil {
		return client.Receipt{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.session.Current(hint)
	c.session.Offer(hint)
	if !current {
		if _, err := c.session.Recover(ctx, client.RecoverRequest{Mode: client.Claim, Handle: hint.Handle}); err != nil {
			return client.Receipt{}, err
		}
	}
	return c.session.Append(ctx, w)
}

// engines serve what a gateway sends them.
type engines struct {
	routes  *client.Gateway
	byID    map[string]*engine
	refused int // answers that had to be followed
}

// say takes one turn of a session, following every answer. The op stays the same.
func (e *engines) say(ctx context.Context, session string, n int) error {
	w := client.Write{Op: fmt.Sprintf("op-%d", n), Turns: []client.Turn{client.JSON(fmt.Appendf(nil, `"turn %d"`, n))}}
	for {
		r, err := e.routes.Route(ctx, client.RouteRequest{Session: client.SessionKey{ID: session}})
		if err == nil {
			_, err = e.byID[r.Instance].turn(ctx, session, r.Hint(), w)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, client.ErrNotOwner), errors.Is(err, client.ErrStaleHandle), errors.Is(err, client.ErrNotEligible), errors.Is(err, client.ErrBadHandle):
			e.refused++
			if err := sleep(ctx, 5*time.Millisecond); err != nil {
				return err
			}
		default:
			return fmt.Errorf("turn %d: %w", n, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// TestAppendsToASessionThatMoves holds that a stream of 50 appends a second on a
// session that moves ten times is stored whole, each once and in order: with workers
// that let go of a turn when they are asked, and with a job that waits for nobody.
func TestAppendsToASessionThatMoves(t *testing.T) {
	t.Parallel()
	for name, grace := range map[string]int{"of workers that let go": 30_000, "and is not waited for": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, timing...)
			at := server.api()
			e := &engines{routes: gateway(t, server.url), byID: map[string]*engine{}}
			for i, id := range []string{"i1", "i2"} {
				e.byID[id] = boot(t, id, fmt.Sprintf("10.0.0.%d:80", i+1), nil, server.url)
			}
			eventually(t, "both are ready", func() error {
				states, err := at.states(t.Context())
				if err == nil && (states["i1"] != "ready" || states["i2"] != "ready") {
					err = fmt.Errorf("they are %v", states)
				}
				return err
			})
			ctx := t.Context()
			must(t, e.say(ctx, "stream", 0))
			streaming, enough := context.WithCancel(ctx)
			said := make(chan int, 1)
			var failed error
			go func() {
				n := 1
				for ; streaming.Err() == nil && failed == nil; n++ {
					failed = e.say(ctx, "stream", n)
					_ = sleep(ctx, 20*time.Millisecond)
				}
				said <- n
			}()
			moves := 0
			for range 10 {
				owner := at.owner(t, "stream")
				target := map[string]string{"i1": "i2", "i2": "i1"}[owner]
				var j job
				must(t, at.do(ctx, http.MethodPost, "/v1/rebalances", map[string]any{
					"sessions": []string{"stream"}, "target": target, "in_flight_grace_ms": grace,
				}, &j))
				eventually(t, "it has moved", func() (err error) {
					if j, err = at.job(ctx, j.ID); err == nil && !j.ended() {
						err = fmt.Errorf("%+v", j)
					}
					return err
				})
				moves += j.Progress.Moved
				must(t, sleep(ctx, 200*time.Millisecond)) // some turns where it is
			}
			enough()
			n := <-said
			must(t, failed)
			got, err := at.load(ctx, "stream")
			must(t, err)
			if moves != 10 || got.Count != n {
				t.Errorf("moved %d times; %d turns were acknowledged, %d are stored", moves, n, got.Count)
			}
			for i, turn := range got.Turns {
				if want := fmt.Sprintf(`"turn %d"`, i); string(turn.Value) != want {
					t.Fatalf("turn %d is %s, want %s", i, turn.Value, want)
				}
			}
			t.Logf("%d turns, %d answers followed", n, e.refused)
		})
	}
}

// owner is the instance that a session belongs to.
func (a api) owner(t *testing.T, session string) string {
	t.Helper()
	var h history
	must(t, a.do(t.Context(), http.MethodGet, "/v1/sessions/"+session+"/history", nil, &h))
	return h.Owner.Instance
}

type history struct {
	Owner   struct{ Instance string } `json:"owner"`
	Changes []struct{ Instance, Reason string }
}

// TestRollingUpdateOfAFleet replaces twenty instances, two at a time, sparing those
// that are still to be replaced: no session moves more than twice, and none is lost.
func TestRollingUpdateOfAFleet(t *testing.T) {
	t.Parallel()
	const fleet, wave, each = 20, 2, 4
	server := serve(t, append(timing, "--heartbeat", "500ms")...)
	at := server.api()
	e := &engines{routes: gateway(t, server.url), byID: map[string]*engine{}}
	start := func(rs string, i int) string {
		id := fmt.Sprintf("%s-%02d", rs, i)
		e.byID[id] = boot(t, id, fmt.Sprintf("10.0.%d.%d:80", len(rs), i+1), map[string]string{"rs": rs}, server.url)
		return id
	}
	ready := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d are ready", n), func() error {
			states, err := at.states(t.Context())
			count := 0
			for _, s := range states {
				if s == "ready" {
					count++
				}
			}
			if err == nil && count != n {
				err = fmt.Errorf("%d are", count)
			}
			return err
		})
	}
	for i := range fleet {
		start("old", i)
	}
	ready(fleet)
	ctx := t.Context()
	sessions := make([]string, fleet*each)
	for i := range sessions {
		sessions[i] = fmt.Sprintf("chat-%d", i)
		must(t, e.say(ctx, sessions[i], 0))
	}
	for i := 0; i < fleet; i += wave {
		var leaving []string
		for k := range wave {
			start("new", i+k)
			leaving = append(leaving, fmt.Sprintf("old-%02d", i+k))
		}
		ready(fleet + wave)
		got := run(t, append([]string{"drain", "--avoid", "rs=old", "--grace", "1s", "--berth", server.url}, leaving...)...)
		if got.code != 0 {
			t.Fatalf("drain of %v: code %d\n%s%s", leaving, got.code, got.stdout, got.stderr)
		}
		for _, id := range leaving {
			e.byID[id].stop()
			must(t, at.do(ctx, http.MethodDelete, "/v1/instances/"+id, nil, nil))
			delete(e.byID, id)
		}
	}
	times := map[int]int{}
	for _, id := range sessions {
		var h history
		must(t, at.do(ctx, http.MethodGet, "/v1/sessions/"+id+"/history", nil, &h))
		times[len(h.Changes)-1]++
		if !strings.HasPrefix(h.Owner.Instance, "new-") {
			t.Errorf("%s belongs to %s", id, h.Owner.Instance)
		}
		must(t, e.say(ctx, id, 1))
		if got, err := at.load(ctx, id); err != nil || got.Count != 2 {
			t.Errorf("%s has %d turns, want 2: %v", id, got.Count, err)
		}
	}
	t.Logf("sessions by moves: %v", times)
	if times[1]+times[2] != len(sessions) {
		t.Errorf("sessions by moves: %v, want none but once or twice", times)
	}
}
