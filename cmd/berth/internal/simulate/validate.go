package simulate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/routing"
)

// What a simulation can bear.
const (
	mostInstances = 10_000
	mostSessions  = 20_000_000
	mostEvents    = 1000
	longest       = 7 * 24 * time.Hour
	highest       = 1e9 // of any rate or size
)

// Validate reports the first member that makes no sense. A number that is none
// (NaN) is outside every range.
func (s *Scenario) Validate() error {
	w := &s.Worker
	switch {
	case s.Instances < 1 || s.Instances > mostInstances:
		return fmt.Errorf("instances %d: want 1 to %d", s.Instances, mostInstances)
	case s.Zones < 1 || s.Zones > 26:
		return fmt.Errorf("zones %d: want 1 to 26", s.Zones)
	case s.Sessions < 1 || s.Sessions > mostSessions:
		return fmt.Errorf("sessions %d: want 1 to %d", s.Sessions, mostSessions)
	case s.Keys < 0 || s.Keys > mostSessions || !(s.Zipf >= 0 && s.Zipf <= 3):
		return fmt.Errorf("keys %d, zipf %v: want 0 to %d keys, and 0 to 3 for zipf", s.Keys, s.Zipf, mostSessions)
	case s.Duration < time.Second || s.Warmup < 0 || s.Duration+s.Warmup > longest || s.Duration%time.Second != 0 || s.Warmup%time.Second != 0:
		return fmt.Errorf("duration %v, warm-up %v: want whole seconds, at least 1s of duration, no negative warm-up, and a week at most", s.Duration, s.Warmup)
	case s.Affinity <= 0:
		return fmt.Errorf("affinity %v: want a positive duration", s.Affinity)
	case w.MaxRunning < 0 || w.MaxRunning > highest || w.CacheBlocks < 1 || w.CacheBlocks > highest:
		return fmt.Errorf("worker: max running %d, cache of %d blocks: want no negative number, 1 block at least, and %.0f at most", w.MaxRunning, w.CacheBlocks, highest)
	case !rate(w.PrefillTPS) || !rate(w.DecodeTPS):
		return fmt.Errorf("worker: %v tokens a second of a prompt, %v of an answer: want positive numbers up to %.0f", w.PrefillTPS, w.DecodeTPS, highest)
	case !rate(s.Move.SessionsPerS):
		return fmt.Errorf("pace of drains %v: want a positive number of sessions a second, up to %.0f", s.Move.SessionsPerS, highest)
	case s.Move.Workers != Cooperative && s.Move.Workers != Passive && s.Move.Workers != Silent:
		return fmt.Errorf("workers %q: want %s, %s or %s", s.Move.Workers, Cooperative, Passive, Silent)
	case s.Move.Grace < 0 || s.Move.Grace > longest:
		return fmt.Errorf("in-flight grace %v: want 0s to %v", s.Move.Grace, longest)
	case s.Policy.Ring.Points < 1:
		return fmt.Errorf("ring points %d: want at least 1", s.Policy.Ring.Points)
	case s.Policy.Ring.Slots < 1:
		return fmt.Errorf("ring slots %d: want at least 1", s.Policy.Ring.Slots)
	}
	if err := s.Policy.Validate(); err != nil {
		return err
	}
	if err := s.validateWeights(); err != nil {
		return err
	}
	return s.validateEvents()
}

func rate(x float64) bool { return x > 0 && x <= highest }

func (s *Scenario) validateWeights() error {
	if len(s.Weights) > s.Instances {
		return fmt.Errorf("%d weights for %d instances", len(s.Weights), s.Instances)
	}
	for _, w := range s.Weights {
		if w < 0 || w > routing.MaxWeight {
			return fmt.Errorf("weight %d: want 0 to %d", w, routing.MaxWeight)
		}
	}
	if len(s.Weights) > 0 && slices.Max(s.Weights) == 0 {
		return errors.New("every weight is 0: nobody could serve")
	}
	return nil
}

// validateEvents finds what can be known before the first is played, so that a
// long run does not end in it.
func (s *Scenario) validateEvents() error {
	if len(s.Events) > mostEvents {
		return fmt.Errorf("%d events: want at most %d", len(s.Events), mostEvents)
	}
	names := s.names()
	for _, e := range slices.SortedStableFunc(slices.Values(s.Events), func(a, b Event) int { return int(a.At - b.At) }) {
		switch {
		case e.At < 0 || e.At >= s.Duration:
			return fmt.Errorf("event %s: at %v, want 0s up to the duration of %v", e, e.At, s.Duration)
		case e.At%time.Second != 0:
			return fmt.Errorf("event %s: at %v, want whole seconds", e, e.At)
		case e.Kind == Add && len(names)+e.Who.Count > mostInstances:
			return fmt.Errorf("event %s: more than %d instances", e, mostInstances)
		}
		for _, id := range e.Who.IDs {
			if !names[id] {
				return fmt.Errorf("event %s: there is no instance %s then", e, id)
			}
		}
		if e.Kind == Add {
			for range e.Who.Count {
				names[nextName(len(names), names)] = true
			}
		}
	}
	return nil
}

// names are the instances at the start.
func (s *Scenario) names() map[string]bool {
	names := make(map[string]bool, s.Instances)
	for _, r := range s.Fleet {
		names[r.ID] = true
	}
	for len(names) < s.Instances {
		names[nextName(len(names), names)] = true
	}
	return names
}
