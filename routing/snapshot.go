package routing

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"
)

// Spec is what a snapshot is made of.
type Spec struct {
	Version     uint64 // of the snapshot: equal versions have to mean equal contents
	LoadVersion uint64 // of the load table the instances' loads come from
	Policy      Policy
	Instances   []Instance // in any order
}

// Loads is a pool's load table.
type Loads struct {
	Version     uint64 // of the snapshot that will hold it
	LoadVersion uint64
	ByInstance  map[string]Load // who is absent keeps its last load
}

// Snapshot is an immutable view of one pool. Everything a decision needs of
// the whole pool is worked out when it is built, so that a decision touches
// the instances it considers and no others. Share it through an
// atomic.Pointer, and load that once a request.
type Snapshot struct {
	version, loadVersion uint64
	policy               Policy
	ring                 *Ring
	roster               *roster
	instances            []Instance // in order of ids, as the ring's indexes

	takes bitset // eligible for every request: ready, of some weight, breaker closed
	roomy bitset // those of takes that are under their bound
	over  bitset // whoever is over its bound, eligible or not
	calm  bitset // those of roomy that carry no more than their fair share
	crowd crowd  // of takes

	queued []int // who would be of takes if it had not to wait to join
}

// roster finds instances by name. Only a change of members touches it.
type roster struct {
	index   map[string]uint16
	address map[string]uint16 // the first instance at an address
	next    []uint16          // the next one at the same address, 0 at the end: ranks of one server share it
}

// NewSnapshot builds a snapshot. prev is the pool's snapshot before, or nil;
// what has not changed since is taken over, above all the ring, which depends
// on ids, weights and ramps alone: states, breakers and loads never rebuild it.
func NewSnapshot(spec Spec, prev *Snapshot) (*Snapshot, error) {
	if err := spec.Policy.Validate(); err != nil {
		return nil, fmt.Errorf("build snapshot %d: %w", spec.Version, err)
	}
	s := &Snapshot{
		version:     spec.Version,
		loadVersion: spec.LoadVersion,
		policy:      spec.Policy,
		instances:   inOrder(spec.Instances),
	}
	for i := range s.instances {
		in := &s.instances[i]
		if prev != nil && prev.hasAddress(in.ID, in.Address) {
			continue // parsed once already
		}
		in.Address = canonicalOr(in.Address)
	}
	s.admitQueued()
	ring, err := s.ringAfter(prev)
	if err != nil {
		return nil, fmt.Errorf("build snapshot %d: %w", spec.Version, err)
	}
	s.ring, s.roster = ring, newRoster(s.instances)
	s.judge()
	return s, nil
}

// WithLoads returns the snapshot with another load table. It costs a pass over
// the instances and shares the ring.
func (s *Snapshot) WithLoads(l Loads) *Snapshot {
	next := &Snapshot{
		version:     l.Version,
		loadVersion: l.LoadVersion,
		policy:      s.policy,
		ring:        s.ring,
		roster:      s.roster,
		instances:   slices.Clone(s.instances),
	}
	for i := range next.instances {
		if load, ok := l.ByInstance[next.instances[i].ID]; ok {
			next.instances[i].Load = load
		}
	}
	next.judge()
	return next
}

// admitQueued lets in who waits to join where pace is no reason to wait: when
// nobody else may take a session, and when those who may are of the same rollout. Who
// returns is of none.
// The holder of the health lease says the same within a round.
func (s *Snapshot) admitQueued() {
	var queued []int
	var first time.Time // that one of those who serve was registered
	serving := false
	for i := range s.instances {
		in := &s.instances[i]
		switch {
		case !in.State.MayTakeNew() || in.Breaker != BreakerClosed:
		case in.RampPercent == RampQueued:
			queued = append(queued, i)
		case in.Weight > 0:
			if !serving || in.Registered.Before(first) {
				first = in.Registered
			}
			serving = true
		}
	}
	for _, i := range queued {
		in := &s.instances[i]
		if !serving || !in.Returns && !first.IsZero() && in.Registered.Sub(first) < s.policy.Ramp.Opening {
			in.RampPercent = 0
		}
	}
}

func (s *Snapshot) ringAfter(prev *Snapshot) (*Ring, error) {
	members := make([]Member, len(s.instances))
	for i := range s.instances {
		members[i] = s.instances[i].member()
	}
	if prev != nil && prev.ring.opts == s.policy.Ring.withDefaults() {
		return prev.ring.With(members)
	}
	return NewRing(s.policy.Ring, members)
}

