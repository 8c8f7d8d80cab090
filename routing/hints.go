package routing

import "sync/atomic"

// Hints counts the new sessions that one process has placed on the instances of a
// snapshot since each of them last reported its load. A key that many sessions
// share can bring more of them in a second than an instance has room for, and the
// load table says so only when they are there.
//
// It is for requests whose key others may share, and only places sessions without
// a live binding. What one process has counted another has not, so two replicas may
// name different instances for such a session while its key outruns the load table.
// All other decisions are the same on every replica. It is safe for concurrent use,
// and allocates nothing once it is made.
type Hints struct {
	of     *Snapshot
	given  []atomic.Uint32 // by index
	total  atomic.Uint64
	recent [256]atomic.Uint64 // who was counted and where, in the lowest 16 bits
}

// After begins to count for a snapshot that follows the one that h, which may be
// nil, counts for. Who has reported since then has what it was given in its load,
// and begins with nothing.
func (h *Hints) After(s *Snapshot) *Hints {
	next := &Hints{of: s, given: make([]atomic.Uint32, len(s.instances))}
	if h == nil || h.total.Load() == 0 {
		return next
	}
	for i := range h.given {
		n, before := h.given[i].Load(), &h.of.instances[i]
		to := s.find(before.ID)
		if n == 0 || to < 0 || !s.takes.has(to) || s.instances[to].Load.Report != before.Load.Report {
			continue
		}
		next.given[to].Store(n)
		next.total.Add(uint64(n))
	}
	return next
}

// Count takes note of a decision that placed the request's session. One that asks
// again is placed where it was and counts once. Instances that report no load are
// not counted for, since nothing would end it.
func (h *Hints) Count(req *Request, d *Decision) {
	switch d.Reason {
	case ReasonNew, ReasonLapsed, ReasonOverBound:
	default:
		return
	}
	i := h.of.find(d.Instance.ID)
	if i < 0 || !h.of.takes.has(i) || h.of.instances[i].Load.Report == 0 {
		return
	}
	mark := req.Session&^indexBits | uint64(i)
	if h.slot(req.Session).Swap(mark) != mark {
		h.given[i].Add(1)
		h.total.Add(1)
	}
}

// indexBits are those of a mark that name an instance.
const indexBits = 1<<16 - 1

func (h *Hints) slot(session uint64) *atomic.Uint64 {
	return &h.recent[session>>16%uint64(len(h.recent))]
}

// placed is where a session was placed a moment ago, or -1.
func (h *Hints) placed(session uint64) int {
	if mark := h.slot(session).Load(); mark&^indexBits == session&^indexBits && mark != 0 {
		return int(mark & indexBits)
	}
	return -1
}

// full reports whether an instance is over its bound when everybody's load is taken
// together with what they were given.
func (h *Hints) full(i int) bool {
	given, s := h.given[i].Load(), h.of
	if given == 0 {
		return false
	}
	in, all := &s.instances[i], s.crowd
	all.load += max(h.total.Load(), uint64(given))
	load := in.Load.InFlight() + int(given)
	return s.policy.Bound.over(load, all.fairMilli(load, in.member().effectiveWeight(), true))
}

// firstNotFull is the first of the walk that stays under its bound with what it was
// given, or without one the first that is under it by the load table. A session that
// asks again stays where it was placed.
func (s *Snapshot) firstNotFull(hash uint64, roomy bitset, req *Request) int {
	first, h := s.ring.first(hash, roomy), req.Hinted
	if h == nil || h.of != s || first < 0 {
		return first
	}
	if again := h.placed(req.Session); again >= 0 && roomy.has(again) {
		return again
	}
	if !h.full(first) {
		return first
	}
	var room [16]uint64
	left := append(bitset(room[:0]), roomy...)
	for to := first; to >= 0; to = s.ring.first(hash, left) {
		if !h.full(to) {
			return to
		}
		left.remove(to)
	}
	return first
}
