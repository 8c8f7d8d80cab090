package boltstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"berth/statestore"
)

// change says how much of the fleet a write changed.
type change int

const (
	beatOnly change = iota // Version
	members                // Version and Members
)

// Register adds or updates an instance.
func (s *Store) Register(ctx context.Context, spec statestore.InstanceSpec, others ...statestore.Owner) (statestore.Instance, error) {
	if err := checkOwner(statestore.Owner{Instance: spec.ID, Incarnation: spec.Incarnation}); err != nil {
		return statestore.Instance{}, err
	}
	if err := statestore.ValidateName("pool", spec.Pool); err != nil {
		return statestore.Instance{}, err
	}
	var inst statestore.Instance
	err := s.write(ctx, func(w *writer) error {
		inst = statestore.Instance{}
		found, err := w.getJSON(bInstances, []byte(spec.ID), &inst)
		if err != nil {
			return err
		}
		if !found || inst.Incarnation != spec.Incarnation {
			inst = statestore.Instance{Lifecycle: statestore.Warming, Override: inst.Override, Registered: w.now}
		}
		inst.InstanceSpec, inst.Displaced = spec, false
		w.putInstance(&inst, members)
		for _, o := range others {
			if err := w.displace(o, &inst); err != nil {
				return err
			}
		}
		return nil
	})
	return inst, err
}

// displace marks a boot whose place an instance has taken.
func (w *writer) displace(who statestore.Owner, by *statestore.Instance) error {
	var inst statestore.Instance
	found, err := w.getJSON(bInstances, []byte(who.Instance), &inst)
	if err != nil || !found || inst.ID == by.ID || inst.Owner() != who || inst.Displaced || !inst.SamePlace(&by.InstanceSpec) {
		return err
	}
	inst.Displaced = true
	w.putInstance(&inst, members)
	return nil
}

// Heartbeat counts a beat.
func (s *Store) Heartbeat(ctx context.Context, by statestore.Owner, beat statestore.Heartbeat) (statestore.Instance, error) {
	return s.changeInstance(ctx, by, func(w *writer, inst *statestore.Instance) (change, error) {
		inst.Beats++
		inst.LastBeat, inst.BeatAt = beat, w.now
		c := beatOnly
		if beat.Ready && inst.Lifecycle == statestore.Warming {
			inst.Lifecycle, c = statestore.Ready, members
		}
		if inst.Displaced {
			inst.Displaced, c = false, members
		}
		return c, nil
	})
}

// Deregister removes an instance.
func (s *Store) Deregister(ctx context.Context, who statestore.Owner) error {
	return s.write(ctx, func(w *writer) error {
		if _, err := w.instance(who); err != nil {
			return err
		}
		w.delete(bInstances, []byte(who.Instance))
		w.fleetChanged(who.Instance, members)
		return nil
	})
}

// SetLifecycle changes the state of an instance.
func (s *Store) SetLifecycle(ctx context.Context, who statestore.Owner, c statestore.LifecycleChange) (statestore.Instance, error) {
	return s.changeInstance(ctx, who, func(w *writer, inst *statestore.Instance) (change, error) {
		if err := w.checkJob(c.Job); err != nil {
			return 0, err
		}
		if len(c.From) > 0 && !slices.Contains(c.From, inst.Lifecycle) {
			return 0, &statestore.InstanceChangedError{State: inst.Lifecycle}
		}
		inst.Lifecycle, inst.Job = c.To, c.Job.ID
		return members, nil
	})
}

// checkJob refuses a holder of a job that has been succeeded by another.
func (r *reader) checkJob(ref statestore.JobRef) error {
	if ref.ID == "" {
		return nil
	}
	token := r.jobToken(ref.ID)
	var j statestore.Job
	if _, err := r.getJSON(bJobs, []byte(ref.ID), &j); err != nil {
		return err
	}
	if token = max(token, j.Token); ref.Token < token {
		return &statestore.LeaseHeldError{Name: ref.ID, Holder: j.Holder, Token: token}
	}
	return nil
}

// SetHealth records verdicts of the holder of a lease.
func (s *Store) SetHealth(ctx context.Context, l statestore.Lease, verdicts map[statestore.Owner]statestore.Health) error {
	return s.write(ctx, func(w *writer) error {
		if err := w.fenceHealth(l); err != nil {
			return err
		}
		for who, health := range verdicts {
			var inst statestore.Instance
			found, err := w.getJSON(bInstances, []byte(who.Instance), &inst)
			if err != nil {
				return err
			}
			if !found || inst.Incarnation != who.Incarnation || inst.Health == health {
				continue
			}
			inst.Judge(health, w.now)
			w.putInstance(&inst, members)
		}
		return nil
	})
}

