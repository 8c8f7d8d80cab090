package migrations

import (
	"testing"
	"time"

	"berth/statestore"
)

// A drain of workers that cooperate: idle sessions move cold, those that were
// active lately are prewarmed on their targets, and the source is told.
func TestDrainOfCooperativeWorkers(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.register("a"), w.register("b"), w.register("c")
		a.creates(0, 150)
		w.pass(15 * time.Minute)
		a.creates(150, 200)
		w.pass(time.Minute)
		a.beating().polling(0)
		b.beating().polling(50 * time.Millisecond)
		c.beating().polling(50 * time.Millisecond)
		job := w.starts("one", w.store).drains(w, DrainSpec{Instances: []string{"a"}})
		got := w.ends(job.ID, statestore.JobSucceeded)
		if got.Total != 200 || got.Moved != 200 || got.Prewarmed != 50 || got.Queued != 0 || got.Tokens != 200*100 {
			t.Errorf("progress %+v", got)
		}
		if n := b.warmed.Load() + c.warmed.Load(); n != 50 || got.PrewarmedTokens != 50*100 {
			t.Errorf("prewarmed %d sessions, and %d tokens", n, got.PrewarmedTokens)
		}
		if n := a.told.Load(); n != 50 {
			t.Errorf("the source was told of %d sessions", n)
		}
		w.agrees(got, "a", 200)
		if in := w.instance("a"); in.Lifecycle != statestore.Drained || in.Job != job.ID {
			t.Errorf("the instance is %s", in.Lifecycle)
		}
	})
}

// Workers that pull no tasks and send no heartbeats: sessions move cold once they
// are quiet, and a late save of the source still lands.
func TestDrainOfPassiveWorkers(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a")
		w.register("b")
		a.creates(0, 40)
		w.pass(time.Minute)
		a.creates(40, 60)
		late := w.session(0).Floor()
		began := time.Now()
		job := w.starts("one", w.store).drains(w, DrainSpec{Instances: []string{"a"}})
		w.eventually("idle sessions move", func() bool { return w.session(0).Owner.Instance == "b" })
		if quiet := w.session(50); quiet.Owner.Instance != "a" || time.Since(began) > DefaultInFlightGrace {
			t.Errorf("a session written lately moved after %v to %v", time.Since(began), quiet.Owner)
		}
		w.ok(a.appendsAt(0, late))
		got := w.ends(job.ID, statestore.JobSucceeded)
		if v := w.session(0); v.Turns != 2 || v.Owner.Instance != "b" {
			t.Errorf("after the late save: %d turns, owner %v", v.Turns, v.Owner)
		}
		if got.Prewarmed != 0 {
			t.Errorf("progress %+v", got)
		}
		w.agrees(got, "a", 60)
		// Quiet, prewarms in vain, hints over, and the grace for what nobody tells.
		if took := time.Since(began); took < 72*time.Second || took > 90*time.Second {
			t.Errorf("the drain took %v", took)
		}
	})
}

// agrees holds the progress to what the sessions themselves say.
func (w *world) agrees(p Progress, source string, n int) {
	w.Helper()
	if moved, bound := w.truth(source, n); moved != p.Moved || moved+bound+sum(p.Skipped) != p.Total {
		w.Errorf("in truth %d moved and %d are bound; the job says %+v", moved, bound, p)
	}
}

// R27: from the answer on, the instance gets no session. Requests that run there
// end there; drained is said when none runs, and no hint can bring one.
func TestDrainedIsStrict(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a")
		w.register("b").beating()
		a.creates(0, 20)
		w.pass(time.Minute)
		a.running.Store(1)
		a.beating()
		w.starts("one", w.store)
		job := w.starts("two", w.store).drains(w, DrainSpec{Instances: []string{"a"}})
		answered := time.Now()
		w.ok(a.appends(500)) // by a hint from before
		if v := w.session(500); !v.Exists || !v.Owner.IsZero() {
			t.Errorf("a new session is bound to %v", v.Owner)
		}
		w.eventually("all have moved", func() bool { _, bound := w.truth("a", 20); return bound == 0 })
		w.pass(2 * time.Minute)
		if in := w.instance("a"); in.Lifecycle != statestore.Draining {
			t.Fatalf("with a request running it is %s", in.Lifecycle)
		}
		if _, p := w.job(job.ID); p.Phase != PhaseSettling || p.Instances["a"].Because != BecauseInFlight {
			t.Errorf("progress %+v", p)
		}
		a.running.Store(0)
		w.ends(job.ID, statestore.JobSucceeded)
		if took := time.Since(answered); took > 2*time.Minute+20*time.Second {
			t.Errorf("at rest, but drained only after %v", took)
		}
		for i := range 20 {
			for _, c := range w.session(i).Changes[1:] {
				if c.Instance == "a" {
					t.Errorf("session %d came back", i)
				}
			}
		}
		w.pass(10 * time.Second) // T32: heartbeats do not bring it back
		if in := w.instance("a"); in.Lifecycle != statestore.Drained {
			t.Errorf("after more heartbeats it is %s", in.Lifecycle)
		}
	})
}

