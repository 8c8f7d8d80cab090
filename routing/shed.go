package routing

import (
	"math/bits"
	"time"
)

// An instance that has too much to bear, because it is over its bound or
// saturated, lets its bindings go little by little. In every spell of its age a
// binding draws one lot, and leaves when the lot is within the part of the load
// that should go. The lot follows from the key and the age of the binding, so
// replicas agree on it, and neither more requests nor more load tables make more
// bindings leave. Without it all of them would leave between two load tables,
// and overload the next.
const (
	// shedSpell outlasts a usual request: when the next lot is drawn, what left
	// by the last one is gone from the load tables.
	shedSpell = 15 * time.Second

	// shedFreely is how many requests' worth an instance may lose in a spell
	// whatever its part: so few flood nobody. It is far below what most instances
	// run at once, or one that chance filled would lose nearly all it has.
	shedFreely = 4

	// saturatedPart takes an instance from 95 % of what it can hold to below
	// 80 %. It counts in full from this many times MinStick on.
	saturatedPart, saturatedAges = whole / 4, 8

	// agedMost times its part is the chance of the oldest bindings, in
	// proportion to their age from once MaxAge on.
	agedMost = 4

	whole = 1 << 20 // parts are in units of one whole-th
)

// shedsAged reports whether a binding older than MaxAge leaves an owner over
// its bound.
func (s *Snapshot) shedsAged(owner int, hash uint64, age time.Duration) bool {
	most := s.policy.MaxAge
	part := mulDiv(s.surplus(owner), uint64(min(age/agedMost, most)*agedMost), uint64(most))
	return lot(hash, age, most) < max(part, s.freely(owner))
}

// shedsSaturated reports whether a binding older than MinStick leaves a
// saturated owner. Over its bound too, half of its surplus is more than it can
// serve for long, whatever the ages, and its queue grows until that has left.
func (s *Snapshot) shedsSaturated(owner int, hash uint64, age time.Duration) bool {
	stick, part := s.policy.MinStick, uint64(saturatedPart)
	if stick > age/saturatedAges {
		part = mulDiv(part, uint64(age/saturatedAges), uint64(stick))
	}
	if s.over.has(owner) {
		part = max(part, s.surplus(owner)/2)
	}
	return lot(hash, age, stick) < max(part, s.freely(owner))
}

// shedTo is where a binding goes that its owner sheds: to the first of the walk
// that has no more than its fair share, else to the first under its bound. The walk
// goes on from the owner and comes to those ahead of it last: they were passed by
// before, and sessions whose walks begin alike would all come back to them at once,
// from wherever they went, as soon as the load table calls them calm.
func (s *Snapshot) shedTo(hash uint64, owner int, roomy bitset) int {
	var room [16]uint64
	calm := append(bitset(room[:0]), roomy...)
	for w := range calm {
		calm[w] &= s.calm[w]
	}
	if to := s.ring.firstPast(hash, owner, calm); to >= 0 {
		return to
	}
	return s.ring.firstPast(hash, owner, roomy)
}

// surplus is the part of an instance's load that lies above its fair share of
// all loads and above what chance adds to that, two standard deviations.
func (s *Snapshot) surplus(i int) uint64 {
	load, weight := uint64(s.instances[i].Load.InFlight()), s.instances[i].member().effectiveWeight()
	all := s.crowd
	if !s.takes.has(i) {
		all.add(int(load), weight)
	}
	fair := all.fairMilli(0, weight, false)
	fair += 2 * sqrtMilli(fair)
	if fair >= load*1000 {
		return 0
	}
	return whole - fair*whole/(load*1000)
}

// freely is shedFreely as a part of an instance's load.
func (s *Snapshot) freely(i int) uint64 {
	return whole * shedFreely / uint64(max(1, s.instances[i].Load.InFlight()))
}

// lot draws from 0 to whole for a binding at an age. Spells are shorter where
// the policy counts in less than minutes.
func lot(hash uint64, age, unit time.Duration) uint64 {
	spell := max(time.Millisecond, min(shedSpell, unit/4))
	return mix(hash+mix(uint64(age/spell))) % whole
}

// mix spreads a number over all 64 bits: the finalizer of SplitMix64 (Steele,
// Lea, Flood 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// mulDiv is a·b/c, or the highest there is.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return ^uint64(0)
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}
