package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/statestore"
)

// jobCells are what decides whether a holder of a job is still the present one.
func jobCells(id string) []cell {
	if id == "" {
		return nil
	}
	return []cell{{tJobs, id}, {tFences, "j" + id}}
}

// allJobs are the jobs with the counter that moves with each of them.
var allJobs = []cell{{tCounters, "jobs"}, {tJobs, "*"}}

// checkJob refuses a holder of a job that has been succeeded by another.
func (t *tx) checkJob(ref statestore.JobRef) error {
	if ref.ID == "" {
		return nil
	}
	var j statestore.Job
	if _, err := t.getJSON(tJobs, ref.ID, &j); err != nil {
		return err
	}
	if token := max(number(t.get(tFences, "j"+ref.ID)), j.Token); ref.Token < token {
		return &statestore.LeaseHeldError{Name: ref.ID, Holder: j.Holder, Token: token}
	}
	return nil
}

// CreateJob stores a job, unless one for the same sources is under way. A job
// without sources is never taken for another: its spec alone says what it is for.
func (s *Store) CreateJob(ctx context.Context, j statestore.Job, deadline time.Duration) (stored statestore.Job, existed bool, err error) {
	if err := checkID("job", j.ID); err != nil {
		return statestore.Job{}, false, err
	}
	err = s.transact(ctx, allJobs, func(t *tx) error {
		jobs, err := t.jobs()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(jobs, func(o statestore.Job) bool { return o.ID == j.ID || sameWork(&o, &j) })
		if existed = i >= 0; existed {
			stored = jobs[i]
			return nil
		}
		stored = j
		stored.State = cmp.Or(j.State, statestore.JobPending)
		stored.Created, stored.Updated, stored.Deadline = t.now, t.now, t.now.Add(deadline)
		return t.putJob(&stored)
	})
	if err != nil {
		return statestore.Job{}, false, err
	}
	return stored, existed, nil
}

// sameWork reports whether o, which has not ended, does what j would do.
func sameWork(o, j *statestore.Job) bool {
	return !o.State.Ended() && o.Kind == j.Kind && o.Pool == j.Pool &&
		len(j.Sources) > 0 && slices.Equal(sorted(o.Sources), sorted(j.Sources))
}

func sorted(owners []statestore.Owner) []statestore.Owner {
	return slices.SortedFunc(slices.Values(owners), func(a, b statestore.Owner) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Incarnation, b.Incarnation))
	})
}

// AcquireJob takes a job over whose lease is free or over.
func (s *Store) AcquireJob(ctx context.Context, id, holder string, ttl time.Duration) (statestore.Job, error) {
	var held error
	j, err := s.changeJob(ctx, id, func(t *tx, j *statestore.Job) error {
		held = nil
		switch {
		case t.now < j.LeaseEnd && j.Updated > t.now:
			// The clock went back. Whoever holds the job renews within ttl if it lives.
			held = heldJob(j)
			j.LeaseEnd, j.Updated = t.now.Add(ttl), t.now
			return nil
		case t.now < j.LeaseEnd:
			return heldJob(j)
		}
		j.Holder, j.LeaseEnd, j.Updated = holder, t.now.Add(ttl), t.now
		j.Token++
		j.Attempts++
		return nil
	})
	if err == nil && held != nil {
		return statestore.Job{}, held
	}
	return j, err
}

func heldJob(j *statestore.Job) error {
	return &statestore.LeaseHeldError{Name: j.ID, Holder: j.Holder, Token: j.Token}
}

// SaveJob stores what the holder of a job reached, and renews its lease. A job that
// has ended stays as it ended.
func (s *Store) SaveJob(ctx context.Context, ref statestore.JobRef, state statestore.JobState, progress []byte, ttl time.Duration) (statestore.Job, error) {
	return s.changeJob(ctx, ref.ID, func(t *tx, j *statestore.Job) error {
		if j.Token != ref.Token {
			return heldJob(j)
		}
		if j.State.Ended() {
			return errAsItIs
		}
		j.State, j.Progress, j.Updated, j.LeaseEnd = state, progress, t.now, t.now.Add(ttl)
		if state.Ended() {
			j.Ended, j.LeaseEnd = t.now, t.now
		}
		return nil
	})
}

