package routing

import "math"

// Share is the part of the key space one member owns.
type Share struct {
	ID     string
	Points int
	Slots  int     // slots of the table it owns
	Share  float64 // Slots over all slots, 0 to 1
	Fair   float64 // its points over all points, 0 to 1
}

// Shares lists what each member owns, in order of ids: nothing of an empty ring,
// and nothing where no member has points.
func (r *Ring) Shares() []Share {
	owned := make([]int, len(r.ids))
	if r.placed > 0 { // else the table names an index that owns nothing, if it exists at all
		for _, o := range r.slots {
			owned[o]++
		}
	}
	total := max(1, r.total())
	shares := make([]Share, len(r.ids))
	for i, id := range r.ids {
		shares[i] = Share{
			ID:     id,
			Points: r.counts[i],
			Slots:  owned[i],
			Share:  float64(owned[i]) / float64(r.opts.Slots),
			Fair:   float64(r.counts[i]) / float64(total),
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
func (r *Ring) Spread() Spread {
	if r.placed == 0 {
		return Spread{}
	}
	s := Spread{MinMean: math.Inf(1)}
	sum := 0.0
	for _, m := range r.Shares() {
		if m.Points == 0 {
			continue
		}
		ratio := m.Share / m.Fair
		s.MaxMean, s.MinMean = max(s.MaxMean, ratio), min(s.MinMean, ratio)
		sum += (ratio - 1) * (ratio - 1)
	}
	s.StdDev = math.Sqrt(sum / float64(r.placed))
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
func (r *Ring) Movement(next *Ring) Movement {
	if r.placed == 0 || next.placed == 0 {
		return Movement{}
	}
	points := func(in *Ring, id string) float64 { return float64(in.Points(id)) }
	slots := max(r.opts.Slots, next.opts.Slots)
	step := 1 / float64(slots)
	var m Movement
	for s := range slots {
		from := r.ids[r.slots[s*r.opts.Slots/slots]]
		to := next.ids[next.slots[s*next.opts.Slots/slots]]
		if from == to {
			continue
		}
		m.Moved += step
		if points(next, from) >= points(r, from) && points(next, to) <= points(r, to) {
			m.Avoidable += step
		}
	}
	before, after := float64(r.total()), float64(next.total())
	for i, id := range next.ids {
		gain := float64(next.counts[i])/after - points(r, id)/before
		m.Ideal += max(0, gain)
	}
	return m
}
