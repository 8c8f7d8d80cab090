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
	q := shift{target: b.order.Target}
	b.fill(&q.question, time.Now())
	var p plan
	var left int
	if b.named != nil {
		p, left, err = b.planErrands(ctx, &q)
	} else {
		p, left, err = b.planShift(ctx, &q)
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

// planErrands plans the named sessions that are not settled, and returns how many
// those are, less those that are given up.
func (b *rebalance) planErrands(ctx context.Context, q *shift) (plan, int, error) {
	settled := map[int]bool{}
	b.keeper.look(func(m *memo) {
		for _, n := range m.Settled {
			settled[n] = true
		}
	})
	sessions, skipped, err := lookUp(ctx, b.store, b.named, settled, b.order.Target, b.grace)
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

// lookUp reads the named sessions that are not settled. Those that there is nothing
// to do for are returned by their places, with the reason.
func lookUp(
	ctx context.Context, store Store, named []statestore.SessionKey, settled map[int]bool, target string, grace time.Duration,
) (sessions []session, skipped map[int]string, err error) {
	fleet, err := store.FleetView(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the fleet: %w", err)
	}
	counts, err := store.CountSessions(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("count sessions: %w", err)
	}
	skipped = map[int]string{}
	for i, key := range named {
		if settled[i+1] {
			continue
		}
		v, err := store.Lookup(ctx, key)
		if err != nil {
			return nil, nil, fmt.Errorf("look at a session: %w", err)
		}
		if reason := idleErrand(&v, target); reason != "" {
			skipped[i+1] = reason
			continue
		}
		boot := present(&fleet, v.Owner)
		s := seen(&v, boot, v.Owner, grace)
		s.named = i + 1
		if n := counts[statestore.InstanceName{Pool: key.Pool, Instance: v.Owner.Instance}]; boot != nil && n > 0 && s.active() {
			s.load = min(1, float64(boot.LastBeat.Running+boot.LastBeat.Waiting)/float64(n))
		}
		sessions = append(sessions, s)
	}
	return sessions, skipped, nil
}

// idleErrand says why there is nothing to do for a named session, if there is not.
func idleErrand(v *statestore.View, target string) string {
	switch {
	case !v.Exists && v.Tombstone.Reason == statestore.Deleted:
		return SkippedDeleted
	case !v.Exists:
		return SkippedExpired
	case v.Owner.IsZero() || !v.Live():
		return SkippedLapsed
	case v.Owner.Instance == target:
		return SkippedAlreadyMoved
	}
	return ""
}

// planShift plans what the instances' quotas leave, and returns how much that is.
// The first call sets them.
func (b *rebalance) planShift(ctx context.Context, q *shift) (plan, int, error) {
	if q.snapshot == nil {
		return plan{}, 0, fmt.Errorf("pool %s is not known yet", b.job.Pool)
	}
	b.keeper.look(func(m *memo) { q.quota = m.rest() })
	if err := gather(ctx, b.store, q, b.job.Pool, b.order.Instance, b.grace); err != nil {
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

// gather reads the sessions of the instances that are to be relieved: those over
// their bound, of the whole pool or the one that is named, unless a drain is at work
// on them.
func gather(ctx context.Context, store Store, q *shift, pool, only string, grace time.Duration) error {
	q.minStick = q.snapshot.Policy().MinStick
	fleet, err := store.FleetView(ctx)
	if err != nil {
		return fmt.Errorf("read the fleet: %w", err)
	}
	for i := range fleet.Instances {
		in := &fleet.Instances[i]
		_, wanted := q.quota[in.ID]
		leaves := in.Lifecycle == statestore.Draining || in.Lifecycle == statestore.Drained
		switch {
		case in.Pool != pool, only != "" && in.ID != only, leaves, in.Health == statestore.Down:
			continue
		case q.quota != nil && !wanted, q.quota == nil && !q.snapshot.OverBound(in.ID):
			continue
		}
		from := len(q.sessions)
		for v, err := range store.SessionsOf(ctx, pool, in.ID) {
			if err != nil {
				return fmt.Errorf("read the sessions of %s: %w", in.ID, err)
			}
			q.sessions = append(q.sessions, seen(&v, in, in.Owner(), grace))
		}
		shareLoad(q.sessions[from:], in.LastBeat.Running+in.LastBeat.Waiting)
	}
	return nil
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
