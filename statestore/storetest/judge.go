package storetest

import (
	"bytes"
	"slices"

	"berth/statestore"
)

// request is an append or a replace.
type request struct {
	kind statestore.WriteKind
	statestore.Append
}

// told is all that a caller says it was told.
func told(p *statestore.Presented, have *statestore.Floor) []statestore.Floor {
	var floors []statestore.Floor
	if p != nil {
		floors = append(floors, p.Floor)
		if p.Second != nil {
			floors = append(floors, *p.Second)
		}
	}
	if have != nil {
		floors = append(floors, *have)
	}
	return floors
}

// ended is the first check: is the life over that the handle speaks of?
func (p *place) ended(h *statestore.Presented, have *statestore.Floor) error {
	before := p.before()
	if h != nil && h.Epoch < before.Epoch {
		return &statestore.EndedError{Reason: before.Reason, Epoch: before.Epoch}
	}
	if p.life != nil {
		return nil
	}
	lost := uint64(0)
	for _, f := range told(h, have) {
		if f.Epoch >= before.Epoch {
			lost = max(lost, f.Version)
		}
	}
	if lost > 0 {
		return &statestore.StoreBehindError{WantVersion: lost}
	}
	if h != nil && h.Epoch > before.Epoch {
		return &statestore.EndedError{Reason: statestore.Expired, Epoch: before.Epoch}
	}
	return nil
}

// absent is the refusal of what needs a session where there is none.
func (p *place) absent() error {
	e := &statestore.EndedError{Reason: p.tomb.Reason, Epoch: p.tomb.Epoch}
	if e.Reason == "" {
		e.Reason = statestore.Expired
	}
	return e
}

// lineage holds everything that was told against this history. What an accepted
// loss covers is stale; what an ended life promised is no loss of this one.
func (l *life) lineage(floors []statestore.Floor) error {
	lost, covered := uint64(0), false
	for _, f := range floors {
		if f.Epoch < l.over.Epoch || l.holds(f) {
			continue
		}
		if n := len(l.losses); n > 0 && f.Epoch < l.losses[n-1].Epoch && f.Version <= l.losses[n-1].Want {
			covered = true
			continue
		}
		lost = max(lost, f.Version)
	}
	if lost > 0 {
		turns, _, _ := l.context()
		return &statestore.StoreBehindError{HaveVersion: l.version(), HaveTurns: uint64(len(turns)), WantVersion: lost}
	}
	if covered {
		return l.stale()
	}
	return nil
}

func (l *life) stale() error {
	return &statestore.StaleHandleError{Owner: l.owner, Epoch: l.epoch()}
}

func (l *life) notOwner(by statestore.Owner) *statestore.NotOwnerError {
	e := &statestore.NotOwnerError{Owner: l.owner, Epoch: l.epoch(), Why: statestore.WhyFailover}
	last := l.owners[len(l.owners)-1]
	if last.Reason == statestore.ChangeMoved {
		e.Why = statestore.WhyMoved
	}
	if l.owner.Instance == by.Instance && l.owner.Incarnation != by.Incarnation {
		e.Why = statestore.WhyReplaced
	}
	if l.owner == (statestore.Owner{}) {
		e.Why = statestore.WhyUnbound
	}
	return e
}

// isTail reports whether the writer is the last owner before a row of moves, with
// a plain append at its own epoch.
func (l *life) isTail(q request) bool {
	return l.tail != nil && l.tail.Owner == q.By && l.tail.Epoch == q.Handle.Epoch &&
		q.kind == statestore.KindAppend && q.Base == nil
}

// write judges an append or a replace.
func (m *model) write(q request, now statestore.Millis) (statestore.Receipt, error) {
	p := m.at(q.Key, now)
	if err := p.ended(&q.Handle, nil); err != nil {
		return statestore.Receipt{}, err
	}
	if p.life == nil {
		return m.firstWrite(p, q, now)
	}
	l := p.life
	lineage := l.lineage(told(&q.Handle, nil))
	content := statestore.DigestContent(q.kind, q.Base, q.Turns)
	if version, w := l.find(q.Op); w != nil {
		if lineage != nil {
			return statestore.Receipt{}, lineage
		}
		if w.content != content {
			return statestore.Receipt{}, &statestore.OpReusedError{Version: version}
		}
		return l.repeat(q, version, now), nil
	}
	if l.version() > q.Handle.Version+statestore.OpsRemembered {
		return statestore.Receipt{}, &statestore.OpForgottenError{Version: l.version()}
	}
	if lineage != nil {
		return statestore.Receipt{}, lineage
	}
	if l.version() == 0 && !l.isTail(q) {
		return m.firstWrite(p, q, now)
	}
	owns := l.owner == q.By && l.epoch() == q.Handle.Epoch
	if !owns && !l.isTail(q) {
		e := l.notOwner(q.By)
		e.Parked = l.park(q)
		return statestore.Receipt{}, e
	}
	return l.accept(q, content, !owns, now)
}