// inOrder copies instances in order of ids. It sorts references, because an
// instance is large.
func inOrder(list []Instance) []Instance {
	refs := make([]*Instance, len(list))
	for i := range list {
		refs[i] = &list[i]
	}
	slices.SortFunc(refs, func(a, b *Instance) int { return cmp.Compare(a.ID, b.ID) })
	sorted := make([]Instance, len(list))
	for i, in := range refs {
		sorted[i] = *in
	}
	return sorted
}

func newRoster(instances []Instance) *roster {
	r := &roster{
		index:   make(map[string]uint16, len(instances)),
		address: make(map[string]uint16, len(instances)),
		next:    make([]uint16, len(instances)),
	}
	// From the back, so that 0 as a successor can only mean the end.
	for i := len(instances) - 1; i >= 0; i-- {
		in := &instances[i]
		r.index[in.ID] = uint16(i)
		r.next[i] = r.address[in.Address]
		r.address[in.Address] = uint16(i)
	}
	return r
}

// at yields the indexes of the instances at an address.
func (r *roster) at(address string) iter.Seq[int] {
	return func(yield func(int) bool) {
		i, ok := r.address[address]
		for ok && yield(int(i)) {
			i = r.next[i]
			ok = i != 0
		}
	}
}

// judge works out who is eligible and who is over its bound.
func (s *Snapshot) judge() {
	n := len(s.instances)
	s.takes, s.roomy, s.over, s.calm = newBitset(n), newBitset(n), newBitset(n), newBitset(n)
	s.crowd = crowd{}
	s.queued = nil
	for i := range s.instances {
		in := &s.instances[i]
		if in.RampPercent == RampQueued && in.Weight > 0 && in.State.MayTakeNew() && in.Breaker == BreakerClosed {
			s.queued = append(s.queued, i)
		}
		if s.mayTake(i) && in.Breaker == BreakerClosed {
			s.takes.add(i)
			s.crowd.add(in.Load.InFlight(), in.member().effectiveWeight())
		}
	}
	for i := range s.instances {
		load, weight := s.instances[i].Load.InFlight(), s.instances[i].member().effectiveWeight()
		eligible := s.takes.has(i)
		fair := s.crowd.fairMilli(load, weight, eligible)
		switch {
		case s.policy.Bound.over(load, fair):
			s.over.add(i)
		case eligible:
			s.roomy.add(i)
			if uint64(load)*1000 <= fair {
				s.calm.add(i)
			}
		}
	}
}

// mayTake is eligibility but for the breaker and the request.
func (s *Snapshot) mayTake(i int) bool {
	return s.instances[i].State.MayTakeNew() && s.ring.counts[i] > 0
}

// Version is the version the snapshot was built with.
func (s *Snapshot) Version() uint64 { return s.version }

// LoadVersion is the version of its load table.
func (s *Snapshot) LoadVersion() uint64 { return s.loadVersion }

// Policy is the policy its decisions follow.
func (s *Snapshot) Policy() Policy { return s.policy }

// Ring is the ring its decisions walk.
func (s *Snapshot) Ring() *Ring { return s.ring }

// Len is the number of instances.
func (s *Snapshot) Len() int { return len(s.instances) }

// Instances yields every instance in order of ids.
func (s *Snapshot) Instances() iter.Seq[*Instance] {
	return func(yield func(*Instance) bool) {
		for i := range s.instances {
			if !yield(&s.instances[i]) {
				return
			}
		}
	}
}

// Lookup finds an instance by id, nil for a stranger.
func (s *Snapshot) Lookup(id string) *Instance {
	if i := s.find(id); i >= 0 {
		return &s.instances[i]
	}
	return nil
}

func (s *Snapshot) hasAddress(id, address string) bool {
	in := s.Lookup(id)
	return in != nil && in.Address == address
}

func (s *Snapshot) find(id string) int {
	if i, ok := s.roster.index[id]; ok {
		return int(i)
	}
	return -1
}

// OverBound reports whether an instance is over its bound; a stranger is not.
func (s *Snapshot) OverBound(id string) bool {
	i := s.find(id)
	return i >= 0 && s.over.has(i)
}

// Eligible reports whether new sessions may be placed on an instance.
func (s *Snapshot) Eligible(id string) bool {
	i := s.find(id)
	return i >= 0 && s.takes.has(i)
}
