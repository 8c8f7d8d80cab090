package migrations

import (
	"testing"
	"time"

	"berth/statestore"
)

// R28, T32: a drain cancelled half way gives its instance back within seconds;
// who has moved stays where it is, and nothing moves any more.
func TestCancelHalfWay(t *testing.T) {
	for _, c := range []struct {
		name   string
		was    statestore.Lifecycle
		by     string // who is told
		killed bool   // the holder is dead by then
		within time.Duration
	}{
		{"at the holder", statestore.Ready, "first", false, time.Second},
		{"at another process", statestore.Ready, "second", false, 3 * time.Second},
		{"after the holder died", statestore.Ready, "second", true, 15 * time.Second},
		{"of a cordoned instance", statestore.Cordoned, "first", false, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := w.register("a").beating()
				b := w.register("b").polling(time.Millisecond)
				_, err := w.store.SetLifecycle(w.ctx, a.by, statestore.LifecycleChange{To: c.was})
				w.ok(err)
				a.creates(0, 40)
				w.pass(time.Minute)
				f := newFaulty(w.store)
				first := w.starts("first", f)
				told := first
				job := first.drains(w, DrainSpec{Instances: []string{"a"}, Pace: Pace{SessionsPerS: 10}})
				if c.by == "second" {
					told = w.starts("second", w.store)
				}
				w.eventually("half has moved", func() bool { moved, _ := w.truth("a", 40); return moved >= 20 })
				if c.killed {
					f.die()
					first.stops()
				}
				_, err = told.Cancel(w.ctx, job.ID)
				w.ok(err)
				took := w.eventually("cancelled", func() bool { j, _ := w.job(job.ID); return j.State == statestore.JobCancelled })
				if took > c.within {
					t.Errorf("cancelled after %v", took)
				}
				_, p := w.job(job.ID)
				w.agrees(p, "a", 40)
				moved, bound := w.truth("a", 40)
				if len(p.Instances) > 0 {
					t.Errorf("the job goes on saying %v", p.Instances)
				}
				if in := w.instance("a"); in.Lifecycle != c.was {
					t.Errorf("the instance is %s", in.Lifecycle)
				}
				w.ok(a.appends(500))
				if v := w.session(500); v.Owner != a.by {
					t.Errorf("a new session is bound to %v", v.Owner)
				}
				w.pass(time.Minute)
				if m, n := w.truth("a", 40); m != moved || n != bound || bound == 0 || p.Targets[b.by.Instance] != moved {
					t.Errorf("a minute later: %d moved and %d bound, at the end: %d and %d of %+v", m, n, moved, bound, p)
				}
				for i := range 40 {
					if v := w.session(i); v.Reserved != nil && v.Now < v.Reserved.Until {
						t.Errorf("session %d is still reserved", i)
					}
				}
			})
		})
	}
}

// A cancel that comes when an instance of the job is drained already leaves it so.
func TestCancelKeepsWhatIsDrained(t *testing.T) {
	inWorld(t, func(w *world) {
		w.register("a").beating()
		b := w.register("b").beating()
		w.register("c")
		b.creates(0, 10)
		b.running.Store(1)
		p := w.starts("one", w.store)
		job := p.drains(w, DrainSpec{Instances: []string{"a", "b"}})
		w.eventually("one is drained", func() bool { return w.instance("a").Lifecycle == statestore.Drained })
		_, err := p.Cancel(w.ctx, job.ID)
		w.ok(err)
		w.ends(job.ID, statestore.JobCancelled)
		if _, p := w.job(job.ID); len(p.Instances) != 1 || p.Instances["a"] != (InstanceProgress{State: "drained"}) {
			t.Errorf("the job says %v", p.Instances)
		}
		if a, b := w.instance("a").Lifecycle, w.instance("b").Lifecycle; a != statestore.Drained || b != statestore.Ready {
			t.Errorf("they are %s and %s", a, b)
		}
	})
}

