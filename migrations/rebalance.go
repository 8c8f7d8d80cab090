package migrations

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"berth/statestore"
)

// rebalanceOrder is the stored form of a rebalance.
type rebalanceOrder struct {
	RebalanceSpec
	Tenant string `json:"tenant,omitempty"` // of the named sessions
}

// rebalance is one holding of a rebalance job. Without named sessions it measures
// at its begin how many have to leave each instance that is over its bound, and ends
// when as many have left, or fewer were enough.
type rebalance struct {
	work
	order rebalanceOrder
	named []statestore.SessionKey
}

func (r *Runner) newRebalance(h *holding, order rebalanceOrder) *rebalance {
	return &rebalance{
		work:  r.newWork(h, &order.Pace, &order.Prewarm, order.grace()),
		order: order, named: order.named(h.job.Pool),
	}
}

// named are the sessions that were named, nil for none.
func (o *rebalanceOrder) named(pool string) (keys []statestore.SessionKey) {
	for _, id := range o.Sessions {
		keys = append(keys, statestore.SessionKey{Tenant: o.Tenant, Pool: pool, ID: id})
	}
	return keys
}

// run works on the job until it ends; see [drain.run].
func (b *rebalance) run(ctx context.Context) (statestore.JobState, error) {
	if b.job.State == statestore.JobCancelling {
		return b.cancel(ctx)
	}
	if b.job.State == statestore.JobPending {
		b.keeper.enter(statestore.JobPlanning, PhasePlanning)
	}
	if err := b.insist(ctx, b.cancelled, b.begin); err != nil {
		return "", err
	}
	return b.loop(ctx, func(ctx context.Context) (statestore.JobState, error) {
		return b.work.turn(ctx, max(time.Until(b.deadline), callTimeout), b.act)
	}, b.cancel)
}

// begin keeps earlier holders of the job from writing.
func (b *rebalance) begin(ctx context.Context) error {
	fleet, err := b.store.FleetView(ctx)
	if err != nil {
		return fmt.Errorf("read the fleet: %w", err)
	}
	b.setDeadline(fleet.Now)
	if err := b.store.Fence(ctx, statestore.Fence{Pool: b.job.Pool, Job: b.job.Ref()}); err != nil {
		return fmt.Errorf("fence earlier holders: %w", orLost(err))
	}
	return nil
}

// cancel settles what was sent. Nothing else has to be taken back.
func (b *rebalance) cancel(ctx context.Context) (statestore.JobState, error) {
	b.keeper.enter(statestore.JobCancelling, PhaseRestoring)
	b.keeper.wake()
	err := b.insist(ctx, never, func(ctx context.Context) error {
		if err := b.begin(ctx); err != nil {
			return err
		}
		return b.reconcile(ctx)
	})
	if err != nil {
		return "", err
	}
	return statestore.JobCancelled, nil
}

// act plans once and carries the plan out.
func (b *rebalance) act(ctx context.Context) (end statestore.JobState, wait time.Duration, err error) {
	if err := b.reconcile(ctx); err != nil {
		return "", b.retry.pause(), err
	}
	fleet, err := b.store.FleetView(ctx)
	if err != nil {
		return "", b.retry.pause(), fmt.Errorf("read the fleet: %w", err)
	}
	b.version.Store(fleet.Version)
	q := shift{target: b.order.Target}
	if err := b.fill(ctx, &q.question, time.Now()); err != nil {
		return "", b.retry.pause(), err
	}
	var p plan
	var left int
	if b.named != nil {
		p, left, err = b.planErrands(ctx, &q, &fleet)
	} else {
		p, left, err = b.planShift(ctx, &q, &fleet)
	}
	switch {
	case err != nil:
		return "", b.retry.pause(), err
	case left == 0 && len(p.failed) == 0:
		return statestore.JobSucceeded, 0, nil
	case left == 0, !time.Now().Before(b.deadline):
		b.partial(&p)
		return statestore.JobPartial, 0, nil
	}
	b.keeper.enter(statestore.JobRunning, PhaseMoving)
	moved, _, err := b.pass(ctx, &p, time.Now())
	if moved > 0 {
		b.retry.reset()
	}
	return "", min(b.retry.pause(), max(time.Until(b.deadline), 0)+time.Millisecond), err
}

func (b *rebalance) survey(fleet *statestore.FleetView) *survey {
	return &survey{store: b.store, fleet: fleet, pool: b.job.Pool, grace: b.grace}
}

// planErrands plans the named sessions that are not settled, and returns how many
// those are, less those that are given up.
func (b *rebalance) planErrands(ctx context.Context, q *shift, fleet *statestore.FleetView) (plan, int, error) {
	settled := map[int]bool{}
	b.keeper.look(func(m *memo) {
		for _, n := range m.Settled {
			settled[n] = true
		}
	})
	sessions, skipped, err := b.survey(fleet).named(ctx, b.named, settled, b.order.Target)
	if err != nil {
		return plan{}, 0, err
	}
	q.sessions = sessions
	b.keeper.update(func(m *memo) {
		for n, reason := range skipped {
			m.skip(reason, 1)
			m.settle(n)
		}
		m.Total, m.Counted = len(b.named), true
	})
	p := makeErrands(*q)
	return p, len(sessions) - sum(p.failed), nil
}

// planShift plans what the instances' quotas leave, and returns how much that is.
// The first call sets them.
func (b *rebalance) planShift(ctx context.Context, q *shift, fleet *statestore.FleetView) (plan, int, error) {
	if q.snapshot == nil {
		return plan{}, 0, fmt.Errorf("pool %s is not known yet", b.job.Pool)
	}
	b.keeper.look(func(m *memo) { q.quota = m.rest() })
	if err := b.survey(fleet).overloaded(ctx, q, b.order.Instance); err != nil {
		return plan{}, 0, err
	}
	p := makeShift(*q)
	rest := map[string]int{}
	for i := range p.steps {
		rest[p.steps[i].owner.Instance]++
	}
	for i := range p.waiting {
		rest[p.waiting[i].owner.Instance]++
	}
	left := sum(rest)
	b.keeper.update(func(m *memo) {
		m.Quota = maps.Clone(rest)
		for id, n := range m.Taken {
			m.Quota[id] += n
		}
		m.Total, m.Counted = m.done()+left+sum(p.failed), true
	})
	// Nobody may move before it is stored how many should.
	return p, left, b.keeper.sync(ctx)
}

// rest is how many sessions have yet to leave each instance, nil before that was
// measured.
func (m *memo) rest() map[string]int {
	if m.Quota == nil {
		return nil
	}
	rest := map[string]int{}
	for id, n := range m.Quota {
		if n > m.Taken[id] {
			rest[id] = n - m.Taken[id]
		}
	}
	return rest
}

// partial ends a job whose time is over: it names what is left and why.
func (b *rebalance) partial(p *plan) {
	blocked := map[string]int{}
	left := []Leftover{}
	name := func(s *session) (reason string) {
		reason = cmp.Or(p.why[s.key], b.why[s.key], BlockedDeadline)
		if len(left) < leftoversKept {
			left = append(left, Leftover{Instance: s.owner.Instance, Tenant: s.key.Tenant, Session: s.key.ID, Reason: reason})
		}
		return reason
	}
	for i := range p.given {
		name(&p.given[i])
	}
	for i := range p.steps {
		blocked[name(&p.steps[i].session)]++
	}
	for i := range p.waiting {
		blocked[name(&p.waiting[i])]++
	}
	b.keeper.update(func(m *memo) { m.Left, m.Blocked, m.Failed = left, blocked, p.failed })
}