// ControlJob stores an operator's wish.
func (s *Store) ControlJob(ctx context.Context, id string, c statestore.Control) (statestore.Job, error) {
	return s.changeJob(ctx, id, func(t *tx, j *statestore.Job) error {
		if j.State.Ended() || j.Control == c {
			return errAsItIs
		}
		j.Control, j.Updated = c, t.now
		return nil
	})
}

// errAsItIs leaves a job unchanged without refusing the call.
var errAsItIs = errors.New("the job stays as it is")

func (s *Store) changeJob(ctx context.Context, id string, fn func(*tx, *statestore.Job) error) (j statestore.Job, err error) {
	err = s.transact(ctx, []cell{{tJobs, id}}, func(t *tx) error {
		if j, err = t.job(id); err != nil {
			return err
		}
		if err := fn(t, &j); err != nil {
			return err
		}
		return t.putJob(&j)
	})
	if err != nil && !errors.Is(err, errAsItIs) {
		return statestore.Job{}, err
	}
	return j, nil
}

func (t *tx) putJob(j *statestore.Job) error {
	t.count("jobs")
	t.tell(statestore.Event{Kind: statestore.EventJob, Job: j.ID})
	return t.setJSON(tJobs, j.ID, j)
}

func (t *tx) job(id string) (statestore.Job, error) {
	var j statestore.Job
	found, err := t.getJSON(tJobs, id, &j)
	if err == nil && !found {
		err = fmt.Errorf("job %q: %w", id, statestore.ErrNotFound)
	}
	return j, err
}

// jobs are all jobs, newest first.
func (t *tx) jobs() (jobs []statestore.Job, err error) {
	for _, text := range t.whole[tJobs] {
		var j statestore.Job
		if err := decodeJSON(tJobs, text, &j); err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b statestore.Job) int {
		return cmp.Or(cmp.Compare(b.Created, a.Created), cmp.Compare(b.ID, a.ID))
	})
	return jobs, nil
}

// Job reads a job.
func (s *Store) Job(ctx context.Context, id string) (statestore.Job, statestore.Millis, error) {
	t, err := s.peek(ctx, cell{tJobs, id})
	if err != nil {
		return statestore.Job{}, 0, err
	}
	j, err := t.job(id)
	return j, t.now, err
}

// Jobs lists all jobs, newest first.
func (s *Store) Jobs(ctx context.Context) ([]statestore.Job, statestore.Millis, error) {
	t, err := s.peek(ctx, allJobs...)
	if err != nil {
		return nil, 0, err
	}
	jobs, err := t.jobs()
	return jobs, t.now, err
}

// PurgeJobs forgets jobs that ended long ago, with their tasks, tokens and fences. The job
// goes last: what a failure leaves is purged the next time.
func (s *Store) PurgeJobs(ctx context.Context, keep time.Duration) (int, error) {
	jobs, now, err := s.Jobs(ctx)
	if err != nil {
		return 0, err
	}
	purged := 0
	for _, j := range jobs {
		if !j.State.Ended() || now.Sub(j.Ended) <= keep {
			continue
		}
		if err := s.DropTasks(ctx, j.ID); err != nil {
			return purged, err
		}
		over, err := s.overFences(ctx, &j)
		if err != nil {
			return purged, err
		}
		if err := s.fenceEverywhere(ctx, append([]any{"", 0, 0}, over...)); err != nil {
			return purged, err
		}
		err = s.transact(ctx, []cell{{tJobs, j.ID}}, func(t *tx) error {
			t.count("jobs")
			t.drop(tJobs, j.ID)
			return nil
		})
		if err != nil {
			return purged, err
		}
		purged++
	}
	return purged, nil
}

// overFences are the fields of fences that end with a job: its token, and those of
// its sources that are not registered any more.
func (s *Store) overFences(ctx context.Context, j *statestore.Job) ([]any, error) {
	cells := []cell{{tJobs, j.ID}}
	for _, o := range j.Sources {
		cells = append(cells, cell{tInstances, o.Instance})
	}
	t, err := s.peek(ctx, cells...)
	if err != nil {
		return nil, err
	}
	over := []any{"j" + j.ID}
	for _, o := range j.Sources {
		var inst statestore.Instance
		found, err := t.getJSON(tInstances, o.Instance, &inst)
		if err != nil {
			return nil, err
		}
		if !found || inst.Owner() != o {
			over = append(over, fenceField(j.Pool, o))
		}
	}
	return over, nil
}