// Drained waits for the longest hint, also where nothing else has to be waited for.
func TestDrainedWaitsForHints(t *testing.T) {
	inWorld(t, func(w *world) {
		w.register("a").beating()
		w.register("b")
		began := time.Now()
		job := w.starts("one", w.store, func(o *Options) { o.LongestHint = 40 * time.Second }).
			drains(w, DrainSpec{Instances: []string{"a"}})
		took := w.eventually("drained", func() bool { return w.instance("a").Lifecycle == statestore.Drained })
		if took < 40*time.Second || time.Since(began) > 50*time.Second {
			t.Errorf("drained after %v", took)
		}
		w.ends(job.ID, statestore.JobSucceeded)
	})
}

// T25: a session that never falls quiet is left at the deadline, with its reason.
func TestDeadlineLeavesWhatIsInFlight(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a")
		w.register("b")
		a.creates(0, 30)
		w.pass(time.Minute)
		go func() {
			for sleep(w.ctx, 5*time.Second) == nil && a.appends(7) == nil {
				continue // until it has moved, at last
			}
		}()
		w.pass(10 * time.Second)
		began := time.Now()
		p := w.starts("one", w.store)
		job := p.drains(w, DrainSpec{Instances: []string{"a"}, DeadlineMS: 120_000})
		got := w.ends(job.ID, statestore.JobPartial)
		if took := time.Since(began); took < 119*time.Second || took > 125*time.Second {
			t.Errorf("it ended after %v", took)
		}
		if len(got.Left) != 1 || got.Left[0] != (Leftover{Instance: "a", Tenant: "t", Session: "s007", Reason: BlockedInFlight}) {
			t.Errorf("left: %+v", got.Left)
		}
		if got.Moved != 29 || got.Blocked[BlockedInFlight] != 1 || w.instance("a").Lifecycle != statestore.Draining {
			t.Errorf("progress %+v", got)
		}
		w.agrees(got, "a", 30)
		// The next drain takes over where this one gave up.
		again := p.drains(w, DrainSpec{Instances: []string{"a"}, InFlightGraceMS: ms(2 * time.Second)})
		if rest := w.ends(again.ID, statestore.JobSucceeded); rest.Total != 1 || rest.Moved != 1 {
			t.Errorf("the next drain: %+v", rest)
		}
	})
}

// A source that is gone, or down, has nobody to be waited for.
func TestSourcesThatAreNoMore(t *testing.T) {
	for _, c := range []struct {
		name  string
		leave func(w *world, a *worker)
		state string
	}{
		{"deregistered", func(w *world, a *worker) { w.ok(w.store.Deregister(w.ctx, a.by)) }, "gone"},
		{"booted again", func(w *world, _ *worker) {
			next := w.register("a", func(s *statestore.InstanceSpec) { s.Incarnation = "second" })
			w.ok(next.appends(100))
		}, "gone"},
		{"down", func(w *world, a *worker) {
			lease, err := w.store.AcquireLease(w.ctx, "health", "x", time.Hour)
			w.ok(err)
			w.ok(w.store.SetVerdicts(w.ctx, lease, map[statestore.Owner]statestore.Verdict{a.by: {Health: statestore.Down}}))
		}, "drained"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := w.register("a").beating()
				w.register("b")
				w.pass(3 * time.Second)
				a.silent.Store(true)
				a.creates(0, 30)
				// A grace longer than the deadline: only who need not be waited for moves.
				job := w.starts("one", w.store).drains(w, DrainSpec{
					Instances: []string{"a"}, DeadlineMS: (5 * time.Minute).Milliseconds(), InFlightGraceMS: ms(2 * time.Minute),
				})
				w.pass(5 * time.Second)
				if moved, _ := w.truth("a", 30); moved != 0 {
					t.Errorf("%d were moved in flight", moved)
				}
				c.leave(w, a)
				w.eventually("all have moved", func() bool { moved, _ := w.truth("a", 30); return moved == 30 })
				if v := w.session(0); v.Idle() > time.Minute {
					t.Errorf("they moved after %v", v.Idle())
				}
				got := w.ends(job.ID, statestore.JobSucceeded)
				if got.Instances["a"].State != c.state || got.Moved != 30 || got.Total != 30 {
					t.Errorf("progress %+v", got)
				}
				if v := w.session(100); v.Exists && v.Owner.Incarnation != "second" {
					t.Errorf("the session of the second boot belongs to %v", v.Owner)
				}
			})
		})
	}
}

