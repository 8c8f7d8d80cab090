package boltstore

import (
	"context"
	"errors"
	"fmt"

	"berth/statestore"
	"berth/statestore/internal/roster"
)

// Heartbeat counts a beat.
func (s *Store) Heartbeat(ctx context.Context, by statestore.Owner, beat statestore.Heartbeat) (statestore.Instance, error) {
	answers, err := s.Heartbeats(ctx, []statestore.Beat{{By: by, Heartbeat: beat}})
	if err != nil {
		return statestore.Instance{}, err
	}
	return answers[0].Instance, answers[0].Err
}

// Heartbeats counts beats. They are no events: readers poll loads, and every
// replica would wake for every beat.
func (s *Store) Heartbeats(ctx context.Context, beats []statestore.Beat) ([]statestore.BeatAnswer, error) {
	answers := make([]statestore.BeatAnswer, len(beats))
	err := s.write(ctx, func(w *writer) error {
		known, counted := s.fleet.Last(), false
		for i := range beats {
			inst, err := w.beat(known, &beats[i])
			if errors.Is(err, ErrDamaged) {
				return err
			}
			answers[i] = statestore.BeatAnswer{Instance: inst, Err: err}
			counted = counted || err == nil
		}
		if counted {
			w.add(bMeta, kVersion, 1)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// beat counts one beat.
func (w *writer) beat(known *roster.Image, b *statestore.Beat) (statestore.Instance, error) {
	inst, err := w.member(known, b.By)
	if err != nil {
		return statestore.Instance{}, err
	}
	inst.Beats++
	inst.LastBeat, inst.BeatAt = b.Heartbeat, w.now
	row := roster.RowOf(&inst)
	w.put(bBeats, []byte(inst.ID), row.Append(nil))
	if inst.Hear(&b.Heartbeat) {
		w.putInstance(inst)
	}
	return inst, nil
}

// member is instance, without decoding a record that is known.
func (r *reader) member(known *roster.Image, who statestore.Owner) (statestore.Instance, error) {
	inst, ok := known.Member(fromBE64(r.get(bMeta, kMembers)), who.Instance)
	if !ok || inst.Incarnation != who.Incarnation {
		return r.instance(who)
	}
	return inst, r.addBeats(&inst)
}

// addBeats gives an instance its heartbeats.
func (r *reader) addBeats(inst *statestore.Instance) error {
	b := r.get(bBeats, []byte(inst.ID))
	if b == nil {
		return nil // a file of before has them in the record
	}
	row, err := roster.ReadRow(b)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", bBeats, err, ErrDamaged)
	}
	row.AddTo(inst)
	return nil
}

// FleetView reads the registry.
func (s *Store) FleetView(ctx context.Context) (statestore.FleetView, error) {
	known := s.fleet.Last()
	var a roster.Answer
	err := s.read(ctx, func(r *reader) (err error) {
		a, err = r.fleetSince(known)
		return err
	})
	if err != nil {
		return statestore.FleetView{}, err
	}
	v, err := s.fleet.Take(known, a)
	if err != nil {
		return v, fmt.Errorf("read fleet: %w: %w", err, ErrDamaged)
	}
	return v, nil
}

// fleetSince reads what is not known.
func (r *reader) fleetSince(known *roster.Image) (a roster.Answer, err error) {
	a = roster.Answer{Now: r.now, Version: fromBE64(r.get(bMeta, kVersion)), Members: fromBE64(r.get(bMeta, kMembers))}
	if known.Has(a.Version) {
		return a, nil
	}
	a.Table = []byte{}
	err = r.each(bBeats, nil, func(_, row []byte) (bool, error) {
		a.Table = append(a.Table, row...)
		return true, nil
	})
	if err != nil || known.HasMembers(a.Members) {
		return a, err
	}
	if a.Records, err = r.texts(bInstances); err != nil {
		return a, err
	}
	a.Policies, err = r.texts(bPolicies)
	return a, err
}

// texts copies a bucket.
func (r *reader) texts(bucket []byte) (map[string]string, error) {
	texts := map[string]string{}
	err := r.each(bucket, nil, func(k, v []byte) (bool, error) {
		texts[string(k)] = string(v)
		return true, nil
	})
	return texts, err
}
