package migrations

import (
	"context"
	"errors"
	"time"

	"berth/routing"
	"berth/statestore"
)

// watchLease elects the one process that begins rebalances by itself.
const watchLease = "rebalance"

// watchEvery is how often loads are looked at.
const watchEvery = time.Second

// overload follows which instances are over their bound, and since when. It decides
// and does not act: the time and what was seen are arguments.
type overload struct {
	since map[statestore.Owner]time.Time
}

// step looks at a pool once more, and returns the instances that have been over
// their bound for longer than the time. Their time begins anew.
func (o *overload) step(now time.Time, s *routing.Snapshot, after time.Duration) (due []string) {
	for in := range s.Instances() {
		who := statestore.Owner{Instance: in.ID, Incarnation: in.Incarnation}
		since, known := o.since[who]
		switch {
		case !s.OverBound(in.ID) || !in.State.MayServeBound():
			delete(o.since, who)
		case !known:
			o.since[who] = now
		case now.Sub(since) > after:
			due = append(due, in.ID)
			delete(o.since, who)
		}
	}
	return due
}

func (o *overload) forget() { o.since = map[statestore.Owner]time.Time{} }

// watch begins a rebalance of whatever has been over its bound for too long, in
// pools whose policy asks for that. It watches anew with every holding of the lease.
func (r *Runner) watch(ctx context.Context) {
	seen := &overload{}
	seen.forget()
	var held statestore.Lease
	for sleep(ctx, watchEvery) == nil {
		pools := r.watched()
		if len(pools) == 0 {
			seen.forget()
			continue
		}
		lease, err := r.store.AcquireLease(ctx, watchLease, r.o.Holder, r.o.Lease)
		if err != nil || lease.Token != held.Token {
			seen.forget()
		}
		if err != nil {
			continue // another process watches, or the store is away
		}
		held = lease
		for pool, after := range pools {
			if snapshot := r.o.Snapshot(pool); snapshot != nil {
				for _, id := range seen.step(time.Now(), snapshot, after) {
					r.relieve(ctx, pool, id)
				}
			}
		}
	}
	if held.Holder != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		_ = r.store.ReleaseLease(ctx, held)
	}
}

// watched are the pools that rebalance by themselves, with how long they wait.
func (r *Runner) watched() map[string]time.Duration {
	pools := map[string]time.Duration{}
	for _, pool := range r.o.Pools() {
		if after := r.o.AutoRebalance(pool); after > 0 {
			pools[pool] = after
		}
	}
	return pools
}

func (r *Runner) relieve(ctx context.Context, pool, instance string) {
	job, existed, err := r.CreateRebalance(ctx, pool, "", RebalanceSpec{Instance: instance})
	var busy *BusyError
	switch {
	case errors.As(err, &busy), existed:
	case err != nil:
		r.o.Logger.WarnContext(ctx, "no rebalance of an instance over its bound", "pool", pool, "instance", instance, "reason", err.Error())
	default:
		r.o.Logger.InfoContext(ctx, "instance is over its bound and is relieved", "pool", pool, "instance", instance, "job", job.ID)
	}
}
