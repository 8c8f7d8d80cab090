package routing

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"

	"github.com/cespare/xxhash/v2"
)

// pointHasher yields the points of one member: hash(id, i) is the xxhash64 of
// the id's bytes followed by i as four little-endian bytes. The fixed width
// keeps ("a", i) apart from ("ab", j).
type pointHasher struct {
	buf []byte
	id  int
}

func newPointHasher(id string) pointHasher {
	return pointHasher{buf: append([]byte(id), 0, 0, 0, 0), id: len(id)}
}

func (p pointHasher) at(i int) uint64 {
	binary.LittleEndian.PutUint32(p.buf[p.id:], uint32(i))
	return xxhash.Sum64(p.buf)
}

// pairs is the number of slot pairs, each with one boundary.
func (r *Ring) pairs() int { return r.opts.Slots / 2 }

// total is the number of points the members ask for.
func (r *Ring) total() int {
	n := 0
	for _, c := range r.counts {
		n += c
	}
	return n
}

// sortPoints hashes and sorts every point, once. The points are spread over
// the slot pairs first, by counting, which leaves a handful in each to sort
// and yields the pairs' starts on the way.
func (r *Ring) sortPoints() {
	n := r.total()
	hashes, owners := make([]uint64, 0, n), make([]uint16, 0, n)
	ends := make([]uint32, r.pairs()+1)
	for m, id := range r.ids {
		h := newPointHasher(id)
		for i := range r.counts[m] {
			x := h.at(i)
			hashes, owners = append(hashes, x), append(owners, uint16(m))
			ends[x>>r.pairShift+1]++
		}
	}
	for p := range r.pairs() {
		ends[p+1] += ends[p]
	}
	r.starts = slices.Clone(ends[:r.pairs()])
	r.hashes, r.owners = make([]uint64, n), make([]uint16, n)
	for i, x := range hashes {
		at := &ends[x>>r.pairShift]
		r.hashes[*at], r.owners[*at] = x, owners[i]
		*at++
	}
	// The scatter moved each end on to where the next pair begins.
	begin := uint32(0)
	for _, end := range ends[:r.pairs()] {
		sortBucket(pointSlice{r.hashes[begin:end], r.owners[begin:end]})
		begin = end
	}
}

// pointSlice orders points by hash, ties by owner index, which is by id.
type pointSlice struct {
	hashes []uint64
	owners []uint16
}

func (p pointSlice) Len() int { return len(p.hashes) }

func (p pointSlice) Less(i, j int) bool {
	if p.hashes[i] != p.hashes[j] {
		return p.hashes[i] < p.hashes[j]
	}
	return p.owners[i] < p.owners[j]
}

func (p pointSlice) Swap(i, j int) {
	p.hashes[i], p.hashes[j] = p.hashes[j], p.hashes[i]
	p.owners[i], p.owners[j] = p.owners[j], p.owners[i]
}

// sortBucket sorts one pair's points: by insertion while they are few, which
// they are at the sizes pools have.
func sortBucket(p pointSlice) {
	if len(p.hashes) > 64 {
		sort.Sort(p)
		return
	}
	for i := 1; i < len(p.hashes); i++ {
		h, o, j := p.hashes[i], p.owners[i], i
		for ; j > 0 && (p.hashes[j-1] > h || p.hashes[j-1] == h && p.owners[j-1] > o); j-- {
			p.hashes[j], p.owners[j] = p.hashes[j-1], p.owners[j-1]
		}
		p.hashes[j], p.owners[j] = h, o
	}
}

// change is one point that a merge adds before, or drops at, a position of the
// older ring.
type change struct {
	hash  uint64 // of the point
	pos   uint32
	owner uint16 // index in the newer ring; unused by a drop
	drop  bool
}

