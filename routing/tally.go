package routing

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Tally places many sessions against one snapshot while counting what it was
// told to add: the means of a drain or a rebalance to spread its moves. It
// belongs to one planner and is not safe for concurrent use.
type Tally struct {
	s       *Snapshot
	targets bitset // eligible, less the sources
	crowd   crowd  // of targets, with everything planned
	planned []int  // added to each instance's load
}

// NewTally begins a plan that places nothing on the sources.
func NewTally(s *Snapshot, sources ...string) *Tally {
	t := &Tally{
		s:       s,
		targets: append(bitset(nil), s.takes...),
		crowd:   s.crowd,
		planned: make([]int, len(s.instances)),
	}
	for _, id := range sources {
		i := s.find(id)
		if i < 0 || !t.targets.has(i) {
			continue
		}
		t.targets.remove(i)
		t.crowd.load -= uint64(s.instances[i].Load.InFlight())
		t.crowd.weight -= uint64(s.instances[i].member().effectiveWeight())
	}
	return t
}

// Target is where a plan puts a session.
type Target struct {
	Instance *Instance
	Roomy    bool // under its bound with the session and everything planned
}

// Place is [Tally.PlaceHash] for a key in full.
func (t *Tally) Place(key string, load int, avoid func(*Instance) bool) (Target, bool) {
	return t.PlaceHash(xxhash.Sum64String(key), load, avoid)
}

// PlaceHash names a target for a key of which the 64-bit xxhash is known, and
// counts nothing. It is the first instance of the walk that stays under its
// bound with the session's load on top; one that avoid names only when no
// other has room; and with all of them over, the least loaded that avoid does
// not name, if there is one. avoid may be nil. False means that nobody may
// take the session at all.
func (t *Tally) PlaceHash(hash uint64, load int, avoid func(*Instance) bool) (Target, bool) {
	var shunned, crowded, last *Instance
	w := t.s.ring.WalkHash(hash)
	for i, ok := w.Next(); ok; i, ok = w.Next() {
		if !t.targets.has(i) {
			continue
		}
		in, roomy := &t.s.instances[i], !t.over(i, load)
		avoided := avoid != nil && avoid(in)
		switch {
		case roomy && !avoided:
			return Target{in, true}, true
		case roomy && shunned == nil:
			shunned = in
		case !avoided:
			crowded = t.lighter(in, crowded)
		default:
			last = t.lighter(in, last)
		}
	}
	switch {
	case shunned != nil:
		return Target{shunned, true}, true
	case crowded != nil:
		return Target{crowded, false}, true
	}
	return Target{last, false}, last != nil
}

// Add counts load onto an instance, or takes it away when negative.
func (t *Tally) Add(id string, load int) error {
	i := t.s.find(id)
	if i < 0 {
		return fmt.Errorf("count load on instance %s: not in snapshot %d", id, t.s.version)
	}
	before := t.load(i)
	t.planned[i] += load
	if t.targets.has(i) {
		t.crowd.load += uint64(t.load(i) - before) // wraps around for a decrease, as intended
	}
	return nil
}

// OverBound reports whether an instance is over its bound with everything
// planned; a stranger is not.
func (t *Tally) OverBound(id string) bool {
	i := t.s.find(id)
	return i >= 0 && t.over(i, 0)
}

func (t *Tally) load(i int) int {
	return min(max(t.s.instances[i].Load.InFlight()+t.planned[i], 0), maxInFlight)
}

func (t *Tally) over(i, more int) bool {
	load := t.load(i)
	fair := t.crowd.fairMilli(load, t.s.instances[i].member().effectiveWeight(), t.targets.has(i))
	return t.s.policy.Bound.over(min(load+more, maxInFlight), fair)
}

// lighter is the less loaded of two, ties by id; either may be nil.
func (t *Tally) lighter(a, b *Instance) *Instance {
	if b == nil {
		return a
	}
	x := t.load(t.s.find(a.ID)) * b.member().effectiveWeight()
	y := t.load(t.s.find(b.ID)) * a.member().effectiveWeight()
	if x < y || x == y && a.ID < b.ID {
		return a
	}
	return b
}
