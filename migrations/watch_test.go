package migrations

import (
	"testing"
	"time"

	"berth/statestore"
)

// An instance that stays over its bound is relieved by one job, whichever process
// watches; one that is over it for a moment, or in a pool that asks for nothing, is
// left alone.
func TestInstancesThatStayOverTheirBoundAreRelieved(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _, _ := w.hot()
		after := 30 * time.Second
		watching := func(o *Options) {
			o.Pools = func() []string { return []string{poolName, "another"} }
			o.AutoRebalance = func(pool string) time.Duration {
				if pool == poolName {
					return after
				}
				return 0
			}
		}
		began := time.Now()
		one := w.starts("one", w.store, watching)
		w.starts("two", w.store, watching)
		w.pass(20 * time.Second)
		a.running.Store(2) // for a moment
		w.pass(5 * time.Second)
		a.running.Store(30)
		w.pass(20 * time.Second)
		jobs, _, err := w.store.Jobs(w.ctx)
		w.ok(err)
		if len(jobs) != 0 {
			t.Errorf("after %v of ups and downs: %v", time.Since(began), jobs)
		}
		one.stops() // and the other has to watch anew
		w.eventually("it is relieved", func() bool { moved, _ := w.truth("a", 60); return moved > 10 })
		jobs, _, err = w.store.Jobs(w.ctx)
		w.ok(err)
		if len(jobs) != 1 || jobs[0].Kind != KindRebalance || jobs[0].Sources[0] != a.by {
			t.Fatalf("jobs %+v", jobs)
		}
		a.running.Store(5) // as its load follows
		w.ends(jobs[0].ID, statestore.JobSucceeded)
		w.pass(2 * time.Minute)
		if jobs, _, err = w.store.Jobs(w.ctx); err != nil || len(jobs) != 1 {
			t.Errorf("afterwards: %d jobs, %v", len(jobs), err)
		}
	})
}

// Where no policy asks for it, an instance may stay over its bound for ever.
func TestNothingIsRebalancedUnasked(t *testing.T) {
	inWorld(t, func(w *world) {
		w.hot()
		w.starts("one", w.store)
		w.pass(30 * time.Minute)
		if jobs, _, err := w.store.Jobs(w.ctx); err != nil || len(jobs) != 0 {
			t.Errorf("jobs %v, %v", jobs, err)
		}
	})
}
