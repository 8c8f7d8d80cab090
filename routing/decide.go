package routing

import (
	"math/bits"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Request is what one request asks of a pool.
type Request struct {
	Key       string   // affinity key: the session id unless the caller chose another; empty without a session
	RequestID string   // spreads the requests without a session
	Exclude   []string // ids of instances not to choose; strangers are ignored
	Subset    []string // addresses to choose from, never widened; nil does not restrict, empty admits nobody
	Trials    []string // ids of instances whose one trial this request may be: slots this replica was granted and holds unused
	Fallbacks int      // further instances to name
	Hinted    *Hints   // what this replica placed since the load table; nil where no other session has the key
	Session   uint64   // a hash of the session, beside Hinted
}

// ringKey is what the ring hashes for the request.
func (r *Request) ringKey() string {
	if r.Key == "" {
		return r.RequestID
	}
	return r.Key
}

func (r *Request) hash() uint64 { return xxhash.Sum64String(r.ringKey()) }

// Record is what the store knows of the request's session. Ages and the end of
// affinity are measured by the store that holds it.
type Record struct {
	Exists      bool
	Owner       string        // empty for none
	Incarnation string        // of the owner when it was bound
	Lapsed      bool          // the binding's time is over
	BoundFor    time.Duration // since the owner became the owner
	LastServer  string        // who served the last turn; empty means the owner
}

// live reports whether a binding exists whose time is not over.
func (r *Record) live() bool { return r.Exists && r.Owner != "" && !r.Lapsed }

// Decision is the answer to a request.
type Decision struct {
	Instance  *Instance // nil when nobody may serve; shared, read only
	Reason    Reason
	Jump      bool        // the session leaves its last server
	Previous  string      // that server, when Jump
	Trial     bool        // the request is the instance's trial: take the slot, or decide again without it in Trials
	Shed      bool        // nobody, because all are over their bound and the policy sheds
	Fallbacks []*Instance // where to turn next, in order; fewer than asked when there are no more
}

// standing is how a session stands with its owner before anyone is chosen.
type standing uint8

const (
	stateless standing = iota // no session
	loose                     // no live binding
	held                      // a live binding that holds
	leaving                   // it would hold, and its owner fails
	shed                      // it would hold, and its owner has too much to bear
	replaced                  // only the incarnation is another
	orphaned                  // any other live binding
)

// Decide says which instance should serve a request. It is total and a pure
// function of its arguments, among them what they have counted so far; the first
// rule that fits wins.
//
//  1. A live binding holds while its owner is the same incarnation, may serve
//     bound sessions, and is neither excluded nor outside the subset: bound.
//     It lets go of a binding older than MinStick when the owner's breaker is
//     not closed, and of one older than MaxAge when the owner is over its
//     bound, if the walk has an eligible instance under its bound: breaker.
//     For load alone, few leave at a time (see shedSpell), and their walk goes
//     on from the owner (see shedTo).
//  2. Any other live binding goes to the walk's first eligible instance:
//     replaced when only the incarnation differs, otherwise failover.
//  3. Without a live binding the walk's first eligible instance under its
//     bound is chosen: new without a record, lapsed with one, over_bound when
//     the walk's first eligible was passed by. With all of them over their
//     bound it is the least loaded, ties by id, or nobody if the policy sheds.
//     Where others have the key too, an instance is also passed by that what
//     was placed since the load table takes over its bound (see Hints).
//  4. Without a session it is the less loaded of two that the request id
//     picks: stateless.
//
// With nobody eligible the answer is none, or panic where the policy asks.
// The paths that decide most requests, bound and new, allocate nothing.
func Decide(s *Snapshot, req Request, rec Record) Decision {
	owner, stands := s.standing(&req, &rec)
	if stands == held {
		return s.conclude(owner, ReasonBound, &req, &rec, s.takes)
	}
	return s.choose(stands, owner, &req, &rec)
}

// Degraded decides without a record, when the store cannot be asked: the ring
// owner among the eligible, the same on every replica whatever the loads. Its
// reason is new, which says nothing of whether the session exists.
func Degraded(s *Snapshot, req Request) Decision {
	var unread Record
	if req.Key == "" {
		return s.choose(stateless, -1, &req, &unread)
	}
	var room space
	eligible, _ := s.choices(&req, &room)
	to := s.ring.first(req.hash(), eligible)
	if to < 0 {
		to = s.queuedFor(req.hash(), &req)
	}
	if to < 0 {
		return s.panicked(-1, &req, &unread)
	}
	return s.conclude(to, ReasonNew, &req, &unread, eligible)
}

// Owner is the first eligible instance of a key's walk, whatever the loads;
// nil with nobody eligible.
func (s *Snapshot) Owner(key string) *Instance {
	hash := xxhash.Sum64String(key)
	i := s.ring.nearest(hash)
	if !s.takes.has(i) {
		if i = s.ring.search(hash, s.takes); i < 0 {
			return nil
		}
	}
	return &s.instances[i]
}

func (s *Snapshot) standing(req *Request, rec *Record) (owner int, stands standing) {
	switch {
	case req.Key == "":
		return -1, stateless
	case !rec.live():
		return -1, loose
	}
	owner = s.find(rec.Owner)
	switch {
	case owner < 0, !s.instances[owner].State.MayServeBound(), !s.admits(owner, req):
		return owner, orphaned
	case s.instances[owner].Incarnation != rec.Incarnation:
		return owner, replaced
	}
	return owner, s.holds(owner, req, rec)
}

// admits reports whether a request's own restrictions allow an instance.
func (s *Snapshot) admits(i int, req *Request) bool {
	in := &s.instances[i]
	if contains(req.Exclude, in.ID) {
		return false
	}
	if req.Subset == nil {
		return true
	}
	for _, addr := range req.Subset {
		if addr == in.Address || canonicalOr(addr) == in.Address {
			return true
		}
	}
	return false
}

// holds tells whether an owner keeps a binding that it could keep.
func (s *Snapshot) holds(owner int, req *Request, rec *Record) standing {
	p, age := &s.policy, rec.BoundFor
	if breaker := s.instances[owner].Breaker; breaker != BreakerClosed && age > p.MinStick {
		switch {
		case breaker == BreakerSaturated:
			if s.shedsSaturated(owner, req.hash(), age) {
				return shed
			}
		case !s.onTrial(owner, req):
			return leaving
		}
	}
	if p.MaxAge > 0 && age > p.MaxAge && s.over.has(owner) && s.shedsAged(owner, req.hash(), age) {
		return shed
	}
	return held
}

// onTrial reports whether the request may be the instance's trial.
func (s *Snapshot) onTrial(i int, req *Request) bool {
	return len(req.Trials) > 0 && s.instances[i].Breaker == BreakerTrial && contains(req.Trials, s.instances[i].ID)
}

// contains is for the handful of ids a request names.
func contains(ids []string, id string) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}

