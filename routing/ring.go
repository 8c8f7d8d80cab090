package routing

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Defaults and limits of a ring.
const (
	DefaultPoints = 512     // points of a member of weight 100
	DefaultSlots  = 1 << 16 // 128 KB of owners, which stays inside a core's L2
	MaxWeight     = 10_000  // a hundred times the weight of an ordinary member
	maxMembers    = 1<<16 - 1
	maxPoints     = 1 << 26
	minSlots      = 1 << 8
	maxSlots      = 1 << 20
)

// RingOptions shapes a ring. Every process that shares a pool needs the same
// options: changing one of them moves keys. The zero value of a field stands
// for its default.
type RingOptions struct {
	Points     int // points at weight 100; 0 is DefaultPoints
	Slots      int // size of the owner table, a power of two; 0 is DefaultSlots, 1<<18 balances better past 250 members
	CapPercent int // no member owns more slots than this part of its fair share, 101 or more, for a little avoidable movement; 0 is no cap
}

// Validate reports the first option that no ring can be built with.
func (o RingOptions) Validate() error {
	o = o.withDefaults()
	switch {
	case o.Points < 1 || o.Points > 1<<14:
		return fmt.Errorf("ring points %d: want 1 to %d", o.Points, 1<<14)
	case o.Slots < minSlots || o.Slots > maxSlots || bits.OnesCount(uint(o.Slots)) != 1:
		return fmt.Errorf("ring slots %d: want a power of two from %d to %d", o.Slots, minSlots, maxSlots)
	case o.CapPercent != 0 && (o.CapPercent < 101 || o.CapPercent > 1000):
		return fmt.Errorf("ring cap %d %%: want 0 or 101 to 1000", o.CapPercent)
	}
	return nil
}

func (o RingOptions) withDefaults() RingOptions {
	if o.Points == 0 {
		o.Points = DefaultPoints
	}
	if o.Slots == 0 {
		o.Slots = DefaultSlots
	}
	return o
}

// Member is one instance as the ring sees it.
type Member struct {
	ID          string
	Weight      int // 100 is ordinary, 0 owns no keys
	RampPercent int // part of the weight in force, 1 to 100; 0 means all of it, RampQueued none
}

// RampQueued is the part of its weight that a member has in force while it waits
// for its turn to join: none.
const RampQueued = -1

// effectiveWeight is the weight in force, in hundredths.
func (m Member) effectiveWeight() int {
	switch m.RampPercent {
	case 0:
		return m.Weight * 100
	case RampQueued:
		return 0
	}
	return m.Weight * m.RampPercent
}

// points is the member's number of points: proportional to its effective
// weight, rounded to nearest, and at least one while the weight is positive.
// It never falls when the weight rises, which is what makes a raise only add.
func (m Member) points(at100 int) int {
	w := m.effectiveWeight()
	if w == 0 {
		return 0
	}
	return max(1, (at100*w+5_000)/10_000)
}

func (m Member) validate() error {
	switch {
	case m.ID == "":
		return errors.New("member without an id")
	case m.Weight < 0 || m.Weight > MaxWeight:
		return fmt.Errorf("member %s: weight %d: want 0 to %d", m.ID, m.Weight, MaxWeight)
	case m.RampPercent < RampQueued || m.RampPercent > 100:
		return fmt.Errorf("member %s: ramp %d %%: want 0 to 100, or %d", m.ID, m.RampPercent, RampQueued)
	}
	return nil
}

// Ring is an immutable consistent-hash ring. Any number of goroutines may read
// one; a change of members makes another with [Ring.With].
//
// Member indexes follow the order of ids, so they are the same in every
// process that holds the same members.
type Ring struct {
	opts      RingOptions // with defaults filled in
	shift     uint8       // a key's slot is its hash >> shift
	pairShift uint8       // a hash's pair of slots is hash >> pairShift
	slots     []uint16    // owner of each slot

	ids    []string // by index, ascending
	counts []int    // points of each member
	placed int      // members with at least one point

	// The points in ascending order of (hash, index), and for each pair of
	// slots the number of points that lie before the pair's boundary.
	hashes []uint64
	owners []uint16
	starts []uint32
}

// NewRing builds the ring of the given members, in any order.
func NewRing(opts RingOptions, members []Member) (*Ring, error) {
	r, err := prepare(opts, members)
	if err != nil {
		return nil, err
	}
	r.sortPoints()
	r.compile()
	return r, nil
}

// With returns the ring of other members under the same options. It equals the
// ring that [NewRing] builds, and costs less when few members differ, because
// the points of the others are merged instead of sorted again. It returns r
// itself when nothing differs.
func (r *Ring) With(members []Member) (*Ring, error) {
	next, err := prepare(r.opts, members)
	if err != nil {
		return nil, err
	}
	if slices.Equal(r.ids, next.ids) && slices.Equal(r.counts, next.counts) {
		return r, nil
	}
	if !next.mergePoints(r) {
		next.sortPoints()
	}
	next.compile()
	return next, nil
}

// prepare validates and makes a ring that still lacks its points.
func prepare(opts RingOptions, members []Member) (*Ring, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if len(members) > maxMembers {
		return nil, fmt.Errorf("ring of %d members: want at most %d", len(members), maxMembers)
	}
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	opts = opts.withDefaults()
	r := &Ring{
		opts:   opts,
		shift:  uint8(64 - bits.TrailingZeros(uint(opts.Slots))),
		ids:    make([]string, len(sorted)),
		counts: make([]int, len(sorted)),
	}
	r.pairShift = r.shift + 1
	total := 0
	for i, m := range sorted {
		if err := m.validate(); err != nil {
			return nil, err
		}
		if i > 0 && sorted[i-1].ID == m.ID {
			return nil, fmt.Errorf("member %s: listed twice", m.ID)
		}
		r.ids[i], r.counts[i] = m.ID, m.points(opts.Points)
		total += r.counts[i]
		if r.counts[i] > 0 {
			r.placed++
		}
	}
	if total > maxPoints {
		return nil, fmt.Errorf("ring of %d points: want at most %d", total, maxPoints)
	}
	return r, nil
}

// Len is the number of members, those without points included.
func (r *Ring) Len() int { return len(r.ids) }

// ID names the member of an index.
func (r *Ring) ID(i int) string { return r.ids[i] }

// Points is the number of points of a member, 0 for a stranger.
func (r *Ring) Points(id string) int {
	i, ok := slices.BinarySearch(r.ids, id)
	if !ok {
		return 0
	}
	return r.counts[i]
}

// Options returns the options the ring was built with, defaults filled in.
func (r *Ring) Options() RingOptions { return r.opts }

// Owner names the member that owns a key; false when no member has points.
func (r *Ring) Owner(key string) (string, bool) {
	if r.placed == 0 {
		return "", false
	}
	return r.ids[r.nearest(xxhash.Sum64String(key))], true
}

// Checksum digests the options, the members, their points and the compiled
// table. Two processes that answer the same value place every key alike,
// whatever order they learnt the members in. It costs some 100 microseconds;
// keep the answer rather than ask twice.
func (r *Ring) Checksum() uint64 {
	d := xxhash.New()
	buf := binary.LittleEndian.AppendUint64(nil, uint64(r.opts.Points))
	buf = binary.LittleEndian.AppendUint64(buf, uint64(r.opts.CapPercent))
	for i, id := range r.ids {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(len(id)))
		buf = append(buf, id...)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(r.counts[i]))
	}
	for _, owner := range r.slots {
		buf = binary.LittleEndian.AppendUint16(buf, owner)
	}
	d.Write(buf)
	return d.Sum64()
}
