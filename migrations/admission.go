package migrations

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/statestore"
)

// Drains of one pool are created one after the other, in every process: each would
// else count on instances that the others are about to close. Whoever creates one
// holds a lease, for much longer than it may take: a process that died with it keeps
// others waiting for so long.
const (
	admissionLease = 10 * time.Second
	admissionTime  = admissionLease / 2 // until a creation is given up
	admissionWait  = admissionLease + admissionTime
)

// admit calls create while nobody else creates a drain in the pool.
func (r *Runner) admit(ctx context.Context, pool string, create func(context.Context) error) error {
	held, err := r.awaitAdmission(ctx, pool)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		_ = r.store.ReleaseLease(ctx, held.Lease) // it ends by itself
	}()
	ctx, cancel := context.WithDeadline(ctx, held.until)
	defer cancel()
	return create(ctx)
}

// admission is a turn at creating drains.
type admission struct {
	statestore.Lease
	until time.Time
}

// awaitAdmission waits for the turn at creating drains. When nobody gives way in time
// that is a [statestore.ErrUnavailable].
func (r *Runner) awaitAdmission(ctx context.Context, pool string) (admission, error) {
	waiting, stop := context.WithTimeout(ctx, admissionWait)
	defer stop()
	retry := backoff{least: 5 * time.Millisecond, most: 100 * time.Millisecond}
	holder := r.o.Holder + "/" + rand.Text() // a process waits for itself, too
	for {
		until := time.Now().Add(admissionTime)
		lease, err := r.store.AcquireLease(ctx, "drains/"+pool, holder, admissionLease)
		switch {
		case err == nil:
			return admission{lease, until}, nil
		case !isHeld(err):
			return admission{}, fmt.Errorf("wait for other drains of pool %s to begin: %w", pool, err)
		}
		if err := sleep(waiting, retry.pause()); err != nil {
			return admission{}, fmt.Errorf("wait for other drains of pool %s to begin: %w", pool, errors.Join(statestore.ErrUnavailable, err))
		}
	}
}

// requireTarget refuses a drain whose sessions nobody could take: every other instance
// of the pool takes none, or is one that a job closes.
func requireTarget(fleet *statestore.FleetView, jobs []statestore.Job, pool string, ids []string) error {
	refusal := &NoTargetError{}
	for i := range fleet.Instances {
		in := &fleet.Instances[i]
		if in.Pool != pool || slices.Contains(ids, in.ID) {
			continue
		}
		takes := in.Lifecycle == statestore.Ready && in.Standing() == statestore.Healthy && in.EffectiveWeight() > 0
		if takes && drainOf(jobs, in.Owner()) == "" {
			return nil
		}
		refusal.Candidates = append(refusal.Candidates, in.ID)
	}
	return refusal
}

// drainOf is the drain of the boot that is under way, "" for none.
func drainOf(jobs []statestore.Job, who statestore.Owner) string {
	for i := range jobs {
		j := &jobs[i]
		if j.Kind == KindDrain && !j.State.Ended() && slices.Contains(j.Sources, who) {
			return j.ID
		}
	}
	return ""
}

// weigh counts the sessions that a refused drain would have to move.
func (r *Runner) weigh(ctx context.Context, refusal error, pool string, ids []string) error {
	var none *NoTargetError
	if !errors.As(refusal, &none) {
		return refusal
	}
	for _, id := range ids {
		for _, err := range r.store.SessionsOf(ctx, pool, id) {
			if err != nil {
				return fmt.Errorf("count the sessions of %s: %w", id, err)
			}
			none.Sessions++
		}
	}
	return refusal
}
