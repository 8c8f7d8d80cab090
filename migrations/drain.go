package migrations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"berth/statestore"
)

// drain is one holding of a drain job.
type drain struct {
	work
	spec    DrainSpec
	sources []*source
	endgame time.Time // when the last part of the time begins
}

func (r *Runner) newDrain(h *holding, spec DrainSpec) *drain {
	d := &drain{work: r.newWork(h, &spec.Pace, &spec.Prewarm, spec.grace()), spec: spec}
	for _, s := range h.job.Sources {
		d.sources = append(d.sources, &source{owner: s})
	}
	return d
}

// run works on the job until it ends, and returns the state it ended in. Its
// error says why the holding ended before the job.
func (d *drain) run(ctx context.Context) (statestore.JobState, error) {
	if d.job.State == statestore.JobCancelling {
		return d.cancel(ctx)
	}
	if end, err := d.begin(ctx); end != "" || err != nil {
		return end, err
	}
	return d.loop(ctx, d.turn, d.cancel)
}

// turn looks at everything once, acts on it, and waits until it is worth looking
// again.
func (d *drain) turn(ctx context.Context) (statestore.JobState, error) {
	return d.work.turn(ctx, d.untilNextStage(), d.act)
}

// begin closes the instances for new sessions. When it returns, their fence is in
// every partition, no earlier holder of the job can write any more, and the
// registry says that they are draining.
func (d *drain) begin(ctx context.Context) (statestore.JobState, error) {
	if d.job.State == statestore.JobPending {
		d.keeper.enter(statestore.JobPlanning, PhaseFencing)
	}
	end := statestore.JobState("")
	err := d.insist(ctx, d.cancelled, func(ctx context.Context) (err error) {
		end, err = d.closeSources(ctx)
		return err
	})
	return end, err
}

func (d *drain) closeSources(ctx context.Context) (statestore.JobState, error) {
	fleet, err := d.store.FleetView(ctx)
	if err != nil {
		return "", fmt.Errorf("read the fleet: %w", err)
	}
	d.setTimes(fleet.Now)
	rival, err := d.rival(ctx, &fleet)
	switch {
	case err != nil:
		return "", err
	case rival != "":
		d.keeper.update(func(m *memo) { m.Reason = rival })
		return statestore.JobFailed, nil
	}
	if err := d.remember(ctx, &fleet); err != nil {
		return "", err
	}
	err = d.store.Fence(ctx, statestore.Fence{Pool: d.job.Pool, Add: d.owners(), Job: d.job.Ref()})
	if err != nil {
		return "", fmt.Errorf("fence the instances: %w", orLost(err))
	}
	for _, s := range d.sources {
		if err := d.setDraining(ctx, present(&fleet, s.owner)); err != nil {
			return "", err
		}
	}
	return "", nil
}

// provingTime is how long it takes to hear from an instance that it is at rest, after
// the longest hint has passed.
const provingTime = 5 * time.Second

// setTimes begins the stages of the job's time. The last is a tenth of it, or as long as
// it takes to become safe to stop after the last move, but at most half.
func (d *drain) setTimes(now statestore.Millis) {
	d.setDeadline(now)
	total := d.job.Deadline.Sub(d.job.Created)
	d.endgame = d.deadline.Add(-min(total/2, max(total/10, d.o.LongestHint+provingTime)))
}

func (d *drain) owners() []statestore.Owner {
	owners := make([]statestore.Owner, len(d.sources))
	for i, s := range d.sources {
		owners[i] = s.owner
	}
	return owners
}

// rival says which other job, still under way, drains one of the sources.
func (d *drain) rival(ctx context.Context, fleet *statestore.FleetView) (string, error) {
	for _, s := range d.sources {
		in := present(fleet, s.owner)
		if in == nil || in.Lifecycle != statestore.Draining || in.Job == "" || in.Job == d.job.ID {
			continue
		}
		other, _, err := d.store.Job(ctx, in.Job)
		switch {
		case errors.Is(err, statestore.ErrNotFound):
		case err != nil:
			return "", fmt.Errorf("read job %s: %w", in.Job, err)
		case !other.State.Ended():
			return fmt.Sprintf("instance %s is drained by job %s", in.ID, in.Job), nil
		}
	}
	return "", nil
}

// remember stores what the instances were, before that is changed.
func (d *drain) remember(ctx context.Context, fleet *statestore.FleetView) error {
	d.keeper.update(func(m *memo) {
		for _, s := range d.sources {
			in := present(fleet, s.owner)
			if _, known := m.Was[s.owner.Instance]; in == nil || known {
				continue
			}
			if m.Was == nil {
				m.Was = map[string]statestore.Lifecycle{}
			}
			m.Was[s.owner.Instance] = in.Lifecycle
		}
	})
	return d.keeper.sync(ctx)
}

// setDraining lets no more sessions be hinted to a source. One that is gone needs
// nothing, and one that is drained stays so.
func (d *drain) setDraining(ctx context.Context, in *statestore.Instance) error {
	if in == nil || in.Lifecycle == statestore.Drained || in.Lifecycle == statestore.Draining && in.Job == d.job.ID {
		return nil
	}
	_, err := d.store.SetLifecycle(ctx, in.Owner(), statestore.LifecycleChange{
		From: []statestore.Lifecycle{in.Lifecycle}, To: statestore.Draining, Job: d.job.Ref(),
	})
	if err != nil && !gone(err) {
		return fmt.Errorf("set %s draining: %w", in.ID, orLost(err))
	}
	return nil
}

