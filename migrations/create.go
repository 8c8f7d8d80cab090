package migrations

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/statestore"
)

// closeWait is how long CreateDrain waits for its instances to be closed.
const closeWait = 5 * time.Second

// CreateDrain stores a drain of the present boots of the named instances and
// waits until they take no new sessions, at most a few seconds. While a drain of
// all of them is under way that job is returned instead, with existed true; one
// of only some of them is a [BusyError]. Unless the mode is detach, a pool where
// every other instance takes no sessions, or is drained by a job that is under way,
// is a [NoTargetError]. An instance that is not registered is an
// [UnknownInstanceError], anything else wrong with the request an [InvalidError].
func (r *Runner) CreateDrain(ctx context.Context, request DrainSpec) (job statestore.Job, existed bool, err error) {
	spec := request.withDefaults()
	if err := spec.validate(); err != nil {
		return statestore.Job{}, false, fmt.Errorf("create drain: %w", err)
	}
	job, existed, err = r.createDrain(ctx, &spec)
	if err != nil {
		return statestore.Job{}, false, fmt.Errorf("create drain: %w", err)
	}
	r.rouse()
	return r.closed(ctx, job), existed, nil
}

func (r *Runner) createDrain(ctx context.Context, spec *DrainSpec) (job statestore.Job, existed bool, err error) {
	fleet, err := r.store.FleetView(ctx)
	if err != nil {
		return job, false, err
	}
	pool, _, err := chosen(&fleet, spec.Instances)
	if err != nil {
		return job, false, err
	}
	err = r.admit(ctx, pool, func(ctx context.Context) (err error) {
		job, existed, err = r.storeDrain(ctx, spec)
		return err
	})
	return job, existed, r.weigh(ctx, err, pool, spec.Instances)
}

// storeDrain judges a drain by the present fleet and jobs, and stores it.
func (r *Runner) storeDrain(ctx context.Context, spec *DrainSpec) (job statestore.Job, existed bool, err error) {
	fleet, err := r.store.FleetView(ctx)
	if err != nil {
		return job, false, err
	}
	pool, sources, err := chosen(&fleet, spec.Instances)
	if err != nil {
		return job, false, err
	}
	jobs, _, err := r.store.Jobs(ctx)
	if err != nil {
		return job, false, err
	}
	if job, existed, err = underWay(jobs, pool, sources); existed || err != nil {
		return job, existed, err
	}
	if spec.Mode != ModeDetach {
		if err := requireTarget(&fleet, jobs, pool, spec.Instances); err != nil {
			return job, false, err
		}
	}
	return r.storeJob(ctx, statestore.Job{Kind: KindDrain, Pool: pool, Sources: sources}, spec, spec.deadline())
}

// storeJob gives a job its name and stores it.
func (r *Runner) storeJob(ctx context.Context, job statestore.Job, spec any, deadline time.Duration) (statestore.Job, bool, error) {
	doc, err := json.Marshal(spec)
	if err != nil {
		return statestore.Job{}, false, fmt.Errorf("encode its request: %w", err)
	}
	job.ID, job.Spec = job.Kind+"-"+strings.ToLower(rand.Text()[:16]), doc
	return r.store.CreateJob(ctx, job, deadline)
}

// chosen finds the present boots of the instances, which are in one pool.
func chosen(fleet *statestore.FleetView, ids []string) (pool string, sources []statestore.Owner, err error) {
	for _, id := range slices.Sorted(slices.Values(ids)) {
		i := slices.IndexFunc(fleet.Instances, func(in statestore.Instance) bool { return in.ID == id })
		if i < 0 {
			return "", nil, &UnknownInstanceError{Instance: id}
		}
		in := &fleet.Instances[i]
		if pool != "" && pool != in.Pool {
			return "", nil, invalid("instances", "must be of one pool: those of %s and %s need a drain each", pool, in.Pool)
		}
		pool, sources = in.Pool, append(sources, in.Owner())
	}
	return pool, sources, nil
}

