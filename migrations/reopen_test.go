package migrations

import (
	"errors"
	"testing"
	"time"

	"berth/statestore"
)

// An instance that a drain gave up is opened again: sessions may be bound to it, as
// to one that was never drained. While a drain is under way it stays closed.
func TestReopenAfterADrainGaveUp(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b")
		a.creates(0, 10)
		p := w.starts("one", w.store)
		job := p.drains(w, DrainSpec{Instances: []string{"a"}, Mode: ModeLinger, AtDeadline: DeadlineLeave, DeadlineMS: 60_000})
		closed := w.instance("a")
		_, err := p.Reopen(w.ctx, &closed)
		var busy *DrainedError
		if !errors.As(err, &busy) || busy.Job != job.ID || busy.Instance != "a" {
			t.Errorf("opened under way: %v", err)
		}
		w.ends(job.ID, statestore.JobPartial)
		w.ok(a.appends(100))
		if v := w.session(100); !v.Owner.IsZero() {
			t.Fatalf("a session is bound to %v after the drain gave up", v.Owner)
		}
		closed = w.instance("a")
		in, err := p.Reopen(w.ctx, &closed)
		w.ok(err)
		if in.Lifecycle != statestore.Ready || in.Job != "" {
			t.Errorf("opened, it is %s of job %q", in.Lifecycle, in.Job)
		}
		w.ok(a.appends(101))
		if v := w.session(101); v.Owner != a.by {
			t.Errorf("a session is bound to %v after it was opened", v.Owner)
		}
	})
}

// A job that nobody knows any more keeps nothing closed, and what was warming before
// the drain is not called ready.
func TestReopenWithoutItsJobAndWhileWarming(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b")
		p := w.starts("one", w.store, func(o *Options) { o.Keep = time.Nanosecond })
		_, err := w.store.SetLifecycle(w.ctx, a.by, statestore.LifecycleChange{To: statestore.Warming})
		w.ok(err)
		reopens := func(want statestore.Lifecycle, forget bool) {
			t.Helper()
			job := p.drains(w, DrainSpec{Instances: []string{"a"}, DeadlineMS: 1000})
			w.ends(job.ID, statestore.JobPartial)
			if forget {
				w.pass(time.Second)
				_, err := w.store.PurgeJobs(w.ctx, time.Millisecond)
				w.ok(err)
			}
			closed := w.instance("a")
			in, err := p.Reopen(w.ctx, &closed)
			w.ok(err)
			if in.Lifecycle != want {
				t.Errorf("opened, it is %s, want %s", in.Lifecycle, want)
			}
		}
		reopens(statestore.Warming, false)
		reopens(statestore.Ready, true)
	})
}

// One of two instances is drained and the other is not yet: the drain keeps both. When
// it has nothing left to do, opening one waits for the end.
func TestReopenWaitsForTheEndOfADrain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.register("a").beating()
		b := w.register("b").beating()
		w.register("c")
		b.running.Store(1)
		w.pass(5 * time.Second)
		p := w.starts("one", w.store)
		job := p.drains(w, DrainSpec{Instances: []string{"a", "b"}})
		drained := func(id string) func() bool {
			return func() bool { return w.instance(id).Lifecycle == statestore.Drained }
		}
		w.eventually("a is drained", drained("a"))
		closed := w.instance("a")
		_, err := p.Reopen(w.ctx, &closed)
		var busy *DrainedError
		if !errors.As(err, &busy) || busy.Job != job.ID {
			t.Errorf("opened under way: %v", err)
		}
		b.running.Store(0)
		w.eventually("b is drained", drained("b"))
		in, err := p.Reopen(w.ctx, &closed)
		w.ok(err)
		if in.Lifecycle != statestore.Ready {
			t.Errorf("opened, it is %s", in.Lifecycle)
		}
		w.ends(job.ID, statestore.JobSucceeded)
	})
}

// A drain closes again what somebody opened although it was under way, and moves what
// was bound there meanwhile.
func TestADrainKeepsItsInstancesClosed(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b")
		a.running.Store(1)
		w.pass(5 * time.Second)
		job := w.starts("one", w.store).drains(w, DrainSpec{Instances: []string{"a"}, InFlightGraceMS: ms(0)})
		w.pass(5 * time.Second)
		w.ok(w.store.Fence(w.ctx, statestore.Fence{Pool: poolName, Drop: []statestore.Owner{a.by}}))
		_, err := w.store.SetLifecycle(w.ctx, a.by, statestore.LifecycleChange{To: statestore.Ready})
		w.ok(err)
		w.ok(a.appends(1))
		if v := w.session(1); v.Owner != a.by {
			t.Fatalf("the session is bound to %v", v.Owner)
		}
		w.eventually("it is closed again", func() bool { return w.instance("a").Lifecycle == statestore.Draining })
		a.running.Store(0)
		got := w.ends(job.ID, statestore.JobSucceeded)
		if v := w.session(1); v.Owner.Instance != "b" || got.Moved != 1 || w.instance("a").Lifecycle != statestore.Drained {
			t.Errorf("the session is bound to %v; progress %+v", v.Owner, got)
		}
	})
}
