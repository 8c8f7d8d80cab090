package boltstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"berth/statestore"
	"berth/statestore/internal/roster"
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
		old, found, err := w.find(spec.ID)
		if err != nil {
			return err
		}
		if inst = old; !found || inst.Incarnation != spec.Incarnation {
			inst = old.NextBoot(w.now)
		}
		inst.InstanceSpec, inst.Displaced = spec, false
		w.foundPool(spec.Pool)
		w.putInstance(inst)
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
	inst, found, err := w.find(who.Instance)
	if err != nil || !found || inst.ID == by.ID || inst.Owner() != who || inst.Displaced || !inst.SamePlace(&by.InstanceSpec) {
		return err
	}
	inst.Displaced = true
	w.putInstance(inst)
	return nil
}

// Deregister removes an instance.
func (s *Store) Deregister(ctx context.Context, who statestore.Owner) error {
	return s.write(ctx, func(w *writer) error {
		if _, err := w.instance(who); err != nil {
			return err
		}
		w.removeInstance(who.Instance)
		return nil
	})
}

// SetLifecycle changes the state of an instance.
func (s *Store) SetLifecycle(ctx context.Context, who statestore.Owner, c statestore.LifecycleChange) (statestore.Instance, error) {
	return s.changeInstance(ctx, who, func(w *writer, inst *statestore.Instance) error {
		if err := w.checkJob(c.Job); err != nil {
			return err
		}
		if len(c.From) > 0 && !slices.Contains(c.From, inst.Lifecycle) {
			return &statestore.InstanceChangedError{State: inst.Lifecycle}
		}
		inst.Lifecycle, inst.Job = c.To, c.Job.ID
		return nil
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

// SetVerdicts records verdicts of the holder of a lease.
func (s *Store) SetVerdicts(ctx context.Context, l statestore.Lease, verdicts map[statestore.Owner]statestore.Verdict) error {
	return s.write(ctx, func(w *writer) error {
		if err := w.fenceHealth(l); err != nil {
			return err
		}
		for who, verdict := range verdicts {
			inst, found, err := w.find(who.Instance)
			if err != nil {
				return err
			}
			if found && inst.Incarnation == who.Incarnation && inst.Judge(verdict, w.now) {
				w.putInstance(inst)
			}
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
			inst, found, err := w.find(who.Instance)
			if err != nil {
				return err
			}
			if !found || inst.Owner() != who || inst.Health != statestore.Down || inst.GoneFor(w.now) < after {
				continue
			}
			w.removeInstance(who.Instance)
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

// SetOverride changes the operator's word.
func (s *Store) SetOverride(ctx context.Context, id string, o statestore.OverrideChange) (statestore.Instance, error) {
	return s.changeInstance(ctx, statestore.Owner{Instance: id}, func(_ *writer, inst *statestore.Instance) error {
		inst.Override = o.To(inst.Override)
		return nil
	})
}

// find reads an instance with its heartbeats, and whether there is one.
func (r *reader) find(id string) (inst statestore.Instance, found bool, err error) {
	if found, err = r.getJSON(bInstances, []byte(id), &inst); err != nil || !found {
		return inst, found, err
	}
	return inst, true, r.addBeats(&inst)
}

// instance reads an instance; with an incarnation, only its present boot.
func (r *reader) instance(who statestore.Owner) (statestore.Instance, error) {
	inst, found, err := r.find(who.Instance)
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

func (s *Store) changeInstance(ctx context.Context, who statestore.Owner, fn func(*writer, *statestore.Instance) error) (statestore.Instance, error) {
	var inst statestore.Instance
	err := s.write(ctx, func(w *writer) (err error) {
		if inst, err = w.instance(who); err != nil {
			return err
		}
		if err := fn(w, &inst); err != nil {
			return err
		}
		w.putInstance(inst)
		return nil
	})
	if err != nil {
		return statestore.Instance{}, err
	}
	return inst, nil
}

// putInstance stores an instance, and its heartbeats only where none of this boot
// are stored: a new boot has none, and files of before had them in the record.
func (w *writer) putInstance(inst statestore.Instance) {
	id, row := []byte(inst.ID), roster.RowOf(&inst)
	if !row.SameBoot(w.get(bBeats, id)) {
		w.put(bBeats, id, row.Append(nil))
	}
	inst.Beats, inst.LastBeat, inst.BeatAt = 0, statestore.Heartbeat{}, 0
	w.putJSON(bInstances, id, &inst)
	w.membersChanged(inst.ID)
}

func (w *writer) removeInstance(id string) {
	w.delete(bInstances, []byte(id))
	w.delete(bBeats, []byte(id))
	w.membersChanged(id)
}

// membersChanged moves both counters of the view, and tells of it.
func (w *writer) membersChanged(instance string) {
	w.add(bMeta, kVersion, 1)
	w.add(bMeta, kMembers, 1)
	w.emit(statestore.Event{Kind: statestore.EventFleet, Instance: instance})
}
