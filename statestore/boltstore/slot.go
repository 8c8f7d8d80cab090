package boltstore

import (
	"bytes"
	"context"
	"errors"
	"time"

	"berth/statestore"
	"berth/statestore/internal/rules"
)

// slot is what the file holds in the place of a session, with the notes that its
// upkeep needs.
type slot struct {
	rules.Slot
	// due is where the due index lists the slot; 0 is nowhere.
	due statestore.Millis
	// tombstoneFor is how long the end of the record will be remembered: its last
	// writer said so.
	tombstoneFor time.Duration
	// until is when the tombstone may go.
	until statestore.Millis
	// parked is how many writes are parked, parkedEver how many were.
	parked, parkedEver uint64
}

// slot reads the place of a session. A tombstone whose time is over is nothing.
func (r *reader) slot(d statestore.SessionDigest) (*slot, error) {
	s, err := decodeSlot(r.get(bSessions, d[:]))
	if err != nil {
		return nil, err
	}
	if s.Record == nil && r.now >= s.until {
		s.Tombstone, s.until = statestore.Tombstone{}, 0
	}
	return s, nil
}

// expired reports whether the record's time is over; who writes ends it.
func (r *reader) expired(s *slot) bool { return s.Record != nil && r.now >= s.Record.Expires }

func (r *reader) viewOf(s *slot) statestore.View {
	v := statestore.View{Tombstone: s.Tombstone, Now: r.now}
	if s.Record != nil {
		v.Record, v.Exists = *s.Record, true
	}
	return v
}

// place is a slot under change.
type place struct {
	*slot
	w      *writer
	digest statestore.SessionDigest
	stored []byte // as it stands in the file

	// Of the slot as it was found:
	owner   statestore.Owner
	pool    string
	epoch   uint64
	turns   uint64
	existed bool
}

// place opens a session for a change. A session whose time is over is ended
// first: that change stands, whatever becomes of the write.
func (w *writer) place(d statestore.SessionDigest) (*place, error) {
	stored := bytes.Clone(w.get(bSessions, d[:]))
	s, err := w.slot(d)
	if err != nil {
		return nil, err
	}
	p := &place{slot: s, w: w, digest: d, stored: stored}
	p.remember()
	if s.Expire(w.now) {
		p.ended(s.tombstoneFor)
		p.save()
		p.remember()
	}
	return p, nil
}

func (p *place) remember() {
	p.owner, p.pool, p.epoch, p.turns, p.existed = statestore.Owner{}, "", p.Tombstone.Epoch, 0, p.Record != nil
	if r := p.Record; r != nil {
		p.owner, p.pool, p.epoch, p.turns = r.Owner, r.Key.Pool, r.Epoch, r.Turns
	}
}

// ended removes what belonged to a record that became a tombstone.
func (p *place) ended(keep time.Duration) {
	p.until = p.w.now.Add(keep)
	p.dropTurns(0)
	p.w.delete(bContexts, p.digest[:])
	p.w.deletePrefix(bPlacements, p.digest[:])
	if p.parked > 0 {
		p.w.deletePrefix(bParked, p.digest[:])
	}
	p.parked, p.parkedEver = 0, 0
}

// dropTurns deletes the turns from the k-th on.
func (p *place) dropTurns(k uint64) {
	for n := k; n < p.turns; n++ {
		p.w.freed = true
		p.w.delete(bTurns, turnKey(p.digest, n))
	}
}

// save writes the slot, and the indexes that follow from it, if it changed.
func (p *place) save() {
	p.reindex()
	p.file()
	value := encodeSlot(p.slot)
	switch {
	case bytes.Equal(value, p.stored):
		return
	case value == nil:
		p.w.delete(bSessions, p.digest[:])
	default:
		p.w.put(bSessions, p.digest[:], value)
	}
	p.stored = value
	if epoch := p.present(); epoch != p.epoch {
		p.w.emit(statestore.Event{Kind: statestore.EventSession, Session: p.digest, Epoch: epoch})
	}
}

// present is the epoch of what is there.
func (p *place) present() uint64 {
	if p.Record != nil {
		return p.Record.Epoch
	}
	return p.Tombstone.Epoch
}

// reindex moves the session from the index entry of its last owner to that of
// the present one.
func (p *place) reindex() {
	var owner statestore.Owner
	pool := p.pool
	if r := p.Record; r != nil {
		owner, pool = r.Owner, r.Key.Pool
	}
	if owner.Instance == p.owner.Instance && pool == p.pool {
		return
	}
	if old := p.owner.Instance; old != "" {
		p.w.delete(bOwned, ownedKey(p.pool, old, p.digest))
		p.w.add(bCounts, joined(p.pool, old), -1)
	}
	if owner.Instance != "" {
		p.w.put(bOwned, ownedKey(pool, owner.Instance, p.digest), []byte{})
		p.w.add(bCounts, joined(pool, owner.Instance), 1)
	}
}

// file lists the slot in the due index, no later than its time is over. An entry
// that is early stays: nearly every write only moves the end away.
func (p *place) file() {
	want := p.until
	if p.Record != nil {
		want = p.Record.Expires
	}
	nothing := p.Record == nil && p.Tombstone == statestore.Tombstone{}
	if !nothing && p.due != 0 && p.due <= want {
		return
	}
	p.unfile()
	if !nothing {
		p.w.put(bDue, dueKey(want, p.digest[:]), []byte{})
		p.due = want
	}
}

func (p *place) unfile() {
	if p.due != 0 {
		p.w.delete(bDue, dueKey(p.due, p.digest[:]))
		p.due = 0
	}
}

// judge runs fn on a session in one write transaction. A refusal of fn, which
// must leave the slot as it was, is returned; what fn changed otherwise is saved.
func (s *Store) judge(ctx context.Context, key statestore.SessionKey, fn func(*place) error) error {
	if err := key.Validate(); err != nil {
		return err
	}
	digest := key.Digest()
	var refusal error
	err := s.write(ctx, func(w *writer) error {
		p, err := w.place(digest)
		if err != nil {
			return err
		}
		refusal = fn(p)
		if errors.Is(refusal, ErrDamaged) || errors.Is(refusal, statestore.ErrFull) {
			return refusal // the slot may have changed already
		}
		p.save()
		return nil
	})
	if err != nil {
		return err
	}
	return refusal
}
