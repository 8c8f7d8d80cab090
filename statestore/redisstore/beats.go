package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"berth/statestore"
	"berth/statestore/internal/roster"
)

// beatPage is how many heartbeats one call counts: Redis serves nobody else
// meanwhile, and Lua spreads no list of many thousands.
const beatPage = 512

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
	answers := make([]statestore.BeatAnswer, 0, len(beats))
	for page := range slices.Chunk(beats, beatPage) {
		counted, err := s.count(ctx, page)
		if err == nil {
			err = s.hear(ctx, page, counted)
		}
		if err != nil {
			return nil, err
		}
		answers = append(answers, counted...)
	}
	return answers, nil
}

// count counts a page of beats.
func (s *Store) count(ctx context.Context, beats []statestore.Beat) ([]statestore.BeatAnswer, error) {
	known := s.fleet.Last()
	_, members := known.Versions()
	keys := []string{s.table(tCounters), s.table(tInstances), s.table(tLoads)}
	args := append(make([]any, 0, 1+3*len(beats)), members)
	for i := range beats {
		b := &beats[i]
		args = append(args, b.By.Instance, b.By.Incarnation, roster.AppendTold(nil, &b.Heartbeat))
	}
	var a answer
	err := s.settle(ctx, func() error {
		reply, err := s.fcall(ctx, s.lanes, beatFn, keys, args)
		if err == nil {
			a, err = answerOf(reply)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("count heartbeats: %w", err)
	}
	counts, stored := answer(a.list(2)), answer(a.list(3))
	answers := make([]statestore.BeatAnswer, len(beats))
	for i := range beats {
		answers[i] = beatAnswer(&beats[i], counts.int(i))
		if answers[i].Err != nil {
			continue
		}
		inst, ok := known.Member(a.uint(1), beats[i].By.Instance)
		if !ok {
			if err := decodeJSON(tInstances, stored.text(i), &inst); err != nil {
				return nil, err
			}
		}
		inst.Beats, inst.LastBeat, inst.BeatAt = counts.uint(i), beats[i].Heartbeat, a.millis(0)
		answers[i].Instance = inst
	}
	return answers, nil
}

// beatAnswer is a refusal, if the count says so.
func beatAnswer(b *statestore.Beat, count int64) (a statestore.BeatAnswer) {
	switch {
	case count < 0:
		a.Err = fmt.Errorf("instance %q: %w", b.By.Instance, statestore.ErrUnknownInstance)
	case count == 0:
		a.Err = fmt.Errorf("instance %q: %w", b.By.Instance, statestore.ErrStaleIncarnation)
	}
	return a
}

// hear changes what else heartbeats change, which is seldom anything.
func (s *Store) hear(ctx context.Context, beats []statestore.Beat, answers []statestore.BeatAnswer) error {
	var news []int
	var cells []cell
	for i := range beats {
		inst := answers[i].Instance
		if answers[i].Err == nil && inst.Hear(&beats[i].Heartbeat) {
			news, cells = append(news, i), append(cells, instanceCells(inst.ID)...)
		}
	}
	if len(news) == 0 {
		return nil
	}
	return s.transact(ctx, cells, func(t *tx) error {
		for _, i := range news {
			inst, err := t.present(beats[i].By)
			switch {
			case errors.Is(err, statestore.ErrUnknownInstance), errors.Is(err, statestore.ErrStaleIncarnation):
				answers[i] = statestore.BeatAnswer{Err: err} // since it was counted
				continue
			case err != nil:
				return err
			}
			changed := inst.Hear(&beats[i].Heartbeat)
			answers[i].Instance = inst
			if changed {
				if err := t.putInstance(inst); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// FleetView reads the registry.
func (s *Store) FleetView(ctx context.Context) (statestore.FleetView, error) {
	known := s.fleet.Last()
	version, members := known.Versions()
	keys := []string{s.table(tCounters), s.table(tInstances), s.table(tLoads), s.table(tPolicies)}
	reply, err := s.read(ctx, fleetFn, keys, version, members)
	if err != nil {
		return statestore.FleetView{}, err
	}
	a, err := answerOf(reply)
	if err != nil {
		return statestore.FleetView{}, err
	}
	found := roster.Answer{Now: a.millis(0), Version: a.uint(1), Members: a.uint(2)}
	if len(a) > 3 {
		found.Table = []byte(a.text(3))
	}
	if len(a) > 4 {
		found.Records, found.Policies = pairs(a.list(4)), pairs(a.list(5))
	}
	v, err := s.fleet.Take(known, found)
	if err != nil {
		return v, fmt.Errorf("read fleet: %w: %w", err, ErrDamaged)
	}
	return v, nil
}
