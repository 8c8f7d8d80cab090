package routing

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// RampPolicy is the pace at which the instances of a pool take up new sessions.
type RampPolicy struct {
	Over         time.Duration // from the start to the whole weight; 0 is at once
	StartPercent int           // of its weight, which an instance begins with
	Steps        int           // until the whole, the start included
	MaxChurn     int           // percent of the key space that joins may move in a minute; 0 is no limit

	// Opening is how long after the first instance of a pool the next ones join
	// as it did, at once and whole: they are the same rollout.
	Opening time.Duration
}

// DefaultRampPolicy is the policy of a pool that nobody configured.
func DefaultRampPolicy() RampPolicy {
	return RampPolicy{Over: time.Minute, StartPercent: 10, Steps: 10, MaxChurn: 10, Opening: 15 * time.Second}
}

// Validate reports the first member of the policy that makes no sense.
func (p RampPolicy) Validate() error {
	switch {
	case p.Over < 0 || p.Over > longestTime || p.Opening < 0 || p.Opening > longestTime:
		return fmt.Errorf("ramp: over %v, opening %v: want 0 to %v", p.Over, p.Opening, longestTime)
	case p.StartPercent < 1 || p.StartPercent > 100 || p.Steps < 1 || p.Steps > 100:
		return fmt.Errorf("ramp: %d steps from %d %%: want 1 to 100 of each", p.Steps, p.StartPercent)
	case p.MaxChurn < 0 || p.MaxChurn > 100:
		return fmt.Errorf("ramp: churn of at most %d %%: want 0 to 100", p.MaxChurn)
	}
	return nil
}

// step is by how many percent of its weight an instance rises at a time.
func (p RampPolicy) step() int {
	if p.Steps == 1 || p.Over == 0 {
		return 100
	}
	return (100 - p.StartPercent + p.Steps - 2) / (p.Steps - 1)
}

// start is the percent an instance begins with.
func (p RampPolicy) start() int {
	if p.Steps == 1 || p.Over == 0 {
		return 100
	}
	return p.StartPercent
}

// churnWindow is the time in which MaxChurn counts.
const churnWindow = time.Minute

// RampMember is an instance as a step of a ramp finds it.
type RampMember struct {
	Boot
	Weight  int
	Percent int // of its weight in force, as published: RampQueued for a boot that nobody has let in yet
	State   State
	Gained  int  // as published, for a new holder of the lease (see Pace)
	Out     bool // likewise
	Returns bool // likewise
}

// Ramp paces the joins of one pool, for the holder of the health lease. An instance
// that is new, or returns from where it took nothing new, begins with a tenth of
// its weight and rises by a tenth at a time. What all of them gain of the key space
// together stays below MaxChurn a minute: who does not fit waits, and who has least
// goes first. Time counts only while an instance takes new sessions: one that was
// down and has to prove itself as a suspect is out until it is ready, and one that
// is suspect for a moment keeps what it has, and does not rise meanwhile. A raised
// weight is a join of the difference. Nothing that takes away
// has a pace: an instance that fails, is drained or gets less weight does so at
// once, and what others gain by it does not count.
//
// Who joins while nobody serves joins whole, for there is nobody to leave the keys
// with. One percent of a weight is the least step there is; where even that is more
// than MaxChurn it takes a minute of its own.
type Ramp struct {
	policy RampPolicy
	climbs map[Boot]*climb
	grants []grant       // of the last minute, oldest first
	empty  time.Duration // when nobody served last
	opened bool          // there was such a time
}

// climb is one instance on its way.
type climb struct {
	weight, percent int
	out             bool
	returns         bool          // it was in before
	since           time.Duration // it arrived, or returned
	due             time.Duration // its next step
}

// grant is a part of the key space that a join was given.
type grant struct {
	at   time.Duration
	part uint64
	to   Boot
}

// keySpace is all of it, in the unit of parts, and a millionth of it.
const (
	keySpace  = 1_000_000_000
	millionth = keySpace / 1_000_000
)

// NewRamp begins to pace. What members gained under the last holder of the lease
// counts as if they had gained it when the first step finds them.
func NewRamp(policy RampPolicy) *Ramp {
	return &Ramp{policy: policy, climbs: map[Boot]*climb{}}
}

