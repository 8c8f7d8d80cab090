package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/statestore"
	"berth/statestore/internal/roster"
)

// membersChanged moves both counters of the view, and tells of it.
func (t *tx) membersChanged(instance string) {
	t.count("version")
	t.count("members")
	t.tell(statestore.Event{Kind: statestore.EventFleet, Instance: instance})
}

func instanceCells(id string) []cell { return []cell{{tInstances, id}, {tLoads, id}} }

// instance reads an instance with its heartbeats, and whether there is one. More
// heartbeats may come until the commit.
func (t *tx) instance(id string) (statestore.Instance, bool, error) {
	var inst statestore.Instance
	found, err := t.getJSON(tInstances, id, &inst)
	if err != nil || !found {
		return inst, false, err
	}
	text := t.get(tLoads, id)
	t.loosen(tLoads, id)
	if text == "" {
		return inst, true, nil
	}
	row, err := roster.ReadRow([]byte(text))
	if err != nil {
		return inst, false, fmt.Errorf("%s: %w: %w", tableNames[tLoads], err, ErrDamaged)
	}
	row.AddTo(&inst)
	return inst, true, nil
}

// present reads an instance that must be there; with an incarnation, it must be
// the present boot.
func (t *tx) present(who statestore.Owner) (statestore.Instance, error) {
	inst, found, err := t.instance(who.Instance)
	switch {
	case err != nil:
		return inst, err
	case !found:
		return inst, fmt.Errorf("instance %q: %w", who.Instance, statestore.ErrUnknownInstance)
	case who.Incarnation != "" && who.Incarnation != inst.Incarnation:
		return inst, fmt.Errorf("instance %q: %w", who.Instance, statestore.ErrStaleIncarnation)
	}
	return inst, nil
}

// putInstance stores an instance without its heartbeats.
func (t *tx) putInstance(inst statestore.Instance) error {
	inst.Beats, inst.LastBeat, inst.BeatAt = 0, statestore.Heartbeat{}, 0
	t.membersChanged(inst.ID)
	return t.setJSON(tInstances, inst.ID, &inst)
}

// putBeats replaces the heartbeats of an instance.
func (t *tx) putBeats(inst *statestore.Instance) {
	row := roster.RowOf(inst)
	t.set(tLoads, inst.ID, string(row.Append(nil)))
}

// Register adds or updates an instance.
func (s *Store) Register(ctx context.Context, spec statestore.InstanceSpec, others ...statestore.Owner) (inst statestore.Instance, err error) {
	if err := errors.Join(statestore.ValidateInstanceID(spec.ID), statestore.ValidateName("incarnation", spec.Incarnation),
		statestore.ValidateName("pool", spec.Pool)); err != nil {
		return inst, err
	}
	cells := append(instanceCells(spec.ID), cell{tPolicies, spec.Pool})
	for _, o := range others {
		if o.Instance != spec.ID {
			cells = append(cells, cell{tInstances, o.Instance})
		}
	}
	err = s.transact(ctx, cells, func(t *tx) error {
		old, found, err := t.instance(spec.ID)
		if err != nil {
			return err
		}
		if inst = old; !found || old.Incarnation != spec.Incarnation {
			inst = old.NextBoot(t.now)
		}
		inst.InstanceSpec, inst.Displaced = spec, false
		if !found || old.Incarnation != spec.Incarnation {
			t.putBeats(&inst)
		}
		for _, o := range others {
			if err := t.displace(o, &inst); err != nil {
				return err
			}
		}
		if err := t.foundPool(spec.Pool); err != nil {
			return err
		}
		return t.putInstance(inst)
	})
	return inst, err
}

// displace marks a boot whose place an instance has taken.
func (t *tx) displace(who statestore.Owner, by *statestore.Instance) error {
	var inst statestore.Instance
	found, err := t.getJSON(tInstances, who.Instance, &inst)
	if err != nil || !found || inst.ID == by.ID || inst.Owner() != who || inst.Displaced || !inst.SamePlace(&by.InstanceSpec) {
		return err
	}
	inst.Displaced = true
	return t.putInstance(inst)
}

