package migrations

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"berth/statestore"
)

// script is what workers were asked, in order.
type script struct {
	mu    sync.Mutex
	lines []string
}

func (s *script) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

// record lets a worker write down what it is asked, and do it at once.
func (s *script) record(k *worker) *worker {
	k.does = func(t statestore.Task) statestore.TaskAnswer {
		s.add(fmt.Sprintf("%s %s v%d", k.by.Instance, t.Kind, t.Floor.Version))
		return statestore.TaskAnswer{Result: statestore.TaskDone, Version: t.Floor.Version}
	}
	return k
}

func done(t statestore.Task) statestore.TaskAnswer {
	return statestore.TaskAnswer{Result: statestore.TaskDone, Version: t.Floor.Version}
}

// Both ends take part: the source offloads, the target prewarms, the source lets
// the turn end, the move is committed, and both are told.
func TestHandOffInItsOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		var said script
		a, b := w.register("a").beating(), w.register("b").beating()
		a.running.Store(1) // of other sessions: nobody knows of which
		said.record(a).polling(0)
		said.record(b).polling(0)
		a.creates(0, 1)
		w.pass(time.Minute)
		job := w.starts("one", w.store).drains(w, DrainSpec{Instances: []string{"a"}})
		w.eventually("it has moved", func() bool { return w.session(0).Owner == b.by })
		w.eventually("both are told", func() bool { return a.told.Load() == 1 && b.told.Load() == 1 })
		if want := []string{"a offload v1", "b prewarm v1", "a release v1"}; !slices.Equal(said.lines, want) {
			t.Errorf("asked %q, want %q", said.lines, want)
		}
		a.running.Store(0)
		got := w.ends(job.ID, statestore.JobSucceeded)
		if got.Offloaded != 1 || got.Prewarmed != 1 || got.Released != 1 || got.Moved != 1 {
			t.Errorf("progress %+v", got)
		}
	})
}

// T26, of workers that cooperate: a turn that runs is waited for, its save is
// accepted, and the session moves with it, warm, as soon as it has ended.
func TestHandOffWaitsForTheTurn(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.register("a").beating(), w.register("b").beating().polling(2*time.Second)
		a.creates(0, 1)
		w.pass(5 * time.Second)
		a.running.Store(1)
		w.pass(5 * time.Second)
		began := time.Now()
		ends := began.Add(20 * time.Second)
		var once sync.Once
		a.does = func(t statestore.Task) statestore.TaskAnswer {
			if t.Kind != statestore.TaskRelease {
				return done(t)
			}
			_ = sleep(w.ctx, time.Until(ends))
			once.Do(func() { w.ok(a.appendsAt(0, t.Floor)); a.running.Store(0) })
			return statestore.TaskAnswer{Result: statestore.TaskDone, Version: w.session(0).Version}
		}
		a.polling(0)
		job := w.starts("one", w.store).drains(w, DrainSpec{Instances: []string{"a"}})
		w.eventually("it has moved", func() bool { return w.session(0).Owner == b.by })
		if took := time.Since(began); took < 20*time.Second || took > 25*time.Second {
			t.Errorf("it moved after %v", took)
		}
		got := w.ends(job.ID, statestore.JobSucceeded)
		v := w.session(0)
		if last := v.Changes[len(v.Changes)-1]; v.Turns != 2 || last.Version != 2 || v.Tail == nil {
			t.Errorf("%d turns, moved at version %d", v.Turns, last.Version)
		}
		if b.warmed.Load() != prewarmRounds || got.Prewarmed != 1 {
			t.Errorf("%d prewarms, progress %+v", b.warmed.Load(), got)
		}
	})
}

// A session whose turn never ends is asked for until the deadline; that its source
// leaves this one question open keeps nobody else waiting.
func TestHandOffOfASessionThatNeverRests(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b").beating().polling(0)
		a.running.Store(1)
		a.creates(0, 30)
		go func() {
			for sleep(w.ctx, 4*time.Second) == nil && a.appends(7) == nil {
				continue // as long as the test lasts
			}
		}()
		a.does = func(t statestore.Task) statestore.TaskAnswer {
			if t.Kind == statestore.TaskRelease && t.Session == keyOf(7) {
				_ = sleep(w.ctx, time.Hour)
			}
			return done(t)
		}
		a.atOnce = 1
		for range 16 { // each may hang
			a.polling(0)
		}
		w.pass(10 * time.Second)
		began := time.Now()
		p := w.starts("one", w.store)
		job := p.drains(w, DrainSpec{
			Instances: []string{"a"}, DeadlineMS: 180_000, AtDeadline: DeadlineLeave, InFlightGraceMS: ms(20 * time.Second),
		})
		w.eventually("the others have moved", func() bool { moved, _ := w.truth("a", 30); return moved == 29 })
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the others moved after %v", took)
		}
		got := w.ends(job.ID, statestore.JobPartial)
		if len(got.Left) != 1 || got.Left[0].Session != "s007" || got.Left[0].Reason != BlockedInFlight {
			t.Errorf("left %+v", got.Left)
		}
		w.agrees(got, "a", 30)
	})
}

