package migrations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/statestore"
)

// endWait is how long Reopen waits for the job of an instance that is drained: it
// ends as soon as that is stored of all of its instances.
const endWait = 2 * time.Second

// Reopen lets sessions in again on an instance that a drain has closed, whether it
// was drained or the drain gave up. While a drain of it is under way that is a
// [DrainedError]. One that was warming before goes on to warm, any other one is
// ready.
func (r *Runner) Reopen(ctx context.Context, in *statestore.Instance) (statestore.Instance, error) {
	reopened, err := r.reopen(ctx, in)
	if err != nil {
		return statestore.Instance{}, fmt.Errorf("reopen instance %s: %w", in.ID, err)
	}
	return reopened, nil
}

func (r *Runner) reopen(ctx context.Context, in *statestore.Instance) (statestore.Instance, error) {
	if err := r.awaitDrains(ctx, in); err != nil {
		return statestore.Instance{}, err
	}
	to, err := r.before(ctx, in)
	if err != nil {
		return statestore.Instance{}, err
	}
	// A drain that begins between the two calls closes it again at its next look.
	err = r.store.Fence(ctx, statestore.Fence{Pool: in.Pool, Drop: []statestore.Owner{in.Owner()}})
	if err != nil {
		return statestore.Instance{}, fmt.Errorf("drop its fence: %w", err)
	}
	change := statestore.LifecycleChange{From: []statestore.Lifecycle{in.Lifecycle}, To: to}
	return r.store.SetLifecycle(ctx, in.Owner(), change) //nolint:wrapcheck // the caller does
}

// awaitDrains returns when no drain of the instance is under way. It waits for one
// that has nothing left to do there, and refuses at once for any other.
func (r *Runner) awaitDrains(ctx context.Context, in *statestore.Instance) error {
	waiting, stop := context.WithTimeout(ctx, endWait)
	defer stop()
	retry := backoff{least: 10 * time.Millisecond, most: 200 * time.Millisecond}
	for {
		jobs, _, err := r.store.Jobs(ctx)
		if err != nil {
			return fmt.Errorf("list jobs: %w", err)
		}
		job := drainOf(jobs, in.Owner())
		if job == "" {
			return nil
		}
		if in.Lifecycle != statestore.Drained || sleep(waiting, retry.pause()) != nil {
			return &DrainedError{Instance: in.ID, Job: job}
		}
	}
}

// before is what an instance is to be once no drain keeps it closed. Nobody but the
// worker can say that one is warm which never was.
func (r *Runner) before(ctx context.Context, in *statestore.Instance) (statestore.Lifecycle, error) {
	if in.Job == "" {
		return statestore.Ready, nil
	}
	job, _, err := r.store.Job(ctx, in.Job)
	switch {
	case errors.Is(err, statestore.ErrNotFound):
		return statestore.Ready, nil
	case err != nil:
		return "", fmt.Errorf("read job %s: %w", in.Job, err)
	}
	if m, err := parseMemo(job.Progress); err == nil && m.Was[in.ID] == statestore.Warming {
		return statestore.Warming, nil
	}
	return statestore.Ready, nil
}
