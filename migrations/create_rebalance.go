package migrations

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"berth/statestore"
)

// CreateRebalance stores a rebalance in a pool; tenant is whose the named sessions
// are. While one that moves by load is under way in the pool, the same request again
// returns it, with existed true, and another is a [BusyError]; named sessions are
// everybody's business. An instance that is not registered there is an
// [UnknownInstanceError], a target that may not take sessions a [NoTargetError],
// anything else wrong with the request an [InvalidError].
func (r *Runner) CreateRebalance(ctx context.Context, pool, tenant string, request RebalanceSpec) (statestore.Job, bool, error) {
	order := rebalanceOrder{RebalanceSpec: request.withDefaults(), Tenant: tenant}
	job, existed, err := r.createRebalance(ctx, pool, &order)
	if err != nil {
		return statestore.Job{}, false, fmt.Errorf("create rebalance: %w", err)
	}
	r.rouse()
	return job, existed, nil
}

func (r *Runner) createRebalance(ctx context.Context, pool string, order *rebalanceOrder) (job statestore.Job, existed bool, err error) {
	job = statestore.Job{Kind: KindRebalance, Pool: pool}
	if job.Sources, err = r.checkRebalance(ctx, pool, order); err != nil {
		return job, false, err
	}
	if len(order.Sessions) == 0 {
		jobs, _, err := r.store.Jobs(ctx)
		if err != nil {
			return job, false, err
		}
		if other, err := byLoad(jobs, pool, order); other != nil || err != nil {
			return *other, true, err
		}
	}
	return r.storeJob(ctx, job, order, order.deadline())
}

// checkRebalance holds a request to what is registered, and returns the instance it
// names.
func (r *Runner) checkRebalance(ctx context.Context, pool string, order *rebalanceOrder) (sources []statestore.Owner, err error) {
	if err := order.validate(); err != nil {
		return nil, err
	}
	for i, id := range order.Sessions {
		key := statestore.SessionKey{Tenant: order.Tenant, Pool: pool, ID: id}
		if key.Validate() != nil {
			return nil, invalid(fmt.Sprintf("sessions[%d]", i), "must be 1 to %d bytes of UTF-8 without control characters", statestore.MaxSessionID)
		}
	}
	fleet, err := r.store.FleetView(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range []string{order.Instance, order.Target} {
		i := slices.IndexFunc(fleet.Instances, func(in statestore.Instance) bool { return in.ID == id && in.Pool == pool })
		switch {
		case id == "":
		case i < 0:
			return nil, &UnknownInstanceError{Instance: id, Pool: pool}
		case id == order.Instance:
			sources = []statestore.Owner{fleet.Instances[i].Owner()}
		case !mayTakeNew(&fleet.Instances[i]):
			return nil, &NoTargetError{Candidates: []string{id}, Sessions: len(order.Sessions), Why: whyNot(&fleet.Instances[i])}
		}
	}
	return sources, nil
}

// byLoad finds the rebalance that moves by load in the pool. Two of them would move
// twice what is too much.
func byLoad(jobs []statestore.Job, pool string, order *rebalanceOrder) (*statestore.Job, error) {
	want, err := json.Marshal(order)
	if err != nil {
		return &statestore.Job{}, fmt.Errorf("encode its request: %w", err)
	}
	for i := range jobs {
		j := &jobs[i]
		var other rebalanceOrder
		if j.Kind != KindRebalance || j.Pool != pool || j.State.Ended() || json.Unmarshal(j.Spec, &other) != nil || len(other.Sessions) > 0 {
			continue
		}
		if bytes.Equal(want, j.Spec) {
			return j, nil
		}
		return &statestore.Job{}, &BusyError{Job: j.ID, Kind: KindRebalance}
	}
	return nil, nil
}
