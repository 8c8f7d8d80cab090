package migrations

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"time"

	"berth/routing"
	"berth/statestore"
)

// shift is everything that the plan of a rebalance depends on.
type shift struct {
	question
	target string // the only one, if it is not empty
	// minStick is the age below which a binding is left alone.
	minStick time.Duration
	// quota bounds how many sessions leave each instance; nil is no bound. Only
	// instances in it are relieved then.
	quota map[string]int
}

// makeShift plans the sessions whose leaving brings instances that are over their
// bound below it. It takes active sessions only, since the others weigh nothing:
// those that the ring would not have there first, the quiet before the busy, the
// small before the large. Targets stay under their bounds with everything planned.
// Sessions that should leave and cannot yet are blocked; they count as if they did.
func makeShift(q shift) plan {
	p := newPlan()
	if q.snapshot == nil {
		return p
	}
	pl := newPlacer(&q.question)
	byOwner := map[string][]session{}
	for _, s := range q.sessions {
		byOwner[s.owner.Instance] = append(byOwner[s.owner.Instance], s)
	}
	for in := range q.snapshot.Instances() {
		most, bounded := q.quota[in.ID]
		if q.quota == nil {
			most = math.MaxInt
		} else if !bounded {
			continue
		}
		p.relieve(pl, &q, byOwner[in.ID], in, most)
	}
	return p
}

// relieve plans up to most of an instance's sessions, as long as it is over its
// bound.
func (p *plan) relieve(pl *placer, q *shift, sessions []session, in *routing.Instance, most int) {
	slices.SortFunc(sessions, func(a, b session) int { return q.prefer(&a, &b, in.ID) })
	for i := range sessions {
		s := &sessions[i]
		switch {
		case most == 0 || !pl.tally.OverBound(in.ID):
			return
		case s.lapsed() || s.orphaned || !s.active() || s.bound < q.minStick:
		case q.failed[s.key] != "":
			p.giveUp(s, q.failed[s.key])
		default:
			p.shift(pl, q, s)
			pl.count(in.ID, -s.load)
			most--
		}
	}
}

// shift plans one session that should leave, or says why it cannot.
func (p *plan) shift(pl *placer, q *shift, s *session) {
	target, ok := pl.roomy(s, q.target)
	switch {
	case s.inFlight(q.grace) && !q.releases(s):
		p.block(s, BlockedInFlight)
	case !ok:
		p.block(s, BlockedNoTarget)
	default:
		p.steps = append(p.steps, q.step(s, target))
	}
}

// makeErrands plans the sessions that an operator named, wherever they are. Their
// owners need not be over their bound; their targets have to stay under it.
func makeErrands(q shift) plan {
	p := newPlan()
	pl := newPlacer(&q.question)
	sessions := slices.Clone(q.sessions)
	slices.SortFunc(sessions, before)
	for i := range sessions {
		s := &sessions[i]
		if reason := q.failed[s.key]; reason != "" {
			p.giveUp(s, reason)
			continue
		}
		p.shift(pl, &q, s)
	}
	return p
}

// prefer orders an instance's sessions by how gladly it should lose them.
func (q *shift) prefer(a, b *session, owner string) int {
	strangers := cmp.Compare(bit(ringOwner(q.snapshot, a) == owner), bit(ringOwner(q.snapshot, b) == owner))
	busy := cmp.Compare(bit(a.inFlight(q.grace)), bit(b.inFlight(q.grace)))
	if c := cmp.Or(strangers, busy, cmp.Compare(a.prefill(), b.prefill()), cmp.Compare(b.idle, a.idle)); c != 0 {
		return c
	}
	x, y := a.key.Digest(), b.key.Digest()
	return bytes.Compare(x[:], y[:])
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// roomy names the target of a session that has room for it, and counts it.
func (pl *placer) roomy(s *session, only string) (*routing.Instance, bool) {
	if pl.tally == nil {
		return nil, false
	}
	unwanted := func(in *routing.Instance) bool {
		return in.ID == s.owner.Instance || pl.refused[s.key] == in.ID || only != "" && in.ID != only
	}
	target, ok := placeOn(pl.tally, s, unwanted)
	if !ok || !target.Roomy || unwanted(target.Instance) {
		return nil, false
	}
	pl.count(target.Instance.ID, s.load)
	return target.Instance, true
}

// step is what is done with a session that has a target.
func (q *question) step(s *session, target *routing.Instance) step {
	next := step{session: *s, target: statestore.Owner{Instance: target.ID, Incarnation: target.Incarnation}}
	// Who declined once and is still the best there is gets it without asking, and
	// so does whoever would have no time to answer.
	worth := !q.cold && q.grace > 0 && !s.orphaned && s.idle < q.idleBelow && q.refused[s.key] != target.ID
	if cost := s.prefill(); worth && cost > 0 && cost <= q.budget {
		q.budget -= cost
		next.prewarm = true
	}
	next.release = q.releases(s) && (next.prewarm || s.inFlight(q.grace))
	return next
}
