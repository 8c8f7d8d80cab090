package migrations

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"berth/statestore"
)

// killAt lets the process die at the n-th of the calls that are asked for, before
// it reaches the store or right after it took effect there.
func (w *world) killAt(f *faulty, calls string, n int64, after bool) *process {
	p := w.starts("doomed", f)
	var count atomic.Int64
	fatal := func(call string) bool { return (calls == "" || call == calls) && count.Add(1) == n }
	dies := func() error { f.die(); p.kill(); return errDead }
	if after {
		f.after = func(call string, err error) error {
			if fatal(call) {
				return dies()
			}
			return err
		}
	} else {
		f.before = func(call string) error {
			if fatal(call) {
				return dies()
			}
			return nil
		}
	}
	return p
}

// drainedBy creates the drain in the store, waits until the doomed process is
// dead, lets another finish the job, and holds the end to the truth.
func (w *world) drainedBy(doomed *process, n int, spec DrainSpec) Progress {
	w.Helper()
	job, _, err := New(w.store, Options{}).CreateDrain(w.ctx, spec)
	w.ok(err)
	<-doomed.done
	before, _ := w.job(job.ID)
	if before.State.Ended() {
		w.Fatalf("it ended %s before the crash", before.State)
	}
	died := time.Now()
	w.starts("heir", w.store)
	w.eventually("adopted", func() bool { j, _ := w.job(job.ID); return j.Holder == "heir" })
	if took := time.Since(died); took > 12*time.Second {
		w.Errorf("adopted after %v", took)
	}
	got := w.ends(job.ID, statestore.JobSucceeded)
	w.agrees(got, "a", n)
	if after, _ := w.job(job.ID); after.Attempts != 1+min(before.Attempts, 1) {
		w.Errorf("%d attempts", after.Attempts)
	}
	if got.Moved != n || got.Total != n {
		w.Errorf("progress %+v", got)
	}
	return got
}

// T31: the process dies at any call it makes, before or after the call took
// effect; another ends the job within a lease, and counts as the sessions tell.
func TestResumeAfterDeathAtAnyStep(t *testing.T) {
	const trials, sessions = 20, 16
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
	for range trials {
		// A drain of 16 sessions makes about 60 calls that write.
		n, after := 1+rng.Int64N(45), rng.IntN(2) == 0
		t.Run(fmt.Sprintf("call %d after %v", n, after), func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := w.register("a").beating()
				w.register("b").polling(10 * time.Millisecond)
				w.register("c")
				a.creates(0, sessions)
				w.pass(time.Minute)
				doomed := w.killAt(newFaulty(w.store), "", n, after)
				w.drainedBy(doomed, sessions, DrainSpec{Instances: []string{"a"}, Pace: Pace{Concurrency: 3}})
			})
		})
	}
}

// T29: the process dies right after a commit took effect. The next one sees from
// the session that it moved, and counts it once.
func TestDeathRightAfterTheCommit(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b")
		a.creates(0, 10)
		w.pass(15 * time.Minute)
		doomed := w.killAt(newFaulty(w.store), "Move", 4, true)
		got := w.drainedBy(doomed, 10, DrainSpec{Instances: []string{"a"}, Pace: Pace{Concurrency: 1}})
		if got.Targets["b"] != 10 || got.Tokens != 1000 {
			t.Errorf("progress %+v", got)
		}
	})
}

