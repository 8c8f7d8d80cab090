package services_test

import (
	"fmt"
	"testing"
	"time"
)

// Case R40: the load that one replica is told bounds the decisions of the others
// within a second, with no scraping; and when a replica is gone the others go on.
func TestLoadToldToOneReplicaBoundsTheOthers(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	a, b := setupOn(t, store), setupOn(t, store)
	var workers []*worker
	for i := range 4 {
		workers = append(workers, a.worker(fmt.Sprintf("i%d", i)))
	}
	hot := workers[0]
	eventually(t, "every instance is let in, at the other replica too", func() bool {
		for _, w := range workers {
			if b.call("GET", "/v1/instances/"+w.id, "").str("ramp_percent") != "100" {
				return false
			}
		}
		return true
	})
	for _, w := range workers[1:] {
		w.beat(2)
	}
	next := 0
	route := func() answer {
		next++
		return b.route(fmt.Sprintf("other-%d", next)).want(200)
	}
	quickest := time.Hour // of a few: one may be the machine's
	for range 5 {
		hot.beat(0)
		eventually(t, "new sessions go to the instance", func() bool { return route().str("instance") == hot.id })
		told := time.Now()
		hot.beat(200)
		eventually(t, "new sessions pass the hot instance by at the other replica", func() bool {
			return route().str("reason") == "over_bound"
		})
		if quickest = min(quickest, time.Since(told)); quickest < 2*time.Second {
			break
		}
	}
	if quickest > 5*time.Second { // a second, and time for a busy machine
		t.Errorf("it took %v at best", quickest)
	}
	for i := range 50 {
		if got := b.route(fmt.Sprintf("late-%d", i)).want(200); got.str("instance") == hot.id {
			t.Fatalf("a new session at the hot instance: %s", got.body)
		}
	}
	a.stop()
	for i := range 50 {
		if got := b.route(fmt.Sprintf("after-%d", i)).want(200); got.str("instance") == hot.id || got.str("degraded") != "" {
			t.Fatalf("after the other replica ended: %s", got.body)
		}
	}
}