// choose picks an instance where the binding does not settle it.
func (s *Snapshot) choose(stands standing, owner int, req *Request, rec *Record) Decision {
	var room space
	eligible, roomy := s.choices(req, &room)
	hash := req.hash()
	to, reason := -1, ReasonNone
	switch stands {
	case stateless:
		to, reason = s.lighterOfTwo(hash, eligible), ReasonStateless
	case leaving:
		if to, reason = s.ring.first(hash, roomy), ReasonBreaker; to < 0 {
			to, reason = owner, ReasonBound
		}
	case shed:
		if to, reason = s.shedTo(hash, owner, roomy), ReasonBreaker; to < 0 {
			to, reason = owner, ReasonBound
		}
	case replaced:
		to, reason = s.ring.first(hash, eligible), ReasonReplaced
	case orphaned:
		to, reason = s.ring.first(hash, eligible), ReasonFailover
	case loose:
		to, reason = s.place(hash, req, rec, eligible, roomy)
		if to >= 0 && reason == ReasonNone {
			return Decision{Shed: true}
		}
	}
	if to < 0 {
		if to = s.queuedFor(hash, req); to < 0 {
			return s.panicked(owner, req, rec)
		}
		if stands == loose {
			reason = placed(rec.Exists)
		}
	}
	return s.conclude(to, reason, req, rec, eligible)
}

// queuedFor is the instance that takes a request for which nobody is eligible
// though it waits to join: pace is no reason to refuse anybody.
func (s *Snapshot) queuedFor(hash uint64, req *Request) int {
	var admitted []int
	for _, i := range s.queued {
		if s.admits(i, req) {
			admitted = append(admitted, i)
		}
	}
	if len(admitted) == 0 {
		return -1
	}
	return admitted[mix(hash)%uint64(len(admitted))]
}