// T15: a process is paused in the middle of a commit until its lease is over, and
// wakes up when another has taken the job. Its commit is refused, and it lets go.
func TestPausedHolderCannotCommit(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		b := w.register("b")
		a.creates(0, 10)
		w.pass(15 * time.Minute)
		f := newFaulty(w.store)
		var moves atomic.Int64
		frozen := make(chan func(), 1)
		var woken atomic.Pointer[error]
		f.before = func(call string) error {
			if call == "Move" && moves.Add(1) == 3 {
				frozen <- f.freeze()
			}
			return nil
		}
		f.after = func(call string, err error) error {
			if call == "Move" && moves.Load() >= 3 {
				woken.CompareAndSwap(nil, &err)
			}
			return err
		}
		first := w.starts("first", f)
		job, _, err := New(w.store, Options{}).CreateDrain(w.ctx, DrainSpec{Instances: []string{"a"}, Pace: Pace{Concurrency: 1}})
		w.ok(err)
		thaw := <-frozen
		// The next holder begins with a pause: nobody touches what the sleeper was
		// about to move.
		second := w.starts("second", w.store)
		_, err = second.Pause(w.ctx, job.ID)
		w.ok(err)
		w.eventually("the second has paused it", func() bool {
			j, _ := w.job(job.ID)
			return j.Holder == "second" && j.State == statestore.JobPaused
		})
		thaw()
		w.eventually("the first lets go", func() bool { return !first.Runner.holds(job.ID) })
		if moved, bound := w.truth("a", 10); moved != 2 || bound != 8 {
			t.Errorf("after it woke %d have moved and %d are bound", moved, bound)
		}
		var held *statestore.LeaseHeldError
		if err := woken.Load(); !errors.As(*err, &held) || held.Name != job.ID {
			t.Errorf("its commit: %v", *err)
		}
		_, err = second.Resume(w.ctx, job.ID)
		w.ok(err)
		got := w.ends(job.ID, statestore.JobSucceeded)
		w.agrees(got, "a", 10)
		if got.Moved != 10 || got.Targets[b.by.Instance] != 10 {
			t.Errorf("progress %+v", got)
		}
	})
}

// freezeAt lets the process stop, as by SIGSTOP, at the n-th of its calls that write,
// before it reaches the store.
func (w *world) freezeAt(f *faulty, n int64) (p *process, frozen <-chan func()) {
	ice := make(chan func(), 1)
	var count atomic.Int64
	f.before = func(string) error {
		if count.Add(1) == n {
			ice <- f.freeze()
		}
		return nil
	}
	return w.starts("sleeper", f), ice
}

// T15, T32: the process is paused at any call until another has ended the job, by its
// end or by a cancel, and wakes up. Nothing is committed any more, and the counters
// are what the sessions say.
func TestNothingIsCommittedAfterTheEnd(t *testing.T) {
	const trials, sessions = 20, 16
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // a test
	for range trials {
		n, cancelled := 1+rng.Int64N(40), rng.IntN(2) == 0
		t.Run(fmt.Sprintf("call %d cancelled %v", n, cancelled), func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := w.register("a").beating()
				w.register("b").polling(10 * time.Millisecond)
				w.register("c")
				a.creates(0, sessions)
				w.pass(time.Minute)
				sleeper, frozen := w.freezeAt(newFaulty(w.store), n)
				job, _, err := New(w.store, Options{}).CreateDrain(w.ctx, DrainSpec{Instances: []string{"a"}, Pace: Pace{Concurrency: 3}})
				w.ok(err)
				thaw := <-frozen
				heir := w.starts("heir", w.store)
				want := statestore.JobSucceeded
				if cancelled {
					want = statestore.JobCancelled
					_, err = heir.Cancel(w.ctx, job.ID)
					w.ok(err)
				}
				w.ends(job.ID, want)
				moved, _ := w.truth("a", sessions)
				thaw()
				w.eventually("the sleeper lets go", func() bool { return !sleeper.Runner.holds(job.ID) })
				w.pass(time.Minute)
				again, bound := w.truth("a", sessions)
				state, p := w.job(job.ID)
				if again != moved || state.State != want || p.Moved != moved || cancelled && bound+moved != sessions || !cancelled && bound > 0 {
					t.Errorf("at the end %d had moved, now %d have and %d are bound; %s says %+v", moved, again, bound, state.State, p)
				}
				if in := w.instance("a"); cancelled != (in.Lifecycle == statestore.Ready) {
					t.Errorf("the instance is %s", in.Lifecycle)
				}
			})
		})
	}
}

// A process that ends in order lets go of its jobs, so that nobody waits for a
// lease.
func TestShutdownHandsTheJobOver(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b")
		a.creates(0, 40)
		w.pass(15 * time.Minute)
		first := w.starts("first", w.store)
		job := first.drains(w, DrainSpec{Instances: []string{"a"}, Pace: Pace{SessionsPerS: 10}})
		w.pass(2 * time.Second)
		first.stops()
		_, said := w.job(job.ID)
		w.agrees(said, "a", 40)
		w.starts("second", w.store)
		if took := w.eventually("taken over", func() bool { j, _ := w.job(job.ID); return j.Attempts == 2 }); took > 100*time.Millisecond {
			t.Errorf("taken over after %v", took)
		}
		got := w.ends(job.ID, statestore.JobSucceeded)
		w.agrees(got, "a", 40)
	})
}

