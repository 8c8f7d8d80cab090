package migrations

import (
	"context"
	"fmt"
	"time"

	"berth/statestore"
)

// previewMoves bounds how many moves a preview names; its counts are whole.
const previewMoves = 1000

// Preview is what a job would do if it began now: the answer to a dry run.
type Preview struct {
	Pool     string         `json:"pool"`
	Sessions int            `json:"sessions"` // that would move
	Bytes    uint64         `json:"bytes"`    // of their contexts
	Tokens   uint64         `json:"tokens"`   // what their targets would compute, sooner or later
	Unbound  int            `json:"unbound"`  // lapsed, or detached: nobody computes anything for them
	Blocked  map[string]int `json:"blocked"`  // sessions that could not move now, by reason
	Waiting  int            `json:"waiting"`  // sessions that the job would wait for: lingering ones

	PrewarmSessions int    `json:"prewarm_sessions"` // of Sessions
	PrewarmTokens   uint64 `json:"prewarm_tokens"`   // of Tokens, before their sessions move

	// OverBound are the instances that a rebalance by load would relieve; absent of others.
	OverBound []string `json:"over_bound,omitzero"`

	Targets map[string]TargetShare `json:"targets"`
	Moves   []PlannedMove          `json:"moves"` // in order, the first 1,000
}

// TargetShare is what one target would get.
type TargetShare struct {
	Sessions int    `json:"sessions"`
	Tokens   uint64 `json:"tokens"`
}

// PlannedMove is one session that would leave.
type PlannedMove struct {
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	From    string `json:"from"`
	To      string `json:"to,omitempty"` // empty: unbound
	Tokens  uint64 `json:"tokens"`
	IdleMS  int64  `json:"idle_ms"`
	Prewarm bool   `json:"prewarm,omitempty"`
}

// PreviewDrain plans a drain without beginning it. It refuses what
// [Runner.CreateDrain] would refuse.
func (r *Runner) PreviewDrain(ctx context.Context, request DrainSpec) (Preview, error) {
	spec := request.withDefaults()
	p, err := r.previewDrain(ctx, &spec)
	if err != nil {
		return Preview{}, fmt.Errorf("preview drain: %w", err)
	}
	return p, nil
}

func (r *Runner) previewDrain(ctx context.Context, spec *DrainSpec) (Preview, error) {
	if err := spec.validate(); err != nil {
		return Preview{}, err
	}
	fleet, err := r.store.FleetView(ctx)
	if err != nil {
		return Preview{}, err
	}
	pool, sources, err := chosen(&fleet, spec.Instances)
	if err != nil {
		return Preview{}, err
	}
	if spec.Mode != ModeDetach {
		jobs, _, err := r.store.Jobs(ctx)
		if err != nil {
			return Preview{}, err
		}
		if err := requireTarget(&fleet, jobs, pool, spec.Instances); err != nil {
			return Preview{}, r.weigh(ctx, err, pool, spec.Instances)
		}
	}
	q := question{mode: spec.Mode, avoid: spec.Avoid, sources: spec.Instances}
	r.foresee(&q, pool, spec.grace(), &spec.Prewarm)
	look := survey{store: r.store, fleet: &fleet, pool: pool, grace: q.grace}
	for _, s := range sources {
		found, err := look.drained(ctx, s)
		if err != nil {
			return Preview{}, err
		}
		q.sessions = append(q.sessions, found...)
	}
	return newPreview(pool, len(q.sessions), makePlan(q)), nil
}

// foresee puts into a question what a job that begins now would know.
func (r *Runner) foresee(q *question, pool string, grace time.Duration, prewarm *Prewarm) {
	q.snapshot, q.grace, q.idleBelow = r.o.Snapshot(pool), grace, prewarm.idleBelow()
	q.budget = ^uint64(0)
	if prewarm.MaxTokens > 0 {
		q.budget = prewarm.MaxTokens
	}
	q.answers = func(statestore.Owner) bool { return true }
}

// PreviewRebalance plans a rebalance without beginning it. It refuses what
// [Runner.CreateRebalance] would refuse, but for one that is under way.
func (r *Runner) PreviewRebalance(ctx context.Context, pool, tenant string, request RebalanceSpec) (Preview, error) {
	order := rebalanceOrder{RebalanceSpec: request.withDefaults(), Tenant: tenant}
	p, err := r.previewRebalance(ctx, pool, &order)
	if err != nil {
		return Preview{}, fmt.Errorf("preview rebalance: %w", err)
	}
	return p, nil
}

func (r *Runner) previewRebalance(ctx context.Context, pool string, order *rebalanceOrder) (Preview, error) {
	if _, err := r.checkRebalance(ctx, pool, order); err != nil {
		return Preview{}, err
	}
	fleet, err := r.store.FleetView(ctx)
	if err != nil {
		return Preview{}, err
	}
	q := shift{target: order.Target}
	r.foresee(&q.question, pool, order.grace(), &order.Prewarm)
	look := survey{store: r.store, fleet: &fleet, pool: pool, grace: q.grace}
	if len(order.Sessions) == 0 {
		if q.snapshot == nil {
			return Preview{}, fmt.Errorf("pool %s: %w", pool, statestore.ErrNotFound)
		}
		if err := look.overloaded(ctx, &q, order.Instance); err != nil {
			return Preview{}, err
		}
		p := makeShift(q)
		v := newPreview(pool, len(p.steps)+len(p.waiting), p)
		v.OverBound = look.relieved(&q, order.Instance)
		return v, nil
	}
	sessions, skipped, err := look.named(ctx, order.named(pool), nil, order.Target)
	if err != nil {
		return Preview{}, err
	}
	q.sessions = sessions
	p := newPreview(pool, len(sessions), makeErrands(q))
	for _, reason := range skipped {
		p.Blocked[reason]++
	}
	return p, nil
}

// newPreview counts a plan that was made for so many sessions.
func newPreview(pool string, sessions int, p plan) Preview {
	v := Preview{Pool: pool, Blocked: p.blocked, Targets: map[string]TargetShare{}, Moves: []PlannedMove{}}
	v.Waiting = sessions - len(p.steps) - len(p.waiting)
	for i := range p.steps {
		s := &p.steps[i]
		if len(v.Moves) < previewMoves {
			v.Moves = append(v.Moves, PlannedMove{
				Tenant: s.key.Tenant, Session: s.key.ID, From: s.owner.Instance, To: s.target.Instance,
				Tokens: s.prefill(), IdleMS: s.idle.Milliseconds(), Prewarm: s.prewarm,
			})
		}
		if s.target.IsZero() {
			v.Unbound++
			continue
		}
		v.Sessions++
		v.Bytes += s.bytes
		v.Tokens += s.prefill()
		share := v.Targets[s.target.Instance]
		v.Targets[s.target.Instance] = TargetShare{share.Sessions + 1, share.Tokens + s.prefill()}
		if s.prewarm {
			v.PrewarmSessions++
			v.PrewarmTokens += s.prefill()
		}
	}
	return v
}
