package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// asker asks one process for routes without pause, and fails at an answer that is
// degraded, names the hot instance for a new session or moves the bound one.
type asker struct {
	at    api
	hot   string
	bound hint
	asked atomic.Int64

	mu    sync.Mutex
	worst time.Duration // that an answer took since it was taken last
}

// takeWorst is the longest that an answer took since the last call.
func (k *asker) takeWorst() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	worst := k.worst
	k.worst = 0
	return worst
}

func (k *asker) run(ctx context.Context) error {
	for {
		n := k.asked.Add(1)
		began := time.Now()
		fresh, err := k.at.route(ctx, fmt.Sprint("fresh-", n))
		var held hint
		if err == nil {
			held, err = k.at.route(ctx, "held")
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was told to end
		case err != nil:
			return err
		case fresh.Instance == k.hot || fresh.Degraded != "":
			return fmt.Errorf("a new session is hinted %+v", fresh)
		case held.Instance != k.bound.Instance || held.Reason != "bound" || held.Degraded != "":
			return fmt.Errorf("a session of %s is hinted %+v", k.bound.Instance, held)
		}
		k.mu.Lock()
		k.worst = max(k.worst, time.Since(began))
		k.mu.Unlock()
	}
}

// TestAKilledReplicaLeavesNoGap is case R40: what one process is told of loads bounds
// the decisions of the other; and when the one that judges is killed, the other
// answers on as it did, bounds by the loads that it is told, and judges in its turn.
func TestAKilledReplicaLeavesNoGap(t *testing.T) {
	t.Parallel()
	p := onOneRedis(t)
	ctx := t.Context()
	all := make([]credentials, 4)
	for i := range all {
		var err error
		all[i], err = p.s1.api().enlist(ctx, fmt.Sprintf("i%d", i+1), "default", fmt.Sprintf("10.0.0.%d:8000", i+1))
		must(t, err)
	}
	awaitReady(t, p, ids(len(all))...)
	first, other := judges(t, p)
	a, b := first.api(), other.api()
	hot := all[0]
	n := 0
	// passes waits until new sessions pass the hot instance by at the other process,
	// or go there again.
	passes := func(by bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("new sessions pass the hot instance by: %v", by), func() error {
			went := 0
			for range 40 {
				n++
				h, err := b.route(ctx, fmt.Sprint("new-", n))
				if err != nil {
					return err
				}
				if h.Instance == hot.instance {
					went++
				}
			}
			if (went == 0) != by {
				return fmt.Errorf("%d of 40 go there", went)
			}
			return nil
		})
	}
	passes(false)
	for _, who := range all[1:] {
		must(t, a.beat(ctx, who, 2))
	}
	must(t, a.beat(ctx, hot, 200))
	passes(true)
	home, err := b.route(ctx, "held")
	must(t, err)
	owner := all[home.Instance[1]-'1']
	_, err = b.append(ctx, "held", newWrite(owner, home.Handle, "op-1"))
	must(t, err)

	k := &asker{at: b, hot: hot.instance, bound: home}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	g, gctx := errgroup.WithContext(asking)
	g.Go(func() error { // or complaints of who is silent would make it down, which opens no breaker
		for gctx.Err() == nil {
			for _, who := range all {
				running := 2
				if who == hot {
					running = 200
				}
				if err := b.beat(gctx, who, running); err != nil && gctx.Err() == nil {
					return err
				}
			}
			select {
			case <-time.After(time.Second):
			case <-gctx.Done():
			}
		}
		return nil
	})
	for range 2 {
		g.Go(func() error { return k.run(gctx) })
	}
	more := func(what string, done func() error) {
		t.Helper()
		from := k.asked.Load()
		eventually(t, what, func() error {
			if gctx.Err() == nil && k.asked.Load() < from+50 {
				return errors.New("too few answers to tell")
			}
			return done()
		})
	}
	more("it answers", func() error { return nil })
	before := k.takeWorst()
	first.kill9(t)
	more("the other process judges", func() error {
		var in struct{ Breaker string }
		must(t, b.do(ctx, http.MethodPost, "/v1/outcomes", map[string]any{
			"outcomes": []map[string]string{{"instance": hot.instance, "result": "5xx"}},
		}, nil))
		err := b.do(ctx, http.MethodGet, "/v1/instances/"+hot.instance, nil, &in)
		if err == nil && in.Breaker != "open" && gctx.Err() == nil {
			err = fmt.Errorf("the breaker of what fails is %q", in.Breaker)
		}
		return err
	})
	after := k.takeWorst()
	stop()
	must(t, g.Wait())
	t.Logf("%d pairs of answers; the slowest took %s before the first process was killed and %s after", k.asked.Load(), before, after)
	// A gap would be as long as a lease, or as a time-out.
	if after > max(2*time.Second, 5*before) {
		t.Errorf("an answer took %s when the first process was killed, at most %s before", after, before)
	}

	// The loads that it is told itself bound it now.
	calm := all[1]
	must(t, b.beat(ctx, calm, 200))
	hot = calm
	passes(true)
	must(t, b.beat(ctx, calm, 2))
	passes(false)
}

// judges tells which process holds the health lease: it alone counts sessions.
func judges(t *testing.T, p pair) (holder, other *berth) {
	t.Helper()
	eventually(t, "a process judges", func() error {
		for _, at := range []*berth{p.s1, p.s2} {
			got, err := at.api().raw(t.Context(), http.MethodGet, "/metrics", nil)
			if err != nil {
				return err
			}
			if strings.Contains(string(got.body), "\nberth_instance_sessions{") {
				holder = at
				return nil
			}
		}
		return errors.New("nobody counts sessions")
	})
	if other = p.s1; holder == p.s1 {
		other = p.s2
	}
	return holder, other
}
