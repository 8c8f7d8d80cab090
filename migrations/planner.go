package migrations

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"berth/routing"
	"berth/statestore"
)

// session is what a plan needs to know of one session of a source.
type session struct {
	key      statestore.SessionKey
	affinity statestore.AffinityKey
	owner    statestore.Owner
	floor    statestore.Floor
	tokens   uint64
	bytes    uint64
	idle     time.Duration // since its last write; without one, for ever
	left     time.Duration // until it lapses, 0 when it has
	// orphaned says that the boot which owns it is gone or down: nobody is there
	// to be waited for.
	orphaned bool
	// resting says that its owner told, since the last write and no longer ago
	// than the grace, that nothing runs and nothing waits there.
	resting bool
	named   int           // from 1: its place among the sessions that were named, 0 for others
	bound   time.Duration // since it was bound to its owner
	// load is what it adds to its target, in requests: its share of what runs and
	// waits on its owner. 0 for one that has not been active lately.
	load float64
}

func newSession(v *statestore.View) session {
	return session{
		key: v.Key, affinity: v.AffinityKey, owner: v.Owner, floor: v.Floor(),
		tokens: v.Tokens, bytes: v.Bytes, idle: v.Idle(), left: v.AffinityLeft(), bound: v.BindingAge(),
	}
}

func (s *session) lapsed() bool { return s.left <= 0 }

// inFlight reports whether a turn may be under way, as far as can be known.
func (s *session) inFlight(grace time.Duration) bool {
	return !s.lapsed() && !s.orphaned && !s.resting && s.idle < grace
}

// prefill is what a target computes to hold the session: its tokens as its
// writers counted them, or else a quarter of its bytes.
func (s *session) prefill() uint64 { return cmp.Or(s.tokens, s.bytes/4) }

// Prefill is about how many tokens an instance computes to hold the session without
// a KV cache of it.
func Prefill(v *statestore.View) uint64 {
	s := newSession(v)
	return s.prefill()
}

// step is what a plan does with one session. A zero target unbinds it.
type step struct {
	session
	target  statestore.Owner
	prewarm bool // the target builds its KV cache first
	release bool // the source is asked first to let its turn end

	unanswered bool // the target was to prewarm it, and took no task or did not answer
}

// question is everything a plan depends on.
type question struct {
	snapshot *routing.Snapshot // nil: nobody is known
	sources  []string
	sessions []session // in any order
	mode     Mode
	// cold is the end of the time: what is not in flight goes, lingering or not,
	// and nothing is prewarmed.
	cold      bool
	grace     time.Duration
	idleBelow time.Duration
	budget    uint64 // tokens that may still be prewarmed
	avoid     map[string]string
	placed    map[string]float64               // load that targets were given and do not report yet
	refused   map[statestore.SessionKey]string // targets that declined a session
	failed    map[statestore.SessionKey]string // those that are given up, and why
	// answers reports whether an owner pulls tasks, as far as is known: who was
	// never asked may.
	answers func(statestore.Owner) bool
}

// plan is the answer.
type plan struct {
	steps   []step         // in the order in which they should begin
	blocked map[string]int // sessions without a step, by reason; lingering ones are not
	failed  map[string]int // sessions that are given up, by reason
	why     map[statestore.SessionKey]string
	waiting []session // those that are blocked
	given   []session // those that are given up
}

// makePlan plans every session at most once: the lapsed first, then the idle
// before the busy. Targets come from the walk of the session's affinity key
// without the sources, each counted with the load that it brings along, so that
// none passes its bound while another has room.
func makePlan(q question) plan {
	p := newPlan()
	sessions := slices.Clone(q.sessions)
	slices.SortFunc(sessions, before)
	pl := newPlacer(&q)
	for _, s := range sessions {
		switch {
		case s.lapsed():
			p.steps = append(p.steps, step{session: s})
		case q.failed[s.key] != "":
			p.giveUp(&s, q.failed[s.key])
		case q.mode == ModeLinger && !q.cold && !s.orphaned:
		case s.inFlight(q.grace) && !q.releases(&s):
			p.block(&s, BlockedInFlight)
		case q.mode == ModeDetach:
			p.steps = append(p.steps, step{session: s, release: s.inFlight(q.grace)})
		default:
			p.move(pl, &q, s)
		}
	}
	return p
}

func newPlan() plan {
	return plan{blocked: map[string]int{}, failed: map[string]int{}, why: map[statestore.SessionKey]string{}}
}

// releases reports whether the session's owner can be asked to let a turn end
// before the session moves.
func (q *question) releases(s *session) bool {
	return !q.cold && q.grace > 0 && !s.orphaned && !s.resting && q.answers != nil && q.answers(s.owner)
}

// before orders lapsed sessions first and then by idleness; ties by digest, so
// that two processes plan alike.
func before(a, b session) int {
	switch {
	case a.lapsed() != b.lapsed():
		if a.lapsed() {
			return -1
		}
		return 1
	case a.idle != b.idle:
		return cmp.Compare(b.idle, a.idle)
	}
	x, y := a.key.Digest(), b.key.Digest()
	return bytes.Compare(x[:], y[:])
}

func (p *plan) block(s *session, reason string) {
	p.blocked[reason]++
	p.why[s.key] = reason
	p.waiting = append(p.waiting, *s)
}

func (p *plan) giveUp(s *session, reason string) {
	p.failed[reason]++
	p.why[s.key] = reason
	p.given = append(p.given, *s)
}

func (p *plan) move(pl *placer, q *question, s session) {
	target, ok := pl.place(&s)
	if !ok {
		p.block(&s, BlockedNoTarget)
		return
	}
	p.steps = append(p.steps, q.step(&s, target))
}

// mayTake reports whether the boot that was chosen as a target is still there and
// takes new sessions.
func mayTake(snapshot *routing.Snapshot, target statestore.Owner) bool {
	if snapshot == nil {
		return false
	}
	in := snapshot.Lookup(target.Instance)
	return in != nil && in.Incarnation == target.Incarnation && in.State.MayTakeNew()
}

// lost reports whether the boot is down, or not registered any more, as far as an
// image tells that is not older than the version of the registry.
func lost(snapshot *routing.Snapshot, who statestore.Owner, version uint64) bool {
	if snapshot == nil || snapshot.Version() < version {
		return false
	}
	in := snapshot.Lookup(who.Instance)
	return in == nil || in.Incarnation != who.Incarnation || in.State == routing.Down
}
