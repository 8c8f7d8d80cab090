package migrations

import (
	"encoding/json"
	"testing"
	"time"

	"berth/statestore"
)

// says stores a job of another process that has promised what is given.
func (w *world) says(state statestore.JobState, given map[string]float64) {
	w.Helper()
	job, _, err := w.store.CreateJob(w.ctx, statestore.Job{
		ID: "other", Kind: KindDrain, Pool: poolName, State: statestore.JobPending, Spec: []byte(`{}`),
		Sources: []statestore.Owner{{Instance: "z", Incarnation: "boot-z"}},
	}, time.Hour)
	w.ok(err)
	job, err = w.store.AcquireJob(w.ctx, job.ID, "elsewhere", time.Hour)
	w.ok(err)
	doc, err := json.Marshal(memo{Given: given})
	w.ok(err)
	_, err = w.store.SaveJob(w.ctx, job.Ref(), state, doc, time.Hour)
	w.ok(err)
}

// What another job has promised to a target is counted, and forgotten a while after
// that job has ended.
func TestPlansCountWhatOtherJobsPromised(t *testing.T) {
	for name, c := range map[string]struct {
		state statestore.JobState
		age   time.Duration
		full  bool
	}{
		"running":        {statestore.JobRunning, 0, true},
		"just ended":     {statestore.JobSucceeded, 0, true},
		"ended long ago": {statestore.JobSucceeded, 5 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := w.register("a").beating()
				w.register("b")
				w.register("c")
				a.running.Store(12)
				a.creates(0, 12)
				w.says(c.state, map[string]float64{"b": 100})
				w.pass(c.age)
				for i := range 12 {
					w.ok(a.appends(i))
				}
				w.pass(3 * time.Second)
				w.starts("one", w.store).drains(w, DrainSpec{
					Instances: []string{"a"}, InFlightGraceMS: ms(time.Second), Prewarm: Prewarm{IdleBelowMS: ms(0)},
				})
				w.eventually("all have moved", func() bool { moved, _ := w.truth("a", 12); return moved == 12 })
				b := 0
				for i := range 12 {
					if w.session(i).Owner.Instance == "b" {
						b++
					}
				}
				if (b == 0) != c.full {
					t.Errorf("b got %d", b)
				}
			})
		})
	}
}

// Two drains that begin in the same moment, in two processes, do not fill one target
// above its bound between them.
func TestTwoDrainsShareTheRoom(t *testing.T) {
	inWorld(t, func(w *world) {
		const each = 100
		old := func(s *statestore.InstanceSpec) { s.Labels = map[string]string{"rs": "old"} }
		a, d := w.register("a", old).beating(), w.register("d", old).beating()
		w.register("b")
		w.register("c", old)
		a.running.Store(each)
		d.running.Store(each)
		a.creates(0, each)
		d.creates(each, 2*each)
		w.pass(3 * time.Second)
		one, two := w.starts("one", w.store), w.starts("two", w.store)
		for p, id := range map[*process]string{one: "a", two: "d"} {
			go func() {
				_, _, err := p.CreateDrain(w.ctx, DrainSpec{
					Instances: []string{id}, Avoid: map[string]string{"rs": "old"},
					InFlightGraceMS: ms(time.Second), Prewarm: Prewarm{IdleBelowMS: ms(0)},
				})
				w.ok(err)
			}()
		}
		w.eventually("all have moved", func() bool {
			x, _ := w.truth("a", 2*each)
			y, _ := w.truth("d", 2*each)
			return x+y == 2*each
		})
		b := 0
		for i := range 2 * each {
			if w.session(i).Owner.Instance == "b" {
				b++
			}
		}
		// The mean is 100: b may have 100 + 3·√100, and one more that finds it at its
		// bound. Planned apart they would give it 2·(50 + 3·√50).
		if b < each || b > 131 {
			t.Errorf("b got %d of %d", b, 2*each)
		}
	})
}