// A source that boots again in the middle is not waited for: its sessions are
// nobody's any more, and move.
func TestSourceThatRestartsInTheMiddle(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b").beating().polling(0)
		a.running.Store(1)
		a.creates(0, 20)
		w.pass(5 * time.Second)
		var once sync.Once
		a.does = func(t statestore.Task) statestore.TaskAnswer {
			if t.Kind == statestore.TaskRelease {
				once.Do(func() { w.register("a", func(s *statestore.InstanceSpec) { s.Incarnation = "second" }) })
				_ = sleep(w.ctx, time.Hour)
			}
			return done(t)
		}
		a.polling(0)
		began := time.Now()
		job := w.starts("one", w.store).drains(w, DrainSpec{Instances: []string{"a"}})
		got := w.ends(job.ID, statestore.JobSucceeded)
		if took := time.Since(began); took > 2*DefaultInFlightGrace {
			t.Errorf("it took %v", took)
		}
		if got.Moved != 20 || got.Instances["a"].State != "gone" {
			t.Errorf("progress %+v", got)
		}
		w.agrees(got, "a", 20)
	})
}

// A source that does not offload, or lets no turn end when it is asked, is not
// asked again and again; its busy sessions move once they are quiet.
func TestSourceThatDeclines(t *testing.T) {
	inWorld(t, func(w *world) {
		asked := map[statestore.TaskKind]int{}
		a := w.register("a").beating()
		b := w.register("b").beating().polling(0)
		a.running.Store(1)
		a.creates(0, 40)
		w.pass(5 * time.Second)
		a.does = func(t statestore.Task) statestore.TaskAnswer {
			asked[t.Kind]++
			return statestore.TaskAnswer{Result: statestore.TaskRefused}
		}
		a.polling(0)
		job := w.starts("one", w.store).drains(w, DrainSpec{Instances: []string{"a"}, Pace: Pace{PerTarget: 1}})
		w.eventually("all have moved", func() bool { moved, _ := w.truth("a", 40); return moved == 40 })
		if idle := w.session(0).Idle(); idle < DefaultInFlightGrace {
			t.Errorf("moved in flight, %v after the last turn", idle)
		}
		a.running.Store(0)
		got := w.ends(job.ID, statestore.JobSucceeded)
		if asked[statestore.TaskOffload] != declineLimit || asked[statestore.TaskRelease] != declineLimit {
			t.Errorf("asked %v", asked)
		}
		if b.warmed.Load() == 0 || got.Offloaded != 0 || got.Released != 0 {
			t.Errorf("progress %+v", got)
		}
	})
}

// What keeps refusing is tried as often as the retry budget allows, and then given
// up, without waiting for the deadline.
func TestRetryBudget(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b").beating()
		a.creates(0, 10)
		w.pass(15 * time.Minute)
		f := newFaulty(w.store)
		bad := map[string]bool{"s003": true, "s004": true}
		f.beforeMove = func(m statestore.Move) error {
			if bad[m.Key.ID] {
				return statestore.ErrUnavailable
			}
			return nil
		}
		began := time.Now()
		job := w.starts("one", f).drains(w, DrainSpec{Instances: []string{"a"}, Pace: Pace{Retries: 3}})
		got := w.ends(job.ID, statestore.JobPartial)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("given up after %v", took)
		}
		if got.Moved != 8 || got.Failed[BlockedStoreError] != 2 || len(got.Left) != 2 || got.Left[0].Reason != BlockedStoreError {
			t.Errorf("progress %+v", got)
		}
		if moved, bound := w.truth("a", 10); moved != 8 || bound != 2 {
			t.Errorf("in truth %d moved and %d are bound", moved, bound)
		}
	})
}
