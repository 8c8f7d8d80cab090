package migrations

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"berth/statestore"
)

func (p *process) rebalances(w *world, spec RebalanceSpec) statestore.Job {
	w.Helper()
	job, existed, err := p.CreateRebalance(w.ctx, poolName, "t", spec)
	w.ok(err)
	if existed {
		w.Fatalf("job %s existed", job.ID)
	}
	return job
}

// hot is a pool of which one instance is over its bound: 30 requests run for 60
// active sessions there, two each on the others.
func (w *world) hot() (a, b, c *worker) {
	w.Helper()
	a, b, c = w.register("a").beating(), w.register("b").beating(), w.register("c").beating()
	for k, n := range map[*worker]int64{a: 30, b: 2, c: 2} {
		k.running.Store(n)
	}
	a.creates(0, 60)
	b.creates(100, 110)
	w.pass(2 * time.Minute)
	return a, b, c
}

// What is over its bound is relieved of as much as it takes, and no more, although
// its load shows that only later. Young bindings stay, and nobody else's sessions
// move.
func TestRebalanceRelievesAHotInstance(t *testing.T) {
	for name, spec := range map[string]RebalanceSpec{"pool": {}, "instance": {Instance: "a"}, "to one target": {Instance: "a", Target: "b"}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, _, _ := w.hot()
				a.creates(200, 210)
				job := w.starts("one", w.store).rebalances(w, spec)
				got := w.ends(job.ID, statestore.JobSucceeded)
				w.countsRight(got, "a", 60)
				// 30 requests of 70 sessions; the others have 2 each, so that 6 requests
				// are the most that one may take and 10 the most that it may keep.
				if got.Moved < 12 || got.Moved > 45 || got.Total != got.Moved {
					t.Errorf("progress %+v", got)
				}
				if spec.Target != "" && got.Targets["b"] != got.Moved || got.Targets["a"] != 0 {
					t.Errorf("targets %v", got.Targets)
				}
				for i := 200; i < 210; i++ {
					if w.session(i).Owner.Instance != "a" {
						t.Errorf("session %d is younger than min_stick and has moved", i)
					}
				}
				if moved, _ := w.truth("b", 110); moved != 0 {
					t.Errorf("%d sessions of others have moved", moved)
				}
			})
		})
	}
}

// countsRight holds the progress to the sessions' own word, of a source that may keep
// some.
func (w *world) countsRight(p Progress, source string, n int) {
	w.Helper()
	if moved, _ := w.truth(source, n); moved != p.Moved {
		w.Errorf("in truth %d moved; the job says %+v", moved, p)
	}
}

// Where nothing is over its bound, nothing moves.
func TestRebalanceOfABalancedPool(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _, _ := w.hot()
		a.running.Store(3)
		w.pass(5 * time.Second)
		p := w.starts("one", w.store)
		for _, spec := range []RebalanceSpec{{}, {Instance: "a"}} {
			if got := w.ends(p.rebalances(w, spec).ID, statestore.JobSucceeded); got.Total != 0 || got.Moved != 0 {
				t.Errorf("progress %+v", got)
			}
		}
	})
}

// Named sessions move wherever they are, each once; those that there is nothing to
// do for are skipped under their reasons.
func TestRebalanceOfNamedSessions(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.register("a").beating(), w.register("b").beating(), w.register("c").beating()
		a.creates(0, 5)
		b.creates(5, 8)
		c.creates(8, 9)
		w.pass(time.Minute)
		_, err := w.store.Delete(w.ctx, statestore.Delete{Key: keyOf(4), Lifetimes: w.lives})
		w.ok(err)
		spec := RebalanceSpec{Target: "c"}
		for i := range 10 {
			spec.Sessions = append(spec.Sessions, keyOf(i).ID)
		}
		got := w.ends(w.starts("one", w.store).rebalances(w, spec).ID, statestore.JobSucceeded)
		want := map[string]int{SkippedDeleted: 1, SkippedExpired: 1, SkippedAlreadyMoved: 1}
		if got.Total != 10 || got.Moved != 7 || got.Targets["c"] != 7 || fmt.Sprint(got.Skipped) != fmt.Sprint(want) {
			t.Errorf("progress %+v", got)
		}
		for i := range 9 {
			if v := w.session(i); v.Exists && (v.Owner != c.by || len(v.Changes) > 2) {
				t.Errorf("session %d: %+v", i, v.Changes)
			}
		}
	})
}