// SetPolicy puts another policy in force; steps that were taken stay.
func (r *Ramp) SetPolicy(p RampPolicy) { r.policy = p }

// Pace is what a step of a ramp decides.
type Pace struct {
	Percents map[string]int // of every member's weight, by instance id, as Instance.RampPercent
	Gained   map[string]int // by those who gained something within the last minute: millionths of the key space
	Next     time.Duration  // when the next step may change something, 0 for never by time alone
	// Out are those who have to ramp when they take new sessions again. Until the holder
	// of the lease has seen that they do, nothing of them is in force: their start may
	// not fit. By instance id, as Instance.Out.
	Out map[string]bool
	// Returns are those who have yet to be let in, and were in before: no rollout that
	// the pool opens with brings them in at once. By instance id, as Instance.Returns.
	Returns map[string]bool
}

// Step says what part of its weight every instance has in force from now on.
func (r *Ramp) Step(now time.Duration, members []RampMember) Pace {
	r.expire(now)
	r.meet(now, members)
	total := uint64(0)
	var climbing []*RampMember
	for i := range members {
		m := &members[i]
		c := r.climbs[m.Boot]
		total += c.effective()
		if !c.out && m.State.MayTakeNew() && m.Weight > 0 && c.percent < 100 {
			climbing = append(climbing, m)
		}
	}
	if total == 0 {
		r.empty, r.opened = now, true
	}
	if whole := total == 0 || r.opened && now-r.empty < r.policy.Opening; whole {
		for _, m := range climbing {
			r.climbs[m.Boot].percent = 100
		}
	} else {
		r.raise(now, total, climbing)
	}
	return r.pace(now, members)
}

// meet takes note of who is there, who left and whose weight changed.
func (r *Ramp) meet(now time.Duration, members []RampMember) {
	present := make(map[Boot]*climb, len(members))
	for i := range members {
		m := &members[i]
		c := r.climbs[m.Boot]
		if c == nil {
			c = &climb{weight: m.Weight, percent: cmp.Or(m.Percent, 100), out: m.Out, returns: m.Returns, since: now, due: now}
			r.inherit(now, m)
			if 0 < c.percent && c.percent < 100 {
				c.due = now + r.interval() // its last step was whenever
			}
		}
		if m.Weight != c.weight {
			c.reweigh(m.Weight)
			c.due = max(c.due, now)
		}
		switch out := m.State.MustRamp() || c.out && !m.State.MayTakeNew(); {
		case out || c.out:
			known := r.climbs[m.Boot] != nil // what is published of one that is out says nothing
			c.returns = c.returns || known && !c.out && c.percent > 0
			c.out, c.percent, c.since, c.due = out, RampQueued, now, now
		case !m.State.MayTakeNew() && c.percent > 0:
			c.due = now + r.interval()
		}
		present[m.Boot] = c
	}
	r.climbs = present
}

// inherit charges what a member gained under another holder, unless it is a member
// that was away for a moment.
func (r *Ramp) inherit(now time.Duration, m *RampMember) {
	for _, g := range r.grants {
		if g.to == m.Boot {
			return
		}
	}
	r.charge(grant{now, uint64(min(max(0, m.Gained), keySpace/millionth)) * millionth, m.Boot})
}

// reweigh keeps what is in force of a weight when that changes, as far as percents
// can tell: more has to be climbed, and of less no more than all.
func (c *climb) reweigh(weight int) {
	c.returns = c.returns || c.percent > 0
	percent := RampQueued
	if !c.out {
		percent = Reweigh(c.percent, c.weight, weight)
	}
	c.weight, c.percent = weight, percent
}

// Reweigh is the percent of a weight that keeps in force what a percent of another one
// was, as far as percents can tell: never more than was, nor than all of it. RampQueued
// where that is less than one percent.
func Reweigh(percent, from, to int) int {
	if percent <= 0 || from <= 0 || to <= 0 || int64(percent)*int64(from) < int64(to) {
		return RampQueued
	}
	return int(min(100, int64(percent)*int64(from)/int64(to)))
}

// effective is the weight in force, in hundredths, of one that takes new sessions.
func (c *climb) effective() uint64 {
	if c.out || c.percent < 0 {
		return 0
	}
	return uint64(c.weight) * uint64(c.percent)
}

