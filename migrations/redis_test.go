package migrations

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"berth/integration/redistest"
	"berth/statestore"
	"berth/statestore/redisstore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// On Redis, in real time: the process that holds a drain is dead half way, and the
// next one ends it, counting as the sessions tell.
func TestDrainOnRedis(t *testing.T) {
	t.Parallel()
	const sessions = 300
	store, err := redisstore.Open(t.Context(), redistest.Standalone(t).URL, redisstore.Options{Partitions: 16})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(ctx, t, store)
	a := w.register("a").polling(time.Millisecond)
	w.register("b").polling(time.Millisecond)
	w.register("c").polling(time.Millisecond)
	a.creates(0, sessions)
	f := newFaulty(store)
	var moves atomic.Int64
	dead := make(chan struct{})
	f.after = func(call string, err error) error {
		if call == "Move" && moves.Add(1) == sessions/3 {
			f.die()
			close(dead)
		}
		return err
	}
	short := func(o *Options) { o.Lease, o.LongestHint = 3*time.Second, 100*time.Millisecond }
	first := w.starts("first", f, short)
	job := first.drains(w, DrainSpec{
		Instances: []string{"a"}, InFlightGraceMS: ms(3 * time.Second), Pace: Pace{SessionsPerS: 400},
	})
	<-dead
	first.stops()
	second := w.starts("second", store, short)
	got := w.ends(job.ID, statestore.JobSucceeded)
	w.agrees(got, "a", sessions)
	// A machine that stands still for longer than the lease makes a holder take it anew.
	if j, _ := w.job(job.ID); j.Attempts < 2 || got.Moved != sessions || got.Prewarmed == 0 || got.Released == 0 {
		t.Errorf("%d attempts, progress %+v", j.Attempts, got)
	}
	if in := w.instance("a"); in.Lifecycle != statestore.Drained {
		t.Errorf("the instance is %s", in.Lifecycle)
	}
	second.stops()
	cancel()
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// Cold sessions leave as fast as commits go: each is on record before it is sent.
func BenchmarkDrainOnRedis(b *testing.B) {
	const sessions = 10_000
	store, err := redisstore.Open(b.Context(), redistest.Standalone(b).URL, redisstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	w := newWorld(ctx, b, store)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		w.register(id)
	}
	a := &worker{w: w, by: statestore.Owner{Instance: "a", Incarnation: "boot-a"}}
	for i := 0; i < sessions; i += 500 {
		a.creates(i, i+500)
	}
	p := w.starts("one", store, func(o *Options) { o.LongestHint = time.Millisecond })
	for b.Loop() {
		began := time.Now()
		job := p.drains(w, DrainSpec{
			Instances: []string{"a"}, InFlightGraceMS: ms(0), Pace: Pace{Concurrency: 256, PerTarget: 64},
		})
		w.eventually("all have moved", func() bool { _, p := w.job(job.ID); return p.Total > 0 && p.done() == p.Total })
		b.ReportMetric(sessions/time.Since(began).Seconds(), "sessions/s")
	}
	p.stops()
	cancel()
	if err := store.Close(); err != nil {
		b.Error(err)
	}
}