// underWay finds the drain that has all of the sources among its own.
func underWay(jobs []statestore.Job, pool string, sources []statestore.Owner) (statestore.Job, bool, error) {
	for _, j := range jobs {
		if j.Kind != KindDrain || j.Pool != pool || j.State.Ended() {
			continue
		}
		var shared []string
		for _, s := range sources {
			if slices.Contains(j.Sources, s) {
				shared = append(shared, s.Instance)
			}
		}
		switch len(shared) {
		case 0:
		case len(sources):
			return j, true, nil
		default:
			return statestore.Job{}, false, &BusyError{Job: j.ID, Kind: KindDrain, Instances: shared}
		}
	}
	return statestore.Job{}, false, nil
}

// mayTakeNew reports whether an instance may be given sessions.
func mayTakeNew(in *statestore.Instance) bool {
	return in.Lifecycle == statestore.Ready && in.Health == statestore.Healthy && in.EffectiveWeight() > 0
}

// whyNot says why an instance may not be given sessions.
func whyNot(in *statestore.Instance) string {
	switch {
	case in.Lifecycle != statestore.Ready:
		return "it is " + string(in.Lifecycle)
	case in.Health != statestore.Healthy:
		return "it is " + string(in.Health)
	}
	return "its weight is 0"
}

// closed waits until a job's instances are closed for new sessions, so that
// whoever asked for the drain knows that none comes after the answer. A job that
// nobody has begun in time is answered as it is.
func (r *Runner) closed(ctx context.Context, job statestore.Job) statestore.Job {
	ctx, cancel := context.WithTimeout(ctx, closeWait)
	defer cancel()
	retry := backoff{least: 5 * time.Millisecond, most: 100 * time.Millisecond}
	for {
		if now, _, err := r.store.Job(ctx, job.ID); err == nil {
			job = now
		}
		fleet, err := r.store.FleetView(ctx)
		if job.State.Ended() || err == nil && allClosed(&fleet, &job) || sleep(ctx, retry.pause()) != nil {
			return job
		}
	}
}

func allClosed(fleet *statestore.FleetView, job *statestore.Job) bool {
	for _, s := range job.Sources {
		in := present(fleet, s)
		open := in != nil && in.Lifecycle != statestore.Drained &&
			(in.Lifecycle != statestore.Draining || in.Job != job.ID)
		if open {
			return false
		}
	}
	return true
}

// Pause stops a job's moves until it is resumed; its time goes on. A job that has
// ended is an [EndedJobError].
func (r *Runner) Pause(ctx context.Context, id string) (statestore.Job, error) {
	return r.control(ctx, id, statestore.ControlPause)
}

// Cancel ends a job and gives its instances back; sessions that moved stay where
// they are. The job is cancelled when its state says so, which is soon; one that has
// ended stays as it ended.
func (r *Runner) Cancel(ctx context.Context, id string) (statestore.Job, error) {
	return r.control(ctx, id, statestore.ControlCancel)
}

// Resume lets a paused job go on. A job that has ended is an [EndedJobError].
func (r *Runner) Resume(ctx context.Context, id string) (statestore.Job, error) {
	return r.control(ctx, id, statestore.ControlNone)
}

// control stores an operator's wish. A cancel is not taken back.
func (r *Runner) control(ctx context.Context, id string, c statestore.Control) (statestore.Job, error) {
	job, _, err := r.store.Job(ctx, id)
	if err == nil && job.Control != statestore.ControlCancel {
		job, err = r.store.ControlJob(ctx, id, c)
	}
	if err != nil {
		return statestore.Job{}, fmt.Errorf("control job %s: %w", id, err)
	}
	if job.State.Ended() && c != statestore.ControlCancel {
		return statestore.Job{}, fmt.Errorf("control job %s: %w", id, &EndedJobError{Job: id, State: job.State})
	}
	r.nudge(id)
	return job, nil
}

// isHeld reports whether the error says that another process holds a job.
func isHeld(err error) bool {
	var held *statestore.LeaseHeldError
	return errors.As(err, &held)
}