// A target that is at its bound gets nobody; what waits for it is named at the
// deadline. So is a session in flight that nobody lets go.
func TestRebalanceEndsAtItsDeadline(t *testing.T) {
	inWorld(t, func(w *world) {
		w.hot()
		p := w.starts("one", w.store)
		got := w.ends(p.rebalances(w, RebalanceSpec{
			Sessions: []string{"s100", "s101"}, Target: "a", DeadlineMS: 90_000,
		}).ID, statestore.JobPartial)
		if len(got.Left) != 2 || got.Left[0].Reason != BlockedNoTarget || got.Blocked[BlockedNoTarget] != 2 || got.Moved != 0 {
			t.Errorf("progress %+v", got)
		}
		go func() {
			for i := 0; sleep(w.ctx, 100*time.Millisecond) == nil; i++ {
				_ = w.appendsAs("a", i%60)
			}
		}()
		w.pass(10 * time.Second)
		got = w.ends(p.rebalances(w, RebalanceSpec{Instance: "a", DeadlineMS: 90_000}).ID, statestore.JobPartial)
		if got.Moved != 0 || got.Blocked[BlockedInFlight] == 0 || got.Blocked[BlockedInFlight] != got.Total {
			t.Errorf("progress %+v", got)
		}
	})
}

// appendsAs lets the boot that was registered first under the id write a turn.
func (w *world) appendsAs(id string, i int) error {
	k := &worker{w: w, by: statestore.Owner{Instance: id, Incarnation: "boot-" + id}}
	return k.appends(i)
}