// repeat answers a known op.
func (l *life) repeat(q request, version uint64, now statestore.Millis) statestore.Receipt {
	r := l.receipt(now)
	r.Version, r.Duplicate = version, true
	r.Floor.Version, r.Floor.Op = version, statestore.DigestOp(q.Op)
	if l.tail != nil && l.tail.Owner == q.By {
		r.Floor.Epoch, r.Moved = l.tail.Epoch, true
	}
	return r
}

// receipt says what is there as of now.
func (l *life) receipt(now statestore.Millis) statestore.Receipt {
	rec := l.record()
	r := statestore.Receipt{Epoch: rec.Epoch, Version: rec.Version, Turns: rec.Turns, Bytes: rec.Bytes, Owner: rec.Owner, Floor: l.newest()}
	r.Affinity = max(0, l.affinityUntil.Sub(now))
	return r
}

// firstWrite begins a life, over nothing, over a tombstone, or over reports.
func (m *model) firstWrite(p *place, q request, now statestore.Millis) (statestore.Receipt, error) {
	before := p.before()
	if before.Reason == statestore.Deleted && !q.Recreate {
		return statestore.Receipt{}, &statestore.EndedError{Reason: before.Reason, Epoch: before.Epoch}
	}
	if q.Base != nil && *q.Base > 0 {
		return statestore.Receipt{}, &statestore.VersionConflictError{}
	}
	l := &life{
		key: q.Key, affinity: q.Handle.AffinityKey, over: before, created: now, placements: map[statestore.Owner]string{},
	}
	owner := q.By
	if m.fenced[q.By] {
		owner = statestore.Owner{}
	}
	var last uint64
	if p.life != nil {
		last, l.placements, l.parked, l.meta = p.life.epoch(), p.life.placements, p.life.parked, p.life.meta
	}
	l.bind(owner, statestore.ChangeCreated, now)
	l.owners[0].Epoch = max(l.owners[0].Epoch, last+1)
	p.life, p.tomb = l, statestore.Tombstone{}
	return l.accept(q, statestore.DigestContent(q.kind, q.Base, q.Turns), false, now)
}

// accept is the last check, the version, and then the write.
func (l *life) accept(q request, content statestore.ContentDigest, late bool, now statestore.Millis) (statestore.Receipt, error) {
	turns, _, _ := l.context()
	held := uint64(len(turns))
	conflict := &statestore.VersionConflictError{Version: l.version(), Turns: held}
	if q.At == statestore.AtVersion && q.Handle.Version != l.version() || q.Base != nil && *q.Base > held {
		return statestore.Receipt{}, conflict
	}
	l.writes = append(l.writes, written{op: q.Op, kind: q.kind, base: q.Base, turns: q.Turns, content: content})
	if q.Meta != nil {
		l.meta = q.Meta
	}
	l.renew(q.Lifetimes, now)
	l.lastTurn = now
	r := l.receipt(now)
	if q.kind == statestore.KindAppend {
		r.Parked = l.unpark(q.Op)
	}
	if !late {
		r.Arrived = l.tail != nil && l.tail.Owner.Instance != q.By.Instance
		l.tail = nil
		return r, nil
	}
	// The tail's epoch ends where its last turn is, and so begin those after it.
	for i := range l.owners {
		if l.owners[i].Epoch > l.tail.Epoch {
			l.owners[i].Version = l.version()
		}
	}
	r.Moved, r.Floor.Epoch = true, l.tail.Epoch
	return r, nil
}

// park keeps a refused append for the owner, if there is room.
func (l *life) park(q request) bool {
	if q.kind != statestore.KindAppend {
		return false
	}
	if slices.ContainsFunc(l.parked, func(p statestore.Parked) bool { return p.Op == q.Op }) {
		return true
	}
	if len(l.parked) == statestore.ParkedLimit {
		return false
	}
	l.parked = append(slices.Clone(l.parked), statestore.Parked{
		Op: q.Op, By: q.By, Floor: q.Handle.Floor, Base: q.Base, Turns: q.Turns, Meta: bytes.Clone(q.Meta),
	})
	return true
}

// unpark takes an op that was written off the list.
func (l *life) unpark(op string) bool {
	n := len(l.parked)
	l.parked = slices.DeleteFunc(slices.Clone(l.parked), func(p statestore.Parked) bool { return p.Op == op })
	return len(l.parked) < n
}
