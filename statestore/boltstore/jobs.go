package boltstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/statestore"
)

// CreateJob stores a job, unless one for the same sources is under way. A job
// without sources is never taken for another: its spec alone says what it is for.
func (s *Store) CreateJob(ctx context.Context, j statestore.Job, deadline time.Duration) (statestore.Job, bool, error) {
	if err := checkID("job", j.ID); err != nil {
		return statestore.Job{}, false, err
	}
	var stored statestore.Job
	var existed bool
	err := s.write(ctx, func(w *writer) error {
		jobs, err := w.jobs()
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
		stored.Created, stored.Updated, stored.Deadline = w.now, w.now, w.now.Add(deadline)
		w.putJob(&stored)
		return nil
	})
	if err != nil {
		return statestore.Job{}, false, err
	}
	return stored, existed, nil
}

// checkID wants an id that may stand in a key, before a NUL.
func checkID(what, id string) error {
	if id == "" || len(id) > statestore.MaxSessionID || strings.ContainsRune(id, 0) {
		return fmt.Errorf("id of a %s must have 1 to %d bytes and no NUL: %w", what, statestore.MaxSessionID, statestore.ErrInvalid)
	}
	return nil
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
	return s.changeJob(ctx, id, func(w *writer, j *statestore.Job) error {
		if w.now < j.LeaseEnd {
			return heldJob(j)
		}
		j.Holder, j.LeaseEnd, j.Updated = holder, w.now.Add(ttl), w.now
		j.Token++
		j.Attempts++
		return nil
	})
}

func heldJob(j *statestore.Job) error {
	return &statestore.LeaseHeldError{Name: j.ID, Holder: j.Holder, Token: j.Token}
}

// SaveJob stores what the holder of a job reached, and renews its lease. A job
// that has ended stays as it ended.
func (s *Store) SaveJob(ctx context.Context, ref statestore.JobRef, state statestore.JobState, progress []byte, ttl time.Duration) (statestore.Job, error) {
	return s.changeJob(ctx, ref.ID, func(w *writer, j *statestore.Job) error {
		if j.Token != ref.Token {
			return heldJob(j)
		}
		if j.State.Ended() {
			return errAsItIs
		}
		j.State, j.Progress, j.Updated, j.LeaseEnd = state, progress, w.now, w.now.Add(ttl)
		if state.Ended() {
			j.Ended, j.LeaseEnd = w.now, w.now
		}
		return nil
	})
}

// ControlJob stores an operator's wish.
func (s *Store) ControlJob(ctx context.Context, id string, c statestore.Control) (statestore.Job, error) {
	return s.changeJob(ctx, id, func(w *writer, j *statestore.Job) error {
		if j.State.Ended() || j.Control == c {
			return errAsItIs
		}
		j.Control, j.Updated = c, w.now
		return nil
	})
}

// errAsItIs leaves a job unchanged without refusing the call.
var errAsItIs = errors.New("the job stays as it is")

func (s *Store) changeJob(ctx context.Context, id string, fn func(*writer, *statestore.Job) error) (statestore.Job, error) {
	var j statestore.Job
	err := s.write(ctx, func(w *writer) (err error) {
		if j, err = w.job(id); err != nil {
			return err
		}
		if err := fn(w, &j); err != nil {
			return err
		}
		w.putJob(&j)
		return nil
	})
	if err != nil && !errors.Is(err, errAsItIs) {
		return statestore.Job{}, err
	}
	return j, nil
}

func (w *writer) putJob(j *statestore.Job) {
	w.putJSON(bJobs, []byte(j.ID), j)
	w.emit(statestore.Event{Kind: statestore.EventJob, Job: j.ID})
}

func (r *reader) job(id string) (statestore.Job, error) {
	var j statestore.Job
	found, err := r.getJSON(bJobs, []byte(id), &j)
	if err == nil && !found {
		err = fmt.Errorf("job %q: %w", id, statestore.ErrNotFound)
	}
	return j, err
}

// Job reads a job.
func (s *Store) Job(ctx context.Context, id string) (j statestore.Job, now statestore.Millis, err error) {
	err = s.read(ctx, func(r *reader) (err error) {
		now = r.now
		j, err = r.job(id)
		return err
	})
	return j, now, err
}

// Jobs lists all jobs, newest first.
func (s *Store) Jobs(ctx context.Context) (jobs []statestore.Job, now statestore.Millis, err error) {
	err = s.read(ctx, func(r *reader) (err error) {
		now = r.now
		jobs, err = r.jobs()
		return err
	})
	return jobs, now, err
}

func (r *reader) jobs() ([]statestore.Job, error) {
	var jobs []statestore.Job
	err := r.each(bJobs, nil, func(_, b []byte) (bool, error) {
		var j statestore.Job
		if err := decodeJSON(bJobs, b, &j); err != nil {
			return false, err
		}
		jobs = append(jobs, j)
		return true, nil
	})
	slices.SortFunc(jobs, func(a, b statestore.Job) int {
		return cmp.Or(cmp.Compare(b.Created, a.Created), cmp.Compare(b.ID, a.ID))
	})
	return jobs, err
}

// PurgeJobs forgets jobs that ended long ago, with their tasks, tokens and fences.
func (s *Store) PurgeJobs(ctx context.Context, keep time.Duration) (int, error) {
	purged := 0
	err := s.write(ctx, func(w *writer) error {
		purged = 0
		jobs, err := w.jobs()
		if err != nil {
			return err
		}
		for _, j := range jobs {
			if !j.State.Ended() || w.now.Sub(j.Ended) <= keep {
				continue
			}
			purged++
			w.delete(bJobs, []byte(j.ID))
			w.delete(bJobFences, []byte(j.ID))
			if err := w.dropTasksOf(j.ID); err != nil {
				return err
			}
			if err := w.unfenceGone(j); err != nil {
				return err
			}
		}
		return nil
	})
	return purged, err
}

// unfenceGone drops the fences of the sources of a job that are not registered any
// more.
func (w *writer) unfenceGone(j statestore.Job) error {
	for _, o := range j.Sources {
		inst, found, err := w.find(o.Instance)
		if err != nil {
			return err
		}
		if !found || inst.Owner() != o {
			w.delete(bFences, fenceKey(j.Pool, o))
		}
	}
	return nil
}