// A paused job moves nothing until it is resumed, wherever it is held, and its
// time goes on.
func TestPauseAndResume(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b")
		a.creates(0, 40)
		w.pass(15 * time.Minute)
		p := w.starts("one", w.store)
		job := p.drains(w, DrainSpec{Instances: []string{"a"}, DeadlineMS: 60_000, Pace: Pace{SessionsPerS: 10}})
		pause := func() int {
			w.pass(time.Second)
			_, err := p.Pause(w.ctx, job.ID)
			w.ok(err)
			w.eventually("paused", func() bool { j, _ := w.job(job.ID); return j.State == statestore.JobPaused })
			moved, _ := w.truth("a", 40)
			return moved
		}
		moved := pause()
		w.pass(10 * time.Second)
		if m, _ := w.truth("a", 40); m != moved || m == 0 {
			t.Errorf("while paused %d became %d", moved, m)
		}
		_, err := p.Resume(w.ctx, job.ID)
		w.ok(err)
		if again := pause(); again <= moved {
			t.Errorf("resumed, but still %d", again)
		}
		got := w.ends(job.ID, statestore.JobPartial)
		w.agrees(got, "a", 40)
		if len(got.Left) != 40-got.Moved || got.Left[0].Reason != BlockedDeadline {
			t.Errorf("left %+v", got.Left)
		}
	})
}

// Whoever wants to follow a job is told after each save.
func TestProgressIsTold(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b")
		a.creates(0, 40)
		w.pass(15 * time.Minute)
		var told []Progress
		var states []statestore.JobState
		p := w.starts("one", w.store, func(o *Options) {
			o.OnProgress = func(j statestore.Job, p Progress) {
				told, states = append(told, p), append(states, j.State)
			}
		})
		job := p.drains(w, DrainSpec{Instances: []string{"a"}, Pace: Pace{SessionsPerS: 4}})
		w.pass(5 * time.Second)
		_, half := w.job(job.ID)
		if half.RatePerS < 1 || half.RatePerS > 5 || half.EtaMS < 3000 || half.Queued != 40-half.Moved {
			t.Errorf("half way: %+v", half)
		}
		w.ends(job.ID, statestore.JobSucceeded)
		p.stops()
		last := told[len(told)-1]
		if last.Moved != 40 || states[len(states)-1] != statestore.JobSucceeded || last.LastProgressMS < 10_000 {
			t.Errorf("told last: %s %+v", states[len(states)-1], last)
		}
		for i := 1; i < len(told); i++ {
			if told[i].Moved < told[i-1].Moved {
				t.Errorf("moved went from %d to %d", told[i-1].Moved, told[i].Moved)
			}
		}
	})
}

// A cancel told to another process reaches a job that only waits within about a
// second, and takes back what it had promised.
func TestCancelWhileTargetsPrewarm(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b").polling(time.Minute)
		a.creates(0, 10)
		w.pass(5 * time.Second)
		job := w.starts("one", w.store).drains(w, DrainSpec{Instances: []string{"a"}})
		promised := func() (n int) {
			for i := range 10 {
				if v := w.session(i); v.Reserved != nil && v.Now < v.Reserved.Until {
					n++
				}
			}
			return n
		}
		if took := w.eventually("targets are asked", func() bool { return promised() == DefaultPerTarget }); took > 5*time.Second {
			t.Errorf("at rest, but asked only after %v", took)
		}
		w.pass(10 * time.Second)
		if _, p := w.job(job.ID); p.Reserved != DefaultPerTarget || p.Queued != 10-DefaultPerTarget {
			t.Errorf("progress %+v", p)
		}
		_, err := w.starts("two", w.store).Cancel(w.ctx, job.ID)
		w.ok(err)
		took := w.eventually("cancelled", func() bool { j, _ := w.job(job.ID); return j.State == statestore.JobCancelled })
		if took > 1500*time.Millisecond {
			t.Errorf("cancelled after %v", took)
		}
		tasks, err := w.store.TasksOf(w.ctx, job.ID)
		w.ok(err)
		if n := promised(); n != 0 || len(tasks) != 0 {
			t.Errorf("%d sessions are still promised, %d tasks are left", n, len(tasks))
		}
	})
}
