package migrations

import (
	"errors"
	"testing"
	"time"

	"berth/statestore"
)

// A stored job that nobody can read fails instead of being taken up for ever.
func TestJobThatNobodyUnderstands(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a")
		job, _, err := w.store.CreateJob(w.ctx, statestore.Job{
			ID: "odd", Kind: KindDrain, Pool: poolName, Sources: []statestore.Owner{a.by}, Spec: []byte("{"),
		}, time.Hour)
		w.ok(err)
		w.starts("one", w.store)
		if p := w.ends(job.ID, statestore.JobFailed); p.Reason == "" || w.instance("a").Lifecycle != statestore.Ready {
			t.Errorf("progress %+v", p)
		}
	})
}

// Jobs that ended long enough ago are forgotten, and no others.
func TestOldJobsAreForgotten(t *testing.T) {
	inWorld(t, func(w *world) {
		w.register("a")
		w.register("b")
		p := w.starts("one", w.store, func(o *Options) { o.Keep, o.Lease = 90*time.Minute, 10*time.Minute })
		job := p.drains(w, DrainSpec{Instances: []string{"a"}})
		w.ends(job.ID, statestore.JobSucceeded)
		w.pass(85 * time.Minute)
		w.job(job.ID)
		w.pass(time.Hour)
		if _, _, err := w.store.Job(w.ctx, job.ID); !errors.Is(err, statestore.ErrNotFound) {
			t.Errorf("an old job: %v", err)
		}
	})
}
