package migrations

import (
	"time"

	"berth/statestore"
)

// source follows one instance through the strict order in which it becomes safe
// to stop. It decides and does not act: the time and what was seen are arguments.
//
//	fenced ──▶ clear: a whole scan after the fence found nobody bound to it
//	       ──▶ unhinted: the longest hint has passed since
//	       ──▶ at rest: a heartbeat sent after that says running 0, waiting 0
//
// Whatever contradicts a stage takes it back to the one before.
type source struct {
	owner statestore.Owner

	clear    time.Time // when it was first seen clear; zero: it is not
	unhinted time.Time // when the hints had passed; zero: they have not
	beats    uint64    // heartbeats counted when the hints had passed
}

// sighting is what one pass saw of a source.
type sighting struct {
	now      time.Time
	bound    int                  // sessions bound to it, or to an earlier boot
	unproven int                  // moves whose durability is not known
	instance *statestore.Instance // nil: this boot is gone
	hints    time.Duration        // how long the longest hint is good for
	grace    time.Duration        // how long a request may run that nobody tells of
}

// standing is what a sighting means.
type standing struct {
	drained bool
	because string        // why not
	wait    time.Duration // until it is worth looking again; 0: not known
}

// Two more heartbeats prove that the second was sent after the hints had passed:
// workers send one at a time, so it left after the first was answered.
const provingBeats = 2

// step looks at the source once more.
func (s *source) step(f sighting) standing {
	switch {
	case f.bound > 0:
		s.clear, s.unhinted = time.Time{}, time.Time{}
		return standing{because: BecauseSessions}
	case f.unproven > 0:
		return standing{because: BlockedNotDurable}
	case f.instance == nil:
		// No request runs on a boot that is gone, whatever hints say.
		return standing{drained: true}
	case f.instance.Lifecycle == statestore.Drained:
		// It went through all of this before, and the fence has stayed since.
		return standing{drained: true}
	}
	if s.clear.IsZero() {
		s.clear = f.now
	}
	if left := f.hints - f.now.Sub(s.clear); left > 0 {
		return standing{because: BecauseHints, wait: left}
	}
	if s.unhinted.IsZero() {
		s.unhinted, s.beats = f.now, f.instance.Beats
	}
	return s.rest(f)
}

// rest asks for the heartbeat that ends the wait. From an instance that never
// sent one, or is known to be down, none will come: it gets the grace instead.
func (s *source) rest(f sighting) standing {
	in := f.instance
	silent := in.Beats == 0 || in.Health == statestore.Down
	switch left := f.grace - f.now.Sub(s.unhinted); {
	case in.Beats >= s.beats+provingBeats && busy(in):
		return standing{because: BecauseInFlight}
	case in.Beats >= s.beats+provingBeats:
		return standing{drained: true}
	case silent && left > 0:
		return standing{because: BecauseUnknown, wait: left}
	case silent:
		return standing{drained: true}
	}
	return standing{because: BecauseUnknown}
}

// busy reports whether the last heartbeat told of requests.
func busy(in *statestore.Instance) bool {
	return in.LastBeat.Running > 0 || in.LastBeat.Waiting > 0
}

// present finds the boot in the registry, nil when it is gone.
func present(fleet *statestore.FleetView, who statestore.Owner) *statestore.Instance {
	for i := range fleet.Instances {
		if in := &fleet.Instances[i]; in.Owner() == who {
			return in
		}
	}
	return nil
}
