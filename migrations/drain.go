package migrations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"berth/statestore"
)

// drain is one holding of a drain job.
type drain struct {
	store  Store
	keeper *keeper
	mover  *mover
	o      *Options
	log    *slog.Logger

	job      statestore.Job
	spec     DrainSpec
	sources  []*source
	endgame  time.Time // when the last tenth begins
	deadline time.Time

	retry   backoff
	stuck   bool                             // the last turn failed, and it was logged
	refused map[statestore.SessionKey]string // targets that declined
	why     map[statestore.SessionKey]string // why sessions were blocked last
	unseen  unseen
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
	for {
		if d.keeper.asked() == statestore.ControlCancel {
			return d.cancel(ctx)
		}
		end, err := d.turn(ctx)
		switch {
		case end != "":
			return end, nil
		case errors.Is(err, errLost):
			return "", err
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		}
		d.report(ctx, err)
	}
}

// report logs what holds the job up, once until it goes on.
func (d *drain) report(ctx context.Context, err error) {
	if err != nil && !d.stuck {
		d.log.WarnContext(ctx, "job is held up", "job", d.job.ID, "reason", err.Error())
	}
	d.stuck = err != nil
}

// insist repeats act until it succeeds, the job is lost, ctx ends, or an operator
// asks for what the caller does not want to miss.
func (d *drain) insist(ctx context.Context, missed func() bool, act func(context.Context) error) error {
	for {
		err := act(ctx)
		switch {
		case err == nil, missed():
			return nil
		case errors.Is(err, errLost):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		d.report(ctx, err)
		if err := sleep(ctx, d.retry.pause()); err != nil {
			return err
		}
	}
}

// begin closes the instances for new sessions. When it returns, their fence is in
// every partition, no earlier holder of the job can write any more, and the
// registry says that they are draining.
func (d *drain) begin(ctx context.Context) (statestore.JobState, error) {
	if d.job.State == statestore.JobPending {
		d.keeper.enter(statestore.JobPlanning, PhaseFencing)
	}
	cancelled := func() bool { return d.keeper.asked() == statestore.ControlCancel }
	end := statestore.JobState("")
	err := d.insist(ctx, cancelled, func(ctx context.Context) (err error) {
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

// setTimes turns the store's deadline into one on this process's monotonic clock,
// which no step of either wall clock moves.
func (d *drain) setTimes(now statestore.Millis) {
	d.deadline = time.Now().Add(d.job.Deadline.Sub(now))
	d.endgame = d.deadline.Add(-d.job.Deadline.Sub(d.job.Created) / 10)
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
	never := func() bool { return false }
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
	for _, in := range held {
		if err := d.reopen(ctx, in); err != nil {
			return err
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
	blocked := map[string]int{}
	for i := range now.sessions {
		s := &now.sessions[i]
		reason := d.why[s.key]
		if reason == "" {
			reason = BlockedDeadline
		}
		blocked[reason]++
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
		m.Left, m.Blocked = left, blocked
	})
	return statestore.JobPartial
}