// RemoveGone removes boots that have been down for long.
func (s *Store) RemoveGone(ctx context.Context, l statestore.Lease, boots []statestore.Owner, after time.Duration) (removed []statestore.Owner, err error) {
	err = s.write(ctx, func(w *writer) error {
		removed = nil
		if err := w.fenceHealth(l); err != nil {
			return err
		}
		for _, who := range boots {
			var inst statestore.Instance
			found, err := w.getJSON(bInstances, []byte(who.Instance), &inst)
			if err != nil {
				return err
			}
			if !found || inst.Owner() != who || inst.Health != statestore.Down || inst.GoneFor(w.now) < after {
				continue
			}
			w.delete(bInstances, []byte(who.Instance))
			w.fleetChanged(who.Instance, members)
			removed = append(removed, who)
		}
		return nil
	})
	return removed, err
}

// fenceHealth refuses a holder that another has succeeded: in the lease itself,
// or in what was written here.
func (w *writer) fenceHealth(l statestore.Lease) error {
	var held lease
	if _, err := w.getJSON(bLeases, []byte(l.Name), &held); err != nil {
		return err
	}
	key := []byte(kHealth + l.Name)
	seen := fromBE64(w.get(bMeta, key))
	if highest := max(seen, held.Token); l.Token < highest {
		return &statestore.LeaseHeldError{Name: l.Name, Holder: held.Holder, Token: highest}
	}
	if l.Token > seen {
		w.put(bMeta, key, be64(l.Token))
	}
	return nil
}

// SetOverride replaces the operator's word.
func (s *Store) SetOverride(ctx context.Context, id string, o statestore.Override) (statestore.Instance, error) {
	return s.changeInstance(ctx, statestore.Owner{Instance: id}, func(_ *writer, inst *statestore.Instance) (change, error) {
		inst.Override = o
		return members, nil
	})
}

// FleetView reads the registry.
func (s *Store) FleetView(ctx context.Context) (statestore.FleetView, error) {
	var v statestore.FleetView
	err := s.read(ctx, func(r *reader) error {
		v = statestore.FleetView{
			Version: fromBE64(r.get(bMeta, kVersion)), Members: fromBE64(r.get(bMeta, kMembers)), Now: r.now,
			Policies: map[string]statestore.Policy{},
		}
		err := r.each(bPolicies, nil, func(k, b []byte) (bool, error) {
			var p statestore.Policy
			err := decodeJSON(bPolicies, b, &p)
			v.Policies[string(k)] = p
			return err == nil, err
		})
		if err != nil {
			return err
		}
		return r.each(bInstances, nil, func(_, b []byte) (bool, error) {
			var inst statestore.Instance
			if err := decodeJSON(bInstances, b, &inst); err != nil {
				return false, err
			}
			v.Instances = append(v.Instances, inst)
			return true, nil
		})
	})
	return v, err
}

// instance reads an instance; with an incarnation, only its present boot.
func (w *writer) instance(who statestore.Owner) (statestore.Instance, error) {
	var inst statestore.Instance
	found, err := w.getJSON(bInstances, []byte(who.Instance), &inst)
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

func (s *Store) changeInstance(ctx context.Context, who statestore.Owner,
	fn func(*writer, *statestore.Instance) (change, error),
) (statestore.Instance, error) {
	var inst statestore.Instance
	err := s.write(ctx, func(w *writer) (err error) {
		if inst, err = w.instance(who); err != nil {
			return err
		}
		c, err := fn(w, &inst)
		if err != nil {
			return err
		}
		w.putInstance(&inst, c)
		return nil
	})
	if err != nil {
		return statestore.Instance{}, err
	}
	return inst, nil
}

func (w *writer) putInstance(inst *statestore.Instance, c change) {
	w.putJSON(bInstances, []byte(inst.ID), inst)
	w.fleetChanged(inst.ID, c)
}

// fleetChanged moves the counters of the view. Heartbeats are no events: readers
// poll loads, and every replica would wake for every beat.
func (w *writer) fleetChanged(instance string, c change) {
	w.add(bMeta, kVersion, 1)
	if c == members {
		w.add(bMeta, kMembers, 1)
		w.emit(statestore.Event{Kind: statestore.EventFleet, Instance: instance})
	}
}