// Commits whose answers are lost, and commits that are lost with their answers,
// end up moved and counted once.
func TestUnknownOutcomes(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b")
		a.creates(0, 30)
		w.pass(15 * time.Minute)
		f := newFaulty(w.store)
		unknown := &statestore.OutcomeUnknownError{Err: errDead}
		var n atomic.Int64
		f.before = func(call string) error {
			if call == "Move" && n.Add(1)%3 == 1 {
				return unknown
			}
			return nil
		}
		f.after = func(call string, err error) error {
			if call == "Move" && n.Load()%3 == 2 {
				return unknown
			}
			return err
		}
		got := w.ends(w.starts("one", f).drains(w, DrainSpec{Instances: []string{"a"}}).ID, statestore.JobSucceeded)
		w.agrees(got, "a", 30)
		if got.Moved != 30 || got.Targets["b"] != 30 {
			t.Errorf("progress %+v", got)
		}
	})
}

// An outage of the store holds a job up and does not end it.
func TestOutageHoldsTheJobUp(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b")
		a.creates(0, 30)
		w.pass(15 * time.Minute)
		f := newFaulty(w.store)
		var away atomic.Bool
		f.before = func(string) error {
			if away.Load() {
				return statestore.ErrUnavailable
			}
			return nil
		}
		job := w.starts("one", f).drains(w, DrainSpec{Instances: []string{"a"}, Pace: Pace{SessionsPerS: 10}})
		w.pass(time.Second)
		away.Store(true)
		w.pass(time.Minute)
		if j, _ := w.job(job.ID); j.State.Ended() {
			t.Fatalf("it ended %s", j.State)
		}
		away.Store(false)
		got := w.ends(job.ID, statestore.JobSucceeded)
		w.agrees(got, "a", 30)
	})
}

// A store that refuses every third call at random only costs time, whichever call
// it is.
func TestFlakyStore(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b").polling(time.Millisecond)
		a.creates(0, 30)
		w.pass(time.Minute)
		f := newFaulty(w.store)
		var calls atomic.Uint64
		rng := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // a test
		refuses := make([]bool, 4096)
		for i := range refuses {
			refuses[i] = rng.IntN(3) == 0
		}
		f.before = func(string) error {
			if refuses[calls.Add(1)%uint64(len(refuses))] {
				return statestore.ErrUnavailable
			}
			return nil
		}
		got := w.ends(w.starts("one", f).drains(w, DrainSpec{Instances: []string{"a"}}).ID, statestore.JobSucceeded)
		w.agrees(got, "a", 30)
		if got.Moved != 30 {
			t.Errorf("progress %+v", got)
		}
	})
}

// Drained is not said before every move has the durability that the pool asks
// for: not while the store cannot confirm it, and not by who takes the job over.
func TestDrainedWaitsForDurability(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b")
		a.creates(0, 10)
		w.pass(15 * time.Minute)
		f := newFaulty(w.store)
		var lagging atomic.Bool
		lagging.Store(true)
		f.after = func(call string, err error) error {
			if (call == "Move" || call == "Claim") && err == nil && lagging.Load() {
				return &statestore.NotDurableError{Reached: statestore.Durability{Level: statestore.LevelFsynced}}
			}
			return err
		}
		strict := func(o *Options) {
			o.Require = func(string) statestore.Requirement {
				return statestore.Requirement{Level: statestore.LevelReplicated, Wait: time.Second}
			}
		}
		first := w.starts("first", f, strict)
		job := first.drains(w, DrainSpec{Instances: []string{"a"}})
		w.pass(time.Minute)
		first.stops()
		w.starts("second", f, strict)
		w.pass(time.Minute)
		_, p := w.job(job.ID)
		if p.Moved != 10 || p.Instances["a"].Because != BlockedNotDurable || w.instance("a").Lifecycle != statestore.Draining {
			t.Errorf("not durable: %+v", p)
		}
		lagging.Store(false)
		w.agrees(w.ends(job.ID, statestore.JobSucceeded), "a", 10)
	})
}
