package routing

import (
	"math"
	"slices"
)

// Share is the part of the key space one member owns.
type Share struct {
	ID     string
	Points int
	Slots  int     // slots of the table it owns
	Share  float64 // Slots over all slots, 0 to 1
	Fair   float64 // its points over all points, 0 to 1
}

// holding is a table of slot owners, and the points that entitle them.
type holding struct {
	ids    []string
	counts []int
	placed int // members with at least one point
	slots  []uint16
}

func (r *Ring) holding() holding { return holding{r.ids, r.counts, r.placed, r.slots} }

// holding is where new sessions go by the ring: slots of those that take none belong
// to the next of their walk that does.
func (s *Snapshot) holding() holding {
	h := s.ring.holding()
	h.counts, h.placed = make([]int, len(h.ids)), 0
	for i, points := range s.ring.counts {
		if s.takes.has(i) {
			h.counts[i] = points
			h.placed++
		}
	}
	if h.placed == 0 || h.placed == s.ring.placed {
		return h
	}
	h.slots = make([]uint16, len(s.ring.slots))
	for slot := range h.slots {
		h.slots[slot] = uint16(s.ring.first(uint64(slot)<<s.ring.shift, s.takes)) //nolint:gosec // somebody takes them
	}
	return h
}

// Shares lists what each member owns, in order of ids: nothing of an empty ring,
// and nothing where no member has points.
func (r *Ring) Shares() []Share { return r.holding().shares() }

// Shares lists what part of new sessions goes to each instance by the ring alone, in
// order of ids: nothing to one that takes none. Their fair parts are of those that do.
func (s *Snapshot) Shares() []Share { return s.holding().shares() }

func (h holding) shares() []Share {
	owned, total := make([]int, len(h.ids)), max(1, h.total())
	if h.placed > 0 { // else the table names an index that owns nothing, if it exists at all
		for _, o := range h.slots {
			owned[o]++
		}
	}
	shares := make([]Share, len(h.ids))
	for i, id := range h.ids {
		shares[i] = Share{
			ID:     id,
			Points: h.counts[i],
			Slots:  owned[i],
			Share:  float64(owned[i]) / float64(len(h.slots)),
			Fair:   float64(h.counts[i]) / total,
		}
	}
	return shares
}

// Spread says how evenly a ring shares the key space. All figures are ratios
// of a member's share to its fair one, so 1 is perfect whatever the weights;
// members without points do not count.
type Spread struct {
	MaxMean, MinMean, StdDev float64
}

// Spread measures the compiled table.
func (r *Ring) Spread() Spread { return spreadOf(r.Shares()) }

// Spread measures how evenly new sessions go to those that take them.
func (s *Snapshot) Spread() Spread { return spreadOf(s.Shares()) }

func spreadOf(shares []Share) Spread {
	s := Spread{MinMean: math.Inf(1)}
	sum, n := 0.0, 0
	for _, m := range shares {
		if m.Points == 0 {
			continue
		}
		ratio := m.Share / m.Fair
		s.MaxMean, s.MinMean = max(s.MaxMean, ratio), min(s.MinMean, ratio)
		sum += (ratio - 1) * (ratio - 1)
		n++
	}
	if n == 0 {
		return Spread{}
	}
	s.StdDev = math.Sqrt(sum / float64(n))
	return s
}

// Movement says what changing one ring for another does to the key space; all
// figures are parts of it, 0 to 1.
type Movement struct {
	Moved     float64 // changes its owner
	Ideal     float64 // has to, for every member to reach its new fair share
	Avoidable float64 // moves although its owner lost no points and its new one won none
}

// Movement compares r with the ring that follows it. Tables of different size
// are compared slot by slot of the finer one.
func (r *Ring) Movement(next *Ring) Movement { return r.holding().movement(next.holding()) }

// Movement says what the snapshot that follows does to where new sessions go by the
// ring alone: nothing while nobody takes any.
func (s *Snapshot) Movement(next *Snapshot) Movement { return s.holding().movement(next.holding()) }

// PlacesAs reports whether both place new sessions alike by the ring alone, without
// comparing tables: also false where other members came to the same.
func (s *Snapshot) PlacesAs(other *Snapshot) bool {
	return s.ring == other.ring && slices.Equal(s.takes, other.takes)
}

func (h holding) movement(next holding) Movement {
	if h.placed == 0 || next.placed == 0 {
		return Movement{}
	}
	had, has := h.points(), next.points()
	slots := max(len(h.slots), len(next.slots))
	step := 1 / float64(slots)
	var m Movement
	for s := range slots {
		from := h.ids[h.slots[s*len(h.slots)/slots]]
		to := next.ids[next.slots[s*len(next.slots)/slots]]
		if from == to {
			continue
		}
		m.Moved += step
		if has[from] >= had[from] && has[to] <= had[to] {
			m.Avoidable += step
		}
	}
	before, after := h.total(), next.total()
	for i, id := range next.ids {
		gain := float64(next.counts[i])/after - float64(had[id])/before
		m.Ideal += max(0, gain)
	}
	return m
}

// points are those of each member by its id.
func (h holding) points() map[string]int {
	points := make(map[string]int, len(h.ids))
	for i, id := range h.ids {
		points[id] = h.counts[i]
	}
	return points
}

func (h holding) total() float64 {
	total := 0
	for _, points := range h.counts {
		total += points
	}
	return float64(total)
}