// raise lets those rise whose step is due, as far as their gains fit, those with
// least first.
func (r *Ramp) raise(now time.Duration, total uint64, climbing []*RampMember) {
	slices.SortFunc(climbing, func(a, b *RampMember) int {
		x, y := r.climbs[a.Boot], r.climbs[b.Boot]
		return cmp.Or(cmp.Compare(x.percent, y.percent), cmp.Compare(x.since, y.since), cmp.Compare(a.ID, b.ID))
	})
	for _, m := range climbing {
		c := r.climbs[m.Boot]
		if c.due > now {
			continue
		}
		to, part := r.fit(c, total)
		if to == c.percent {
			continue
		}
		before := c.effective()
		c.percent = to
		total += c.effective() - before
		r.charge(grant{now, part, m.Boot})
		if c.due += r.interval(); c.due <= now {
			c.due = now + r.interval()
		}
	}
}

// fit is the percent that an instance may rise to, and the part of the key space it
// gains by that: its next step, or else the better half of one, since every rise
// costs a ring. A start is not halved. With nothing spent, something is granted in
// any case.
func (r *Ramp) fit(c *climb, total uint64) (percent int, part uint64) {
	from := max(0, c.percent)
	want, least := r.policy.start(), r.policy.start()
	if c.percent > 0 {
		want = min(100, from+r.policy.step())
		least = from + (want-from+1)/2
	}
	limit, spent := uint64(r.policy.MaxChurn)*(keySpace/100), r.spent()
	if r.policy.MaxChurn == 0 {
		limit, spent = keySpace, 0
	}
	if spent == 0 {
		least = from + 1
	}
	for to := want; to >= least; to-- {
		if part = gain(total, c.weight, from, to); spent+part <= limit {
			return to, part
		}
	}
	if spent == 0 {
		return from + 1, part
	}
	return c.percent, 0
}

// gain is the part of the key space that a member wins when it rises, rounded up.
func gain(total uint64, weight, from, to int) uint64 {
	before, after := uint64(weight)*uint64(from), uint64(weight)*uint64(to)
	part := (after*keySpace + total - before + after - 1) / (total - before + after)
	if total > 0 {
		part -= before * keySpace / total
	}
	return part
}

func (r *Ramp) charge(g grant) {
	if g.part > 0 {
		r.grants = append(r.grants, g)
	}
}

func (r *Ramp) spent() (sum uint64) {
	for _, g := range r.grants {
		sum += g.part
	}
	return sum
}

// gained is what the grants of the last minute come to for each, rounded up.
func (r *Ramp) gained() map[string]int {
	parts := map[string]uint64{}
	for _, g := range r.grants {
		parts[g.to.ID] += g.part
	}
	gained := make(map[string]int, len(parts))
	for id, part := range parts {
		gained[id] = int((part + millionth - 1) / millionth)
	}
	return gained
}

func (r *Ramp) expire(now time.Duration) {
	n := 0
	for n < len(r.grants) && now-r.grants[n].at >= churnWindow {
		n++
	}
	r.grants = slices.Delete(r.grants, 0, n)
}

func (r *Ramp) interval() time.Duration { return r.policy.Over / time.Duration(r.policy.Steps) }

// pace reads out where everybody is. Who takes nothing new keeps the points of a
// start: they move nobody, and panic mode can find it.
func (r *Ramp) pace(now time.Duration, members []RampMember) Pace {
	p := Pace{Percents: make(map[string]int, len(members)), Gained: r.gained(), Out: map[string]bool{}, Returns: map[string]bool{}}
	for i := range members {
		c := r.climbs[members[i].Boot]
		p.Percents[members[i].ID] = c.percent
		if c.returns = c.returns && c.percent <= 0; c.returns {
			p.Returns[members[i].ID] = true
		}
		switch {
		case c.out:
			p.Percents[members[i].ID], p.Out[members[i].ID] = r.policy.start(), true
		case c.percent < 100 && members[i].Weight > 0 && members[i].State.MayTakeNew():
			next := c.due
			if next <= now && len(r.grants) > 0 {
				next = r.grants[0].at + churnWindow
			}
			if p.Next == 0 || next < p.Next {
				p.Next = max(next, now+1)
			}
		}
	}
	return p
}
