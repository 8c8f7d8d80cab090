package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// atOnce is how many sessions a test works on at once.
const atOnce = 16

// forAll does something for each of n, several at once.
func forAll(t *testing.T, n int, do func(ctx context.Context, i int) error) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error { return do(ctx, i) })
	}
	must(t, g.Wait())
}

// TestTwoProcessesAreOneBerth holds, of two processes on one Redis, that it makes
// no difference which one is asked.
func TestTwoProcessesAreOneBerth(t *testing.T) {
	t.Parallel()
	p := onOneRedis(t)
	c := hire(t, 4, p.urls()...)
	t.Run("a session keeps its instance when its turns alternate between processes", func(t *testing.T) {
		t.Parallel()
		alternate(t, p, c)
	})
	t.Run("a registration at one is hinted by the other within a second", func(t *testing.T) {
		t.Parallel()
		registrationTravels(t, p)
	})
	t.Run("a handle of one is good at the other and a forged one at neither", func(t *testing.T) {
		t.Parallel()
		handlesTravel(t, p, c)
	})
	t.Run("the same new id is placed alike by both at once", func(t *testing.T) {
		t.Parallel()
		sameNewIDs(t, p)
	})
	t.Run("after a take-over at one the other hints the new owner", func(t *testing.T) {
		t.Parallel()
		takeOverTravels(t, p, c)
	})
}

// alternate is case T22: affinity that lives in one router's memory differs from
// the other's.
func alternate(t *testing.T, p pair, c crew) {
	sessions, turns := 100, 20
	if testing.Short() {
		turns = 4
	}
	berths := []api{p.s1.api(), p.s2.api()}
	forAll(t, sessions, func(ctx context.Context, i int) error {
		session := fmt.Sprintf("alternating-%d", i)
		var home hint
		for n := range turns {
			at := berths[(i+n)%2]
			h, err := at.route(ctx, session)
			if err != nil {
				return err
			}
			switch {
			case n == 0:
				home = h
			case h.Instance != home.Instance || h.Reason != "bound" || h.Version != uint64(n):
				return fmt.Errorf("turn %d of %s, begun on %s: hinted %+v", n, session, home.Instance, h)
			case n > 1 && h.Epoch != home.Epoch:
				return fmt.Errorf("turn %d of %s: epoch %d became %d although nobody took over", n, session, home.Epoch, h.Epoch)
			}
			home.Epoch = h.Epoch
			// The answer of the one goes to the other.
			got, err := berths[(i+n+1)%2].append(ctx, session, newWrite(c.credentials(h.Instance), h.Handle, fmt.Sprintf("op-%d", n)))
			if err != nil {
				return fmt.Errorf("turn %d of %s: %w", n, session, err)
			}
			if got.Version != uint64(n+1) || got.Turns != n+1 || got.Durability.Level != "fsynced" {
				return fmt.Errorf("turn %d of %s: got %+v", n, session, got)
			}
		}
		return nil
	})
}

// registrationTravels measures until it is quick: one delay may be the machine's.
func registrationTravels(t *testing.T, p pair) {
	var delays []time.Duration
	for i := 0; i < 20 && (i == 0 || slices.Min(delays) > time.Second); i++ {
		pool := fmt.Sprintf("fresh-%d", i)
		_, err := p.s1.api().enlist(t.Context(), pool+"-i1", pool, fmt.Sprintf("10.0.0.2:%d", 8001+i))
		must(t, err)
		began := time.Now()
		eventually(t, "the other process hints it", func() error {
			_, err := p.s2.api().route(t.Context(), "anybody", "pool="+pool)
			return err
		})
		delays = append(delays, time.Since(began))
	}
	t.Logf("seen by the other process after %v", delays)
	if best := slices.Min(delays); best > time.Second {
		t.Errorf("a registration took %s to be hinted by the other process, at best", best)
	}
}

func handlesTravel(t *testing.T, p pair, c crew) {
	ctx := t.Context()
	const session = "travelling"
	h, err := p.s1.api().route(ctx, session)
	must(t, err)
	by := c.credentials(h.Instance)
	first, err := p.s2.api().append(ctx, session, newWrite(by, h.Handle, "op-1"))
	must(t, err)
	second, err := p.s1.api().append(ctx, session, newWrite(by, first.Handle, "op-2"))
	must(t, err)

	forged := []byte(second.Handle)
	forged[len(forged)/2] ^= 1
	for _, at := range []*berth{p.s1, p.s2} {
		_, err := at.api().append(ctx, session, newWrite(by, string(forged), "op-3"))
		if code(err) != "bad_handle" {
			t.Errorf("%s answers a forged handle with %v", at.url, err)
		}
		got, err := at.api().load(ctx, session)
		must(t, err)
		if got.Count != 2 {
			t.Errorf("%s has %d turns, want 2", at.url, got.Count)
		}
	}
}