// place is rule 3. It answers ReasonNone with an instance where one is
// eligible and the policy would rather shed.
func (s *Snapshot) place(hash uint64, req *Request, rec *Record, eligible, roomy bitset) (int, Reason) {
	first := s.ring.first(hash, eligible)
	if first < 0 {
		return -1, ReasonNone
	}
	to := s.firstNotFull(hash, roomy, req)
	if to < 0 {
		if s.policy.Shed {
			return first, ReasonNone
		}
		to = s.leastLoaded(eligible)
	}
	if to != first {
		return to, ReasonOverBound
	}
	return to, placed(rec.Exists)
}

// placed is the reason of an ordinary placement.
func placed(exists bool) Reason {
	if exists {
		return ReasonLapsed
	}
	return ReasonNew
}

// lighterOfTwo lets the two halves of a request id's hash pick an instance each
// and takes the less loaded. Picking through the ring honours weights and
// ramps; a tie goes to the first pick, for by id it would flood the lowest.
func (s *Snapshot) lighterOfTwo(hash uint64, eligible bitset) int {
	a := s.ring.first(hash, eligible)
	if a < 0 {
		return -1
	}
	var room [16]uint64
	others := append(bitset(room[:0]), eligible...)
	others.remove(a)
	if b := s.ring.first(bits.RotateLeft64(hash, 32), others); b >= 0 && s.lighter(b, a) {
		return b
	}
	return a
}

// lighter compares loads per weight.
func (s *Snapshot) lighter(a, b int) bool {
	x, y := &s.instances[a], &s.instances[b]
	return x.Load.InFlight()*y.member().effectiveWeight() < y.Load.InFlight()*x.member().effectiveWeight()
}

// leastLoaded is the lightest of a set, ties by id, which is by index; -1 of
// an empty set.
func (s *Snapshot) leastLoaded(in bitset) int {
	least := -1
	for i := range s.instances {
		if in.has(i) && (least < 0 || s.lighter(i, least)) {
			least = i
		}
	}
	return least
}

// panicked answers when nobody is eligible. If the policy asks for it, a live
// binding stays where it is as long as its owner may be alive: when Berth
// misjudges a whole pool, moving its sessions would be the second mistake.
func (s *Snapshot) panicked(owner int, req *Request, rec *Record) Decision {
	if !s.policy.Panic {
		return Decision{}
	}
	alive := newBitset(len(s.instances))
	for i := range s.instances {
		if s.instances[i].State.MayServeInPanic() && s.ring.counts[i] > 0 && s.admits(i, req) {
			alive.add(i)
		}
	}
	if owner >= 0 && alive.has(owner) && s.instances[owner].Incarnation == rec.Incarnation {
		return s.conclude(owner, ReasonPanic, req, rec, alive)
	}
	to := s.ring.first(req.hash(), alive)
	if to < 0 {
		return Decision{}
	}
	return s.conclude(to, ReasonPanic, req, rec, alive)
}

// conclude writes the decision for a chosen instance. Fallbacks come from the
// set given, in the order of the walk.
func (s *Snapshot) conclude(to int, reason Reason, req *Request, rec *Record, from bitset) Decision {
	d := Decision{Instance: &s.instances[to], Reason: reason, Trial: reason != ReasonPanic && s.onTrial(to, req)}
	if previous := rec.lastServer(); req.Key != "" && previous != "" && previous != d.Instance.ID {
		d.Jump, d.Previous = true, previous
	}
	if req.Fallbacks > 0 {
		d.Fallbacks = s.fallbacks(to, reason, req, from)
	}
	return d
}

func (r *Record) lastServer() string {
	switch {
	case !r.Exists:
		return ""
	case r.LastServer != "":
		return r.LastServer
	}
	return r.Owner
}

// fallbacks names further instances. A trial is never one: only the request
// that was granted it may go there.
func (s *Snapshot) fallbacks(to int, reason Reason, req *Request, from bitset) []*Instance {
	var list []*Instance
	w := s.ring.Walk(req.ringKey())
	for i, ok := w.Next(); ok && len(list) < req.Fallbacks; i, ok = w.Next() {
		fits := from.has(i) && s.admits(i, req)
		if i == to || !fits || reason != ReasonPanic && s.instances[i].Breaker != BreakerClosed {
			continue
		}
		list = append(list, &s.instances[i])
	}
	return list
}
