package migrations

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"berth/statestore"
)

// view is what one look saw.
type view struct {
	at       time.Time
	fleet    statestore.FleetView
	sessions []session
	bound    map[string]int // sessions by source
}

// untilNextStage is the time until the last tenth begins, or else until the end.
func (d *drain) untilNextStage() time.Duration {
	if left := time.Until(d.endgame); left > 0 {
		return left
	}
	// After the end there is one more look, which has to have its time.
	return max(time.Until(d.deadline), callTimeout)
}

// act is a turn without its wait.
func (d *drain) act(ctx context.Context) (end statestore.JobState, wait time.Duration, err error) {
	now, err := d.look(ctx)
	if err != nil {
		return "", d.retry.pause(), err
	}
	if !allClosed(&now.fleet, &d.job) {
		end, err := d.closeAgain(ctx)
		return end, d.retry.pause(), err
	}
	useful, drained, err := d.advance(ctx, now)
	switch {
	case err != nil:
		return "", d.retry.pause(), err
	case drained:
		return statestore.JobSucceeded, 0, nil
	case !time.Now().Before(d.deadline):
		return d.partial(now), 0, nil
	}
	moved, cut := 0, false
	if len(now.sessions) == 0 {
		d.foretell(question{})
		d.keeper.wait(time.Time{})
	} else {
		var q question
		if q, err = d.question(ctx, now); err != nil {
			return "", d.retry.pause(), err
		}
		d.foretell(q)
		p := makePlan(q)
		if sum(p.failed) == len(now.sessions) {
			return d.partial(now), 0, nil
		}
		moved, cut, err = d.pass(ctx, &p, now.at)
	}
	if moved > 0 {
		d.retry.reset()
	}
	if cut {
		return "", 0, err
	}
	wait = min(d.retry.pause(), max(time.Until(d.deadline), 0)+time.Millisecond)
	if useful > 0 {
		wait = min(wait, useful)
	}
	return "", wait, err
}

// closeAgain closes the instances when somebody has opened one. What was seen of them
// proves nothing any more.
func (d *drain) closeAgain(ctx context.Context) (statestore.JobState, error) {
	for _, s := range d.sources {
		*s = source{owner: s.owner}
	}
	return d.closeSources(ctx)
}

// question puts what was seen into words for the planner.
func (d *drain) question(ctx context.Context, now *view) (question, error) {
	q := question{
		sessions: now.sessions, mode: d.spec.Mode, avoid: d.spec.Avoid,
		cold: !time.Now().Before(d.endgame) && d.spec.AtDeadline == DeadlineCommit,
	}
	if err := d.fill(ctx, &q, now.at); err != nil {
		return q, err
	}
	for _, s := range d.sources {
		q.sources = append(q.sources, s.owner.Instance)
	}
	return q, nil
}

// look reads the registry and every session that is still bound to a source. It
// settles first what an earlier holding, or an unclear answer, left open.
func (d *drain) look(ctx context.Context) (*view, error) {
	if err := d.reconcile(ctx); err != nil {
		return nil, err
	}
	fleet, err := d.store.FleetView(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the fleet: %w", err)
	}
	d.version.Store(fleet.Version)
	now := &view{at: time.Now(), fleet: fleet, bound: map[string]int{}}
	still := map[statestore.SessionKey]intent{}
	for _, s := range d.sources {
		if err := d.scan(ctx, s, now, still); err != nil {
			return nil, err
		}
	}
	return now, d.account(ctx, now, still)
}

// scan reads the sessions of one source.
func (d *drain) scan(ctx context.Context, s *source, now *view, still map[statestore.SessionKey]intent) error {
	look := survey{store: d.store, fleet: &now.fleet, pool: d.job.Pool, grace: d.grace}
	found, err := look.drained(ctx, s.owner)
	if err != nil {
		return err
	}
	for i := range found {
		if _, twice := still[found[i].key]; twice {
			continue
		}
		still[found[i].key] = (&step{session: found[i]}).intent(false)
		now.sessions = append(now.sessions, found[i])
		now.bound[s.owner.Instance]++
	}
	return nil
}

// account counts the sessions that left since the last look without a step of
// this job, and measures the total at the first.
func (d *drain) account(ctx context.Context, now *view, still map[statestore.SessionKey]intent) error {
	for _, in := range d.mover.vanished(still) {
		switch r := d.mover.recount(ctx, in, false); {
		case r.err != nil:
			return r.err
		case r.blocked == BlockedStoreError:
			return errors.New("it is not known where a session went")
		}
	}
	d.mover.expect(still)
	d.keeper.note(func(m *memo) {
		found := m.done() + len(now.sessions)
		if !m.Counted || found > m.Total {
			m.Counted, m.Total = true, found
		}
		if len(now.sessions) == 0 {
			m.Blocked = nil
		}
		if lost := m.Total - found; lost > 0 {
			// They left while nobody held the job, and nobody knows their names.
			m.skip(SkippedAlreadyMoved, lost)
		}
	})
	return nil
}

// advance brings every source as far as it has come. drained says that all of
// them are; wait is when it is worth looking again, 0 for not known.
func (d *drain) advance(ctx context.Context, now *view) (wait time.Duration, drained bool, err error) {
	unproven := 0
	d.keeper.look(func(m *memo) { unproven = len(m.Unproven) })
	drained = true
	for _, s := range d.sources {
		got := s.step(sighting{
			now: now.at, bound: now.bound[s.owner.Instance], unproven: unproven,
			instance: present(&now.fleet, s.owner),
			hints:    d.o.LongestHint, grace: d.spec.grace(),
		})
		if got.drained {
			if err := d.declare(ctx, s, now); err != nil {
				return 0, false, err
			}
		}
		d.tell(s, got, now)
		drained = drained && got.drained
		if got.wait > 0 && (wait == 0 || got.wait < wait) {
			wait = got.wait
		}
	}
	return wait, drained, nil
}

// declare says that the source is safe to stop.
func (d *drain) declare(ctx context.Context, s *source, now *view) error {
	in := present(&now.fleet, s.owner)
	if in == nil || in.Lifecycle == statestore.Drained {
		return nil
	}
	_, err := d.store.SetLifecycle(ctx, s.owner, statestore.LifecycleChange{
		From: []statestore.Lifecycle{statestore.Draining}, To: statestore.Drained, Job: d.job.Ref(),
	})
	if err != nil && !gone(err) {
		return fmt.Errorf("declare %s drained: %w", s.owner.Instance, orLost(err))
	}
	d.log.InfoContext(ctx, "instance is drained", "job", d.job.ID, "instance", s.owner.Instance)
	return nil
}

// tell puts the standing of a source into the progress.
func (d *drain) tell(s *source, got standing, now *view) {
	p := InstanceProgress{State: "draining", Sessions: now.bound[s.owner.Instance], Because: got.because}
	switch {
	case present(&now.fleet, s.owner) == nil:
		p.State = "gone"
	case got.drained:
		p.State = "drained"
	}
	phase := PhaseSettling
	if len(now.sessions) > 0 {
		phase = PhaseMoving
	}
	d.keeper.enter(statestore.JobRunning, phase)
	d.keeper.note(func(m *memo) {
		instances := maps.Clone(m.Instances) // those who were told hold the old map
		if instances == nil {
			instances = map[string]InstanceProgress{}
		}
		instances[s.owner.Instance] = p
		m.Instances = instances
	})
}
