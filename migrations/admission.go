package migrations

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"berth/statestore"
	"berth/statestore/line"
)

// admit calls create while nobody else creates a drain in the pool, in any process:
// each would else count on instances that the others are about to close.
func (r *Runner) admit(ctx context.Context, pool string, create func(context.Context) error) error {
	turn, err := line.Join(ctx, r.store, "drains/"+pool, r.o.Holder)
	if err != nil {
		return err
	}
	return turn.Do(ctx, create)
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