// The same request again is the same job; another of the pool is refused while it
// lasts. So is a target that may not take sessions.
func TestSameRebalanceIsTheSameJob(t *testing.T) {
	inWorld(t, func(w *world) {
		_, b, _ := w.hot()
		w.register("elsewhere", func(s *statestore.InstanceSpec) { s.Pool = "q" })
		p := New(w.store, Options{Holder: "nobody runs"})
		create := func(spec RebalanceSpec) (string, error) {
			job, _, err := p.CreateRebalance(w.ctx, poolName, "t", spec)
			return job.ID, err
		}
		first, err := create(RebalanceSpec{Instance: "a"})
		w.ok(err)
		if again, err := create(RebalanceSpec{Instance: "a"}); err != nil || again != first {
			t.Errorf("again: %s, %v", again, err)
		}
		var busy *BusyError
		if _, err := create(RebalanceSpec{}); !errors.As(err, &busy) || busy.Job != first {
			t.Errorf("of the whole pool: %v", err)
		}
		if named, err := create(RebalanceSpec{Sessions: []string{"s000"}}); err != nil || named == first {
			t.Errorf("of a session: %s, %v", named, err)
		}
		_, err = w.store.SetLifecycle(w.ctx, b.by, statestore.LifecycleChange{To: statestore.Cordoned})
		w.ok(err)
		var none *NoTargetError
		if _, err := create(RebalanceSpec{Sessions: []string{"s000"}, Target: "b"}); !errors.As(err, &none) {
			t.Errorf("to a cordoned target: %v", err)
		}
		for name, c := range map[string]struct {
			spec RebalanceSpec
			want error
		}{
			"a stranger":          {RebalanceSpec{Instance: "z"}, statestore.ErrUnknownInstance},
			"of another pool":     {RebalanceSpec{Sessions: []string{"s000"}, Target: "elsewhere"}, statestore.ErrUnknownInstance},
			"both":                {RebalanceSpec{Instance: "a", Sessions: []string{"s000"}}, statestore.ErrInvalid},
			"to itself":           {RebalanceSpec{Instance: "a", Target: "a"}, statestore.ErrInvalid},
			"twice":               {RebalanceSpec{Sessions: []string{"s000", "s000"}}, statestore.ErrInvalid},
			"nameless":            {RebalanceSpec{Sessions: []string{""}}, statestore.ErrInvalid},
			"no time":             {RebalanceSpec{DeadlineMS: -1}, statestore.ErrInvalid},
			"an impossible grace": {RebalanceSpec{InFlightGraceMS: ms(-time.Second)}, statestore.ErrInvalid},
		} {
			if _, err := create(c.spec); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A drain takes the sessions that a rebalance has reserved; each move is counted by
// the job that made it.
func TestDrainTakesFromARebalance(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.register("a").beating(), w.register("b").beating().polling(25*time.Second)
		w.register("c").beating().polling(0)
		a.creates(0, 20)
		w.pass(time.Minute)
		p := w.starts("one", w.store)
		spec := RebalanceSpec{Target: "b"}
		for i := range 20 {
			spec.Sessions = append(spec.Sessions, keyOf(i).ID)
		}
		slow := p.rebalances(w, spec)
		w.eventually("it has plans", func() bool { _, p := w.job(slow.ID); return p.Reserved > 0 })
		_, err := w.store.SetLifecycle(w.ctx, b.by, statestore.LifecycleChange{From: []statestore.Lifecycle{statestore.Ready}, To: statestore.Cordoned})
		w.ok(err)
		w.pass(time.Second)
		began := time.Now()
		drain := p.drains(w, DrainSpec{Instances: []string{"a"}})
		w.eventually("all have moved", func() bool { _, bound := w.truth("a", 20); return bound == 0 })
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the drain waited %v", took)
		}
		drained := w.ends(drain.ID, statestore.JobSucceeded)
		balanced := w.ends(slow.ID, statestore.JobSucceeded)
		if drained.Moved+balanced.Moved != 20 || drained.Moved < 16 || balanced.Skipped[SkippedAlreadyMoved] != 20-balanced.Moved {
			t.Errorf("drain %+v, rebalance %+v", drained, balanced)
		}
	})
}

// The process that rebalances dies at any call; another ends the job, and counts as
// the sessions tell.
func TestRebalanceResumesAfterDeath(t *testing.T) {
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a test
	for range 8 {
		n, after := 1+rng.Int64N(30), rng.IntN(2) == 0
		t.Run(fmt.Sprintf("call %d after %v", n, after), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.hot()
				doomed := w.killAt(newFaulty(w.store), "", n, after)
				job, _, err := New(w.store, Options{}).CreateRebalance(w.ctx, poolName, "t", RebalanceSpec{Pace: Pace{Concurrency: 2}})
				w.ok(err)
				<-doomed.done
				w.starts("heir", w.store)
				got := w.ends(job.ID, statestore.JobSucceeded)
				w.countsRight(got, "a", 60)
				if got.Moved == 0 || got.Moved != got.Total {
					t.Errorf("progress %+v", got)
				}
			})
		})
	}
}

// A rebalance is paused, resumed and cancelled like any job.
func TestRebalanceIsControlled(t *testing.T) {
	inWorld(t, func(w *world) {
		w.hot()
		p := w.starts("one", w.store)
		job := p.rebalances(w, RebalanceSpec{Pace: Pace{SessionsPerS: 2}})
		w.eventually("some have moved", func() bool { moved, _ := w.truth("a", 60); return moved > 2 })
		_, err := p.Pause(w.ctx, job.ID)
		w.ok(err)
		w.eventually("paused", func() bool { j, _ := w.job(job.ID); return j.State == statestore.JobPaused })
		moved, _ := w.truth("a", 60)
		w.pass(10 * time.Second)
		if again, _ := w.truth("a", 60); again != moved {
			t.Errorf("while paused %d became %d", moved, again)
		}
		_, err = p.Resume(w.ctx, job.ID)
		w.ok(err)
		w.pass(time.Second)
		_, err = p.Cancel(w.ctx, job.ID)
		w.ok(err)
		took := w.eventually("cancelled", func() bool { j, _ := w.job(job.ID); return j.State == statestore.JobCancelled })
		if took > time.Second {
			t.Errorf("cancelled after %v", took)
		}
		_, got := w.job(job.ID)
		w.countsRight(got, "a", 60)
	})
}