// sameNewIDs is case R15, first half: replicas that claim different instances for
// one new id.
func sameNewIDs(t *testing.T, p pair) {
	const pool, ids = "alike", 1000
	// A busy machine takes so long to register all that the last would join later, and ramp.
	rollout := map[string]any{"ramp": map[string]any{"opening_ms": time.Hour.Milliseconds()}}
	must(t, p.s1.api().do(t.Context(), http.MethodPut, "/v1/pools/"+pool+"/policy", rollout, nil))
	for i := range 8 {
		_, err := p.s1.api().enlist(t.Context(), fmt.Sprintf("alike-i%d", i), pool, fmt.Sprintf("10.0.0.3:%d", 8001+i))
		must(t, err)
	}
	seen := make([][2]hint, ids)
	eventually(t, "both place on all of the pool", func() error {
		for _, at := range []*berth{p.s1, p.s2} {
			var view struct {
				Instances []struct {
					ID, State   string
					RampPercent int `json:"ramp_percent"`
				}
			}
			if err := at.api().do(t.Context(), http.MethodGet, "/v1/snapshot?pool="+pool, nil, &view); err != nil {
				return err
			}
			if len(view.Instances) != 8 {
				return fmt.Errorf("%s sees %d instances", at.url, len(view.Instances))
			}
			for _, in := range view.Instances {
				// The health lease's holder lets in who it first saw warming a round later.
				if in.State != "ready" || in.RampPercent != 100 {
					return fmt.Errorf("%s sees %+v", at.url, in)
				}
			}
		}
		return nil
	})
	forAll(t, ids, func(ctx context.Context, i int) error {
		session := fmt.Sprintf("new-%d", i)
		var both sync.WaitGroup
		var errs [2]error
		for k, at := range []*berth{p.s1, p.s2} {
			both.Go(func() { seen[i][k], errs[k] = at.api().route(ctx, session, "pool="+pool) })
		}
		both.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	})
	placed := map[string]int{}
	for i, h := range seen {
		placed[h[0].Instance]++
		if h[0].Instance != h[1].Instance || h[0].Reason != h[1].Reason || h[0].Degraded+h[1].Degraded != "" {
			t.Errorf("new-%d: %+v and %+v", i, h[0], h[1])
		}
	}
	if len(placed) != 8 {
		t.Errorf("1000 ids went to %v", placed)
	}
}

// takeOverTravels is case R15, second half: what a process had cached before a
// take-over must not win over it.
func takeOverTravels(t *testing.T, p pair, c crew) {
	ctx := t.Context()
	const session = "taken-over"
	h, err := p.s1.api().route(ctx, session)
	must(t, err)
	old := c.credentials(h.Instance)
	saved, err := p.s1.api().append(ctx, session, newWrite(old, h.Handle, "op-1"))
	must(t, err)
	_, err = p.s2.api().route(ctx, session) // cached there now
	must(t, err)

	away, err := p.s1.api().route(ctx, session, "exclude="+h.Instance+":connect")
	must(t, err)
	claimed := c.credentials(away.Instance)
	must(t, p.s1.api().do(ctx, http.MethodPost, "/v1/recover", map[string]any{
		"session": session, "handle": away.Handle, "instance": claimed.instance, "incarnation": claimed.incarnation,
	}, nil))
	eventually(t, "the other process hints the new owner", func() error {
		got, err := p.s2.api().route(ctx, session)
		if err == nil && got.Instance != away.Instance {
			err = fmt.Errorf("it hints %s (%s)", got.Instance, got.Reason)
		}
		return err
	})
	_, err = p.s2.api().append(ctx, session, newWrite(old, saved.Handle, "op-2"))
	if refusal, ok := err.(*refused); !ok || refusal.Code != "not_owner" || refusal.Owner.Instance != away.Instance || !refusal.Parked {
		t.Errorf("the old owner's write at the other process: %v, want it parked for %s", err, away.Instance)
	}
}

// TestSessionsOutliveTheProcessThatTookThem is case T08: state that dies with the
// process, or is missing on another replica.
func TestSessionsOutliveTheProcessThatTookThem(t *testing.T) {
	t.Parallel()
	sessions, turns := 1000, 3
	if testing.Short() {
		sessions = 100
	}
	p := onOneRedis(t)
	who, err := p.s1.api().enlist(t.Context(), "i1", "default", "10.0.0.1:8001")
	must(t, err)
	saved := func(i int) (w write) {
		w = newWrite(who, "", fmt.Sprintf("op-%d", i))
		for n := range turns {
			w.Turns = append(w.Turns, newWrite(who, "", fmt.Sprintf("turn-%d-%d", i, n)).Turns...)
		}
		return w
	}
	forAll(t, sessions, func(ctx context.Context, i int) error {
		session := fmt.Sprintf("s-%d", i)
		h, err := p.s1.api().route(ctx, session)
		if err != nil {
			return err
		}
		w := saved(i)
		w.Handle = h.Handle
		_, err = p.s1.api().append(ctx, session, w)
		return err
	})
	p.s1.kill9(t)
	forAll(t, sessions, func(ctx context.Context, i int) error {
		got, err := p.s2.api().load(ctx, fmt.Sprintf("s-%d", i))
		if err != nil {
			return err
		}
		if want := (&record{Turns: saved(i).Turns}).values(); !slices.Equal(got.values(), want) {
			return fmt.Errorf("session %d has\n%q\nwant\n%q", i, got.values(), want)
		}
		return nil
	})
}