// compareChanges orders changes as their points stand. Only ties of 64-bit
// hashes look past the first line: there additions at a position come before
// the drop of what stood there.
func compareChanges(a, b change) int {
	if a.hash != b.hash {
		return cmp.Compare(a.hash, b.hash)
	}
	if a.pos != b.pos {
		return cmp.Compare(a.pos, b.pos)
	}
	if a.drop != b.drop {
		if b.drop {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.owner, b.owner)
}

// mergePoints takes over old's sorted points, less the dropped and with the
// added ones. It reports false, having done nothing, when so much differs that
// sorting everything is cheaper.
func (r *Ring) mergePoints(old *Ring) bool {
	toNew, spans := r.diff(old)
	changes, ok := r.changesSince(old, toNew, spans)
	if !ok {
		return false
	}
	n := r.total()
	r.hashes, r.owners = make([]uint64, 0, n), make([]uint16, 0, n)
	r.starts = slices.Clone(old.starts)
	from, pair := 0, 0
	for _, c := range changes {
		from = r.take(old, toNew, from, int(c.pos))
		// A point counts towards the starts of the pairs after its own.
		pair = r.shiftStarts(pair, int(c.hash>>r.pairShift)+1, len(r.hashes)-from)
		if c.drop {
			from++
			continue
		}
		r.hashes, r.owners = append(r.hashes, c.hash), append(r.owners, c.owner)
	}
	r.take(old, toNew, from, len(old.hashes))
	r.shiftStarts(pair, r.pairs(), len(r.hashes)-len(old.hashes))
	return true
}

// take appends old's points from one position to another and returns the latter.
func (r *Ring) take(old *Ring, toNew []uint16, from, to int) int {
	r.hashes = append(r.hashes, old.hashes[from:to]...)
	at := len(r.owners)
	r.owners = r.owners[:at+to-from]
	out := r.owners[at:]
	for i, o := range old.owners[from:to] {
		out[i] = toNew[o]
	}
	return to
}

// shiftStarts moves the starts of the pairs from one up to another by the
// surplus of points before them, and returns the pair to go on at.
func (r *Ring) shiftStarts(from, to, surplus int) int {
	if from >= to {
		return from
	}
	if surplus != 0 {
		starts := r.starts[from:to]
		for i := range starts {
			starts[i] += uint32(surplus) // wraps around for a deficit, as intended
		}
	}
	return to
}

// span is a run of one member's point numbers, [from, to), that only one of
// two rings has.
type span struct {
	id       string
	owner    uint16 // index in the older ring for a drop, in the newer otherwise
	drop     bool
	from, to int
}

// diff walks both id lists in step. It returns old's indexes translated to r's
// (a leaver's to where it would stand, which keeps ties in order) and the
// spans that differ.
func (r *Ring) diff(old *Ring) (toNew []uint16, spans []span) {
	toNew = make([]uint16, len(old.ids))
	for i, j := 0, 0; i < len(old.ids) || j < len(r.ids); {
		var had, has int
		oldIndex, newIndex := uint16(i), uint16(j)
		var id string
		if j == len(r.ids) || i < len(old.ids) && old.ids[i] <= r.ids[j] {
			id, had = old.ids[i], old.counts[i]
			toNew[i] = newIndex
			i++
		} else {
			id = r.ids[j]
		}
		if j < len(r.ids) && r.ids[j] == id {
			has = r.counts[j]
			j++
		}
		switch {
		case had < has:
			spans = append(spans, span{id: id, owner: newIndex, from: had, to: has})
		case had > has:
			spans = append(spans, span{id: id, owner: oldIndex, drop: true, from: has, to: had})
		}
	}
	return toNew, spans
}

// changesSince turns the spans into sorted changes; false when a merge does
// not pay, or when one member has two equal points, which 64-bit hashes make a
// curiosity that a full sort handles.
func (r *Ring) changesSince(old *Ring, toNew []uint16, spans []span) ([]change, bool) {
	n := 0
	for _, s := range spans {
		n += s.to - s.from
	}
	if n > len(old.hashes)/2 {
		return nil, false
	}
	changes := make([]change, 0, n)
	for _, s := range spans {
		h := newPointHasher(s.id)
		for i := s.from; i < s.to; i++ {
			if s.drop {
				changes = append(changes, old.removal(h.at(i), s.owner))
			} else {
				changes = append(changes, old.addition(h.at(i), s.owner, toNew))
			}
		}
	}
	slices.SortFunc(changes, compareChanges)
	for i := 1; i < len(changes); i++ {
		if a, b := changes[i-1], changes[i]; a.drop && b.drop && a.pos == b.pos {
			return nil, false
		}
	}
	return changes, true
}

// addition places a point of another ring's member among r's own.
func (r *Ring) addition(hash uint64, owner uint16, translate []uint16) change {
	pos := r.lowerBound(hash)
	for pos < len(r.hashes) && r.hashes[pos] == hash && translate[r.owners[pos]] < owner {
		pos++
	}
	return change{hash: hash, pos: uint32(pos), owner: owner}
}

// removal finds one of r's own points.
func (r *Ring) removal(hash uint64, owner uint16) change {
	pos := r.lowerBound(hash)
	for r.owners[pos] != owner {
		pos++
	}
	return change{hash: hash, pos: uint32(pos), drop: true}
}

// lowerBound is the position of the first point at or above a hash.
func (r *Ring) lowerBound(hash uint64) int {
	pos := int(r.starts[hash>>r.pairShift])
	for pos < len(r.hashes) && r.hashes[pos] < hash {
		pos++
	}
	return pos
}