// gone reports whether the error says that the boot is not registered any more.
func gone(err error) bool {
	return errors.Is(err, statestore.ErrUnknownInstance) || errors.Is(err, statestore.ErrStaleIncarnation)
}

// cancel gives the instances back. No step is under way, and the fence stops
// those of an earlier holder, before anything is given back.
func (d *drain) cancel(ctx context.Context) (statestore.JobState, error) {
	d.keeper.enter(statestore.JobCancelling, PhaseRestoring)
	d.keeper.wake()
	if err := d.insist(ctx, never, d.restore); err != nil {
		return "", err
	}
	return statestore.JobCancelled, nil
}

func (d *drain) restore(ctx context.Context) error {
	fleet, err := d.store.FleetView(ctx)
	if err != nil {
		return fmt.Errorf("read the fleet: %w", err)
	}
	var held []*statestore.Instance
	var drop []statestore.Owner
	for _, s := range d.sources {
		if in := present(&fleet, s.owner); in != nil && d.holds(in) {
			held, drop = append(held, in), append(drop, s.owner)
		}
	}
	err = d.store.Fence(ctx, statestore.Fence{Pool: d.job.Pool, Drop: drop, Job: d.job.Ref()})
	if err != nil {
		return fmt.Errorf("drop the fence: %w", orLost(err))
	}
	if err := d.reconcile(ctx); err != nil {
		return err
	}
	if err := d.dropReservations(ctx); err != nil {
		return err
	}
	for _, in := range held {
		if err := d.reopen(ctx, in); err != nil {
			return err
		}
	}
	d.keeper.update(func(m *memo) { m.Instances = d.keptClosed(&fleet) })
	return nil
}

// keptClosed is what a cancelled job goes on saying of its instances: of those that it
// cannot give back. The others are open, and what it saw of them is over.
func (d *drain) keptClosed(fleet *statestore.FleetView) map[string]InstanceProgress {
	kept := map[string]InstanceProgress{}
	for _, s := range d.sources {
		if in := present(fleet, s.owner); in == nil {
			kept[s.owner.Instance] = InstanceProgress{State: "gone"}
		} else if in.Lifecycle == statestore.Drained {
			kept[in.ID] = InstanceProgress{State: "drained"}
		}
	}
	return kept
}

// dropReservations takes back what an earlier holding promised and had no time to
// take back itself.
func (d *drain) dropReservations(ctx context.Context) error {
	for _, s := range d.sources {
		for v, err := range d.store.SessionsOf(ctx, d.job.Pool, s.owner.Instance) {
			if err != nil {
				return fmt.Errorf("read the sessions of %s: %w", s.owner.Instance, err)
			}
			if v.Reserved == nil || v.Reserved.Job.ID != d.job.ID {
				continue
			}
			err := d.store.Reserve(ctx, statestore.Reserve{Key: v.Key, Epoch: v.Epoch, Target: v.Reserved.Target, Job: d.job.Ref()})
			if err := orLost(err); errors.Is(err, errLost) {
				return err
			}
		}
	}
	return nil
}

// holds reports whether the job keeps the instance from taking sessions: not one
// that it drained to the end, nor one that another job drains.
func (d *drain) holds(in *statestore.Instance) bool {
	switch in.Lifecycle {
	case statestore.Drained:
		return false
	case statestore.Draining:
		return in.Job == d.job.ID
	}
	return true
}

// reopen sets an instance to what it was before the drain.
func (d *drain) reopen(ctx context.Context, in *statestore.Instance) error {
	if in.Lifecycle != statestore.Draining {
		return nil
	}
	to := statestore.Ready
	d.keeper.look(func(m *memo) {
		if was := m.Was[in.ID]; was == statestore.Cordoned || was == statestore.Warming {
			to = was
		}
	})
	_, err := d.store.SetLifecycle(ctx, in.Owner(), statestore.LifecycleChange{
		From: []statestore.Lifecycle{statestore.Draining}, To: to, Job: d.job.Ref(),
	})
	if err != nil && !gone(err) {
		return fmt.Errorf("set %s %s: %w", in.ID, to, orLost(err))
	}
	return nil
}

// partial ends a job whose time is over: it names what is left and why.
func (d *drain) partial(now *view) statestore.JobState {
	left := make([]Leftover, 0, min(len(now.sessions), leftoversKept))
	blocked, failed := map[string]int{}, map[string]int{}
	for i := range now.sessions {
		s := &now.sessions[i]
		reason := cmp.Or(d.failed[s.key], d.why[s.key], BlockedDeadline)
		if d.failed[s.key] != "" {
			failed[reason]++
		} else {
			blocked[reason]++
		}
		if len(left) < leftoversKept {
			left = append(left, Leftover{
				Instance: s.owner.Instance, Tenant: s.key.Tenant, Session: s.key.ID, Reason: reason,
			})
		}
	}
	d.keeper.update(func(m *memo) {
		for _, s := range d.sources {
			if p := m.Instances[s.owner.Instance]; p.Sessions == 0 && p.Because != "" {
				left = append(left, Leftover{Instance: s.owner.Instance, Reason: p.Because})
			}
		}
		m.Left, m.Blocked, m.Failed = left, blocked, failed
	})
	return statestore.JobPartial
}
