package services_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"berth/services"
	"berth/statestore/boltstore"
)

// inBubble runs f with a server and its store in virtual time.
func inBubble(t *testing.T, f func(b *bundle, store *faulty), options ...option) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: openStoreIn(t, filepath.Join(t.TempDir(), "berth.db"), boltstore.Options{})}
		b := start(t, store, options...)
		f(b, store)
		b.stop()
	})
}

func TestDegradedSeconds(t *testing.T) {
	inBubble(t, func(b *bundle, store *faulty) {
		const routes, budget, registry = `berth_degraded_seconds_total{why="store_unavailable"}`,
			`berth_degraded_seconds_total{why="miss_budget"}`, `berth_degraded_seconds_total{why="store_away"}`
		b.worker("i1")
		time.Sleep(time.Minute)
		b.route("fine").want(200)
		if b.metric(routes) != 0 || b.metric(budget) != 0 || b.metric(registry) != 0 {
			t.Fatal("degraded without a cause")
		}
		store.fail(away)
		time.Sleep(10*time.Second + 250*time.Millisecond)
		b.near(registry, 10)
		if n := b.metric(routes); n != 0 {
			t.Errorf("no route was asked for, and %v s of them degraded", n)
		}
		for range 20 { // 5 s of routes, 4 a second
			b.route("new").want(200)
			time.Sleep(250 * time.Millisecond)
		}
		b.near(routes, 5)
		time.Sleep(10 * time.Second)
		b.near(routes, 5.75) // the last one's second
		b.near(registry, 25)
		store.fail(nil)
		time.Sleep(time.Minute)
		b.near(routes, 5.75)
		b.near(registry, 25.5)
		if n := b.metric(budget); n != 0 {
			t.Errorf("the budget was used up for %v s", n)
		}
	}, func(o *services.Options) { o.StoreTimeout = 100 * time.Millisecond })
}

// near fails unless a series is within half of one of the value.
func (b *bundle) near(series string, want float64) {
	b.t.Helper()
	if got := b.metric(series); got < want-0.5 || got > want+0.5 {
		b.t.Errorf("%s is %v, want about %v", series, got, want)
	}
}

// A second in which many routes were degraded is one second.
func TestDegradedSecondsAreNotCountedTwice(t *testing.T) {
	inBubble(t, func(b *bundle, _ *faulty) {
		b.worker("i1")
		time.Sleep(time.Minute)
		for _, id := range []string{"fine", "late-1", "late-2", "late-3", "late-4"} {
			b.route(id).want(200)
		}
		time.Sleep(time.Minute)
		if n := b.metric(`berth_route_degraded_total{why="miss_budget"}`); n != 4 {
			t.Fatalf("%v routes were beyond the budget, want 4", n)
		}
		b.near(`berth_degraded_seconds_total{why="miss_budget"}`, 1)
	}, func(o *services.Options) { o.MissRate = 1 })
}
