package services_test

import (
	"context"
	"testing"
	"time"

	"berth/statestore"
)

// Sessions of instances are shown as they were at most 30 s ago, or not at all.
func TestSessionsOfInstancesAreAtMostHalfAMinuteOld(t *testing.T) {
	inBubble(t, func(b *bundle, store *faulty) {
		w1, w2 := b.worker("i1"), b.worker("i2")
		owner, other := b.open("s", w1, w2)
		series := func(w *worker) string { return `berth_instance_sessions{instance="` + w.id + `",pool="default"}` }
		time.Sleep(3 * time.Second)
		if n, other := b.metric(series(owner)), b.metric(series(other)); n != 1 || other != 0 {
			t.Fatalf("%v and %v sessions, want 1 and 0", n, other)
		}
		for _, id := range []string{"s2", "s3", "s4"} {
			b.open(id, w1, w2)
		}
		time.Sleep(30 * time.Second)
		if n := b.metric(series(owner)) + b.metric(series(other)); n != 4 {
			t.Errorf("%v sessions after half a minute, want 4", n)
		}
		store.fail(away)
		time.Sleep(time.Minute)
		if n, shown := b.hasMetric(series(owner)); shown {
			t.Errorf("without the store %v sessions are shown", n)
		}
		store.fail(nil)
		time.Sleep(30 * time.Second)
		if n := b.metric(series(owner)) + b.metric(series(other)); n != 4 {
			t.Errorf("%v sessions when the store is back, want 4", n)
		}
	})
}

// Who does not hold the health lease counts nothing: partitions are read once, however
// many processes share the store.
func TestOnlyTheHealthLeaseHolderCountsSessions(t *testing.T) {
	inBubble(t, func(b *bundle, store *faulty) {
		b.worker("i1")
		time.Sleep(5 * time.Second)
		second := start(b.t, store)
		time.Sleep(time.Minute)
		const series = `berth_instance_sessions{instance="i1",pool="default"}`
		if _, first := b.hasMetric(series); !first {
			t.Error("the holder shows nothing")
		}
		if _, other := second.hasMetric(series); other {
			t.Error("both count")
		}
		b.stop()
		time.Sleep(15 * time.Second)
		if _, other := second.hasMetric(series); !other {
			t.Error("the next holder shows nothing")
		}
		second.stop()
	})
}

func (f *faulty) CountSessions(ctx context.Context) (map[statestore.InstanceName]int, error) {
	if err := f.before(ctx, "count"); err != nil {
		return nil, err
	}
	return f.Store.CountSessions(ctx)
}