// What ended or left while the drain waited for it is skipped under its reason.
func TestSessionsThatLeaveByThemselves(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.register("a"), w.register("b")
		a.creates(0, 10)
		w.pass(time.Hour)
		a.creates(10, 20)
		job := w.starts("one", w.store).drains(w, DrainSpec{Instances: []string{"a"}})
		w.pass(5 * time.Second)
		_, err := w.store.Delete(w.ctx, statestore.Delete{Key: keyOf(10), Lifetimes: w.lives})
		w.ok(err)
		v := w.session(11)
		_, err = w.store.Claim(w.ctx, statestore.Claim{
			Key: keyOf(11), By: b.by, Handle: &statestore.Presented{Floor: v.Floor(), Named: true}, Lifetimes: w.lives,
		})
		w.ok(err)
		_, err = w.store.Finish(w.ctx, statestore.Finish{
			Key: keyOf(12), By: a.by, Handle: statestore.Presented{Floor: w.session(12).Floor()}, Lifetimes: w.lives,
		})
		w.ok(err)
		got := w.ends(job.ID, statestore.JobSucceeded)
		want := map[string]int{SkippedLapsed: 10, SkippedDeleted: 1, SkippedAlreadyMoved: 2}
		for reason, n := range want {
			if got.Skipped[reason] != n {
				t.Errorf("skipped %v, want %v", got.Skipped, want)
			}
		}
		if got.Total != 20 || got.Moved != 7 {
			t.Errorf("progress %+v", got)
		}
		w.agrees(got, "a", 20)
	})
}

// Two drains at once name no target among each other's sources.
func TestDrainsKeepOffEachOthersSources(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.register("a"), w.register("b")
		w.register("c")
		a.creates(0, 30)
		b.creates(30, 60)
		w.pass(time.Minute)
		one, two := w.starts("one", w.store), w.starts("two", w.store)
		slow := DrainSpec{Instances: []string{"a"}, Pace: Pace{SessionsPerS: 5}}
		first := one.drains(w, slow)
		second := two.drains(w, DrainSpec{Instances: []string{"b"}})
		p, q := w.ends(first.ID, statestore.JobSucceeded), w.ends(second.ID, statestore.JobSucceeded)
		if q.Targets["c"] != 30 || p.Moved+q.Moved != 60 || p.Targets["a"]+q.Targets["b"]+q.Targets["a"] != 0 {
			t.Errorf("targets %v and %v", p.Targets, q.Targets)
		}
		for i := range 60 {
			if v := w.session(i); v.Owner.Instance != "c" {
				t.Errorf("session %d belongs to %v", i, v.Owner)
			}
		}
	})
}

// Of two jobs that share a source without having seen each other, the later one
// fails and leaves the fence of the other alone.
func TestRivalJobFails(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b")
		a.creates(0, 20)
		w.pass(time.Minute)
		p := w.starts("one", w.store)
		job := p.drains(w, DrainSpec{Instances: []string{"a"}, Pace: Pace{SessionsPerS: 2}})
		stored, _ := w.job(job.ID)
		rival, _, err := w.store.CreateJob(w.ctx, statestore.Job{
			ID: "rival", Kind: KindDrain, Pool: poolName, Spec: stored.Spec,
			Sources: []statestore.Owner{a.by, {Instance: "x", Incarnation: "gone"}},
		}, time.Hour)
		w.ok(err)
		if got := w.ends(rival.ID, statestore.JobFailed); got.Reason == "" {
			t.Errorf("progress %+v", got)
		}
		got := w.ends(job.ID, statestore.JobSucceeded)
		w.agrees(got, "a", 20)
	})
}