// Deregister removes an instance.
func (s *Store) Deregister(ctx context.Context, who statestore.Owner) error {
	return s.transact(ctx, instanceCells(who.Instance), func(t *tx) error {
		if _, err := t.present(who); err != nil {
			return err
		}
		t.removeInstance(who.Instance)
		return nil
	})
}

// SetLifecycle changes the state of an instance.
func (s *Store) SetLifecycle(ctx context.Context, who statestore.Owner, c statestore.LifecycleChange) (inst statestore.Instance, err error) {
	cells := append(instanceCells(who.Instance), jobCells(c.Job.ID)...)
	err = s.transact(ctx, cells, func(t *tx) error {
		if inst, err = t.present(who); err != nil {
			return err
		}
		if err := t.checkJob(c.Job); err != nil {
			return err
		}
		if len(c.From) > 0 && !slices.Contains(c.From, inst.Lifecycle) {
			return &statestore.InstanceChangedError{State: inst.Lifecycle}
		}
		inst.Lifecycle, inst.Job = c.To, c.Job.ID
		return t.putInstance(inst)
	})
	return inst, err
}

// SetOverride changes the operator's word.
func (s *Store) SetOverride(ctx context.Context, id string, o statestore.OverrideChange) (inst statestore.Instance, err error) {
	err = s.transact(ctx, instanceCells(id), func(t *tx) error {
		if inst, err = t.present(statestore.Owner{Instance: id}); err != nil {
			return err
		}
		inst.Override = o.To(inst.Override)
		return t.putInstance(inst)
	})
	return inst, err
}

// SetVerdicts records verdicts of the holder of a lease.
func (s *Store) SetVerdicts(ctx context.Context, l statestore.Lease, verdicts map[statestore.Owner]statestore.Verdict) error {
	seen := "health token " + l.Name
	cells := []cell{{tLeases, l.Name}, {tCounters, seen}}
	for who := range verdicts {
		cells = append(cells, cell{tInstances, who.Instance})
	}
	return s.transact(ctx, cells, func(t *tx) error {
		if err := t.fenceHealth(l, seen); err != nil {
			return err
		}
		for who, verdict := range verdicts {
			var inst statestore.Instance
			found, err := t.getJSON(tInstances, who.Instance, &inst)
			if err != nil {
				return err
			}
			if !found || inst.Incarnation != who.Incarnation || !inst.Judge(verdict, t.now) {
				continue
			}
			if err := t.putInstance(inst); err != nil {
				return err
			}
		}
		return nil
	})
}

// RemoveGone removes boots that have been down for long.
func (s *Store) RemoveGone(ctx context.Context, l statestore.Lease, boots []statestore.Owner, after time.Duration) (removed []statestore.Owner, err error) {
	seen := "health token " + l.Name
	cells := []cell{{tLeases, l.Name}, {tCounters, seen}}
	for _, who := range boots {
		cells = append(cells, instanceCells(who.Instance)...)
	}
	err = s.transact(ctx, cells, func(t *tx) error {
		removed = nil
		if err := t.fenceHealth(l, seen); err != nil {
			return err
		}
		for _, who := range boots {
			inst, found, err := t.instance(who.Instance)
			if err != nil {
				return err
			}
			t.hold(tLoads, who.Instance) // a heartbeat until the commit saves it
			if !found || inst.Owner() != who || inst.Health != statestore.Down || inst.GoneFor(t.now) < after {
				continue
			}
			t.removeInstance(who.Instance)
			removed = append(removed, who)
		}
		return nil
	})
	return removed, err
}

func (t *tx) removeInstance(id string) {
	t.drop(tInstances, id)
	t.drop(tLoads, id)
	t.membersChanged(id)
}

// fenceHealth refuses a holder that another has succeeded: in the lease itself, or
// in what was written here.
func (t *tx) fenceHealth(l statestore.Lease, seen string) error {
	var held lease
	if _, err := t.getJSON(tLeases, l.Name, &held); err != nil {
		return err
	}
	last := number(t.get(tCounters, seen))
	if highest := max(last, held.Token); l.Token < highest {
		return &statestore.LeaseHeldError{Name: l.Name, Holder: held.Holder, Token: highest}
	}
	if l.Token > last {
		t.set(tCounters, seen, fmt.Sprint(l.Token))
	}
	return nil
}
