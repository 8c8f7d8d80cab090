package migrations

import (
	"errors"
	"testing"
	"time"

	"berth/statestore"
)

// T24: the last instance of a pool, or all of them at once, have nowhere to go.
func TestNoTargetIsRefusedAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a")
		a.creates(0, 5)
		p := w.starts("one", w.store)
		refused := func(candidates int, ids ...string) {
			t.Helper()
			_, _, err := p.CreateDrain(w.ctx, DrainSpec{Instances: ids})
			var none *NoTargetError
			if !errors.As(err, &none) || none.Sessions != 5 || len(none.Candidates) != candidates {
				t.Errorf("drain of %v: %v", ids, err)
			}
		}
		refused(0, "a")
		b := w.register("b")
		refused(0, "a", "b")
		_, err := w.store.SetLifecycle(w.ctx, b.by, statestore.LifecycleChange{To: statestore.Cordoned})
		w.ok(err)
		refused(1, "a")
		if in := w.instance("a"); in.Lifecycle != statestore.Ready {
			t.Errorf("the instance is %s", in.Lifecycle)
		}
		job := p.drains(w, DrainSpec{Instances: []string{"a"}, Mode: ModeDetach})
		got := w.ends(job.ID, statestore.JobSucceeded)
		for i := range 5 {
			if v := w.session(i); !v.Exists || v.Turns != 1 || !v.Owner.IsZero() {
				t.Errorf("session %d: %d turns, owner %v", i, v.Turns, v.Owner)
			}
		}
		if got.Moved != 5 || len(got.Targets) != 0 {
			t.Errorf("progress %+v", got)
		}
	})
}

// T31: the same drain again is the same job; an overlapping one is refused.
func TestSameDrainIsTheSameJob(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, id := range []string{"a", "b", "c", "d"} {
			w.register(id).beating()
		}
		p := w.starts("one", w.store)
		job := p.drains(w, DrainSpec{Instances: []string{"b", "a"}})
		for _, again := range [][]string{{"a", "b"}, {"b", "a"}, {"a"}} {
			got, existed, err := p.CreateDrain(w.ctx, DrainSpec{Instances: again})
			if err != nil || !existed || got.ID != job.ID {
				t.Errorf("drain of %v again: %s %v %v", again, got.ID, existed, err)
			}
		}
		var busy *BusyError
		if _, _, err := p.CreateDrain(w.ctx, DrainSpec{Instances: []string{"a", "c"}}); !errors.As(err, &busy) || busy.Job != job.ID {
			t.Errorf("an overlapping drain: %v", err)
		}
		w.ends(job.ID, statestore.JobSucceeded)
		after, existed, err := p.CreateDrain(w.ctx, DrainSpec{Instances: []string{"a", "b"}})
		w.ok(err)
		if existed || after.ID == job.ID {
			t.Errorf("after its end: %s %v", after.ID, existed)
		}
		w.ends(after.ID, statestore.JobSucceeded)
	})
}

// Requests that make no sense are refused before anything is stored.
func TestCreateDrainRefusesNonsense(t *testing.T) {
	inWorld(t, func(w *world) {
		w.register("a")
		w.register("b")
		w.register("elsewhere", func(s *statestore.InstanceSpec) { s.Pool = "q" })
		p := w.starts("one", w.store)
		for name, c := range map[string]struct {
			spec DrainSpec
			want error
		}{
			"nobody":         {DrainSpec{}, statestore.ErrInvalid},
			"a bad id":       {DrainSpec{Instances: []string{"a b"}}, statestore.ErrInvalid},
			"twice":          {DrainSpec{Instances: []string{"a", "a"}}, statestore.ErrInvalid},
			"a stranger":     {DrainSpec{Instances: []string{"z"}}, statestore.ErrUnknownInstance},
			"two pools":      {DrainSpec{Instances: []string{"a", "elsewhere"}}, statestore.ErrInvalid},
			"a mode":         {DrainSpec{Instances: []string{"a"}, Mode: "x"}, statestore.ErrInvalid},
			"at_deadline":    {DrainSpec{Instances: []string{"a"}, AtDeadline: "x"}, statestore.ErrInvalid},
			"no time":        {DrainSpec{Instances: []string{"a"}, DeadlineMS: -1}, statestore.ErrInvalid},
			"an age":         {DrainSpec{Instances: []string{"a"}, DeadlineMS: 1 << 50}, statestore.ErrInvalid},
			"a grace":        {DrainSpec{Instances: []string{"a"}, InFlightGraceMS: ms(-time.Second)}, statestore.ErrInvalid},
			"a prewarm":      {DrainSpec{Instances: []string{"a"}, Prewarm: Prewarm{IdleBelowMS: ms(-time.Second)}}, statestore.ErrInvalid},
			"a pace":         {DrainSpec{Instances: []string{"a"}, Pace: Pace{BytesPerS: -1}}, statestore.ErrInvalid},
			"a concurrency":  {DrainSpec{Instances: []string{"a"}, Pace: Pace{Concurrency: -1}}, statestore.ErrInvalid},
			"per target":     {DrainSpec{Instances: []string{"a"}, Pace: Pace{PerTarget: 5000}}, statestore.ErrInvalid},
			"too many at it": {DrainSpec{Instances: make([]string, 2000)}, statestore.ErrInvalid},
		} {
			if _, _, err := p.CreateDrain(w.ctx, c.spec); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		jobs, _, err := w.store.Jobs(w.ctx)
		w.ok(err)
		if len(jobs) != 0 {
			t.Errorf("stored: %v", jobs)
		}
	})
}
