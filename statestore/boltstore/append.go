package boltstore

import (
	"context"
	"errors"
	"fmt"

	"berth/statestore"
	"berth/statestore/internal/frame"
	"berth/statestore/internal/rules"
)

// reached is what every acknowledged write has reached.
var reached = statestore.Durability{Level: statestore.LevelFsynced}

// Append judges an append and stores its turns.
func (s *Store) Append(ctx context.Context, a statestore.Append) (statestore.Receipt, error) {
	w, err := newContextWrite(a.Key, a.By, a.Op, a.Turns, a.Meta)
	if err != nil {
		return statestore.Receipt{}, err
	}
	w.Kind, w.Content = statestore.KindAppend, statestore.DigestContent(statestore.KindAppend, a.Base, a.Turns)
	w.Handle, w.At, w.Base, w.Recreate, w.Lifetimes = a.Handle, a.At, a.Base, a.Recreate, a.Lifetimes
	w.parks = true
	return s.writeContext(ctx, w, a.Require)
}

// Replace judges a replacement of the whole context and stores it.
func (s *Store) Replace(ctx context.Context, r statestore.Replace) (statestore.Receipt, error) {
	w, err := newContextWrite(r.Key, r.By, r.Op, r.Turns, r.Meta)
	if err != nil {
		return statestore.Receipt{}, err
	}
	w.Kind, w.Content = statestore.KindReplace, statestore.DigestContent(statestore.KindReplace, nil, r.Turns)
	w.Handle, w.Recreate, w.Lifetimes = r.Handle, r.Recreate, r.Lifetimes
	return s.writeContext(ctx, w, r.Require)
}

// contextWrite is an append or a replace, framed before it waits for its turn.
type contextWrite struct {
	rules.Write
	name   string // the op itself
	frames [][]byte
	meta   []byte
	parks  bool
}

func newContextWrite(key statestore.SessionKey, by statestore.Owner, op string, turns []statestore.Turn, meta []byte) (*contextWrite, error) {
	if err := checkOwner(by); err != nil {
		return nil, err
	}
	if err := statestore.ValidateOp(op); err != nil {
		return nil, err
	}
	if n := len(meta); n > statestore.MaxMetaBytes {
		return nil, &statestore.TooLargeError{What: "meta", Limit: statestore.MaxMetaBytes, Size: uint64(n)}
	}
	w := &contextWrite{name: op, meta: meta}
	w.Key, w.By, w.Op, w.Turns = key, by, statestore.DigestOp(op), uint64(len(turns))
	for _, t := range turns {
		size := uint64(len(t.Value))
		switch {
		case t.Type != statestore.TurnJSON && t.Type != statestore.TurnBytes:
			return nil, fmt.Errorf("turn of type %d: %w", t.Type, statestore.ErrInvalid)
		case size > statestore.MaxTurnBytes:
			return nil, &statestore.TooLargeError{What: "turn", Limit: statestore.MaxTurnBytes, Size: size}
		}
		w.Tokens += t.Tokens
		w.Bytes += size
	}
	if w.Bytes > statestore.MaxSessionBytes {
		return w, nil // judged too large, unless an earlier rule speaks
	}
	for _, t := range turns {
		w.frames = append(w.frames, frame.Append(nil, t))
	}
	return w, nil
}

func (s *Store) writeContext(ctx context.Context, c *contextWrite, need statestore.Requirement) (statestore.Receipt, error) {
	var receipt statestore.Receipt
	err := s.judge(ctx, c.Key, func(p *place) (err error) {
		receipt, err = p.apply(c)
		return err
	})
	if err != nil {
		return statestore.Receipt{}, err
	}
	return receipt, met(need, receipt)
}

// met reports a durability that the store does not have.
func met(need statestore.Requirement, receipt statestore.Receipt) error {
	if need.MetBy(reached) {
		return nil
	}
	return &statestore.NotDurableError{Reached: reached, Receipt: receipt}
}

func (p *place) apply(c *contextWrite) (statestore.Receipt, error) {
	judged := c.Write
	judged.Fenced = p.w.fenced(c.Key.Pool, c.By)
	judged.Prefix = p.prefix
	out, err := p.Apply(judged, p.w.now)
	if err != nil {
		return statestore.Receipt{}, p.park(c, err)
	}
	if p.w.full && !out.Duplicate && len(c.frames) > 0 {
		return statestore.Receipt{}, statestore.ErrFull
	}
	adopted := false
	if !out.Duplicate {
		p.putTurns(c, out.Keep)
		p.tombstoneFor = c.Lifetimes.Tombstone
		adopted = c.parks && p.adopt(c.Op)
	}
	receipt := p.receipt()
	receipt.Version, receipt.Floor = out.Version, out.Floor
	receipt.Duplicate, receipt.Moved, receipt.Parked, receipt.Arrived = out.Duplicate, out.Moved, adopted, out.Arrived
	return receipt, nil
}

// receipt says what the record is as of now.
func (p *place) receipt() statestore.Receipt {
	v := p.w.viewOf(p.slot)
	return statestore.Receipt{
		Epoch: v.Epoch, Version: v.Version, Turns: v.Turns, Bytes: v.Bytes, Owner: v.Owner, Floor: v.Floor(),
		Durability: reached, Affinity: v.AffinityLeft(),
	}
}

// putTurns writes the turns after the first keep that were there.
func (p *place) putTurns(c *contextWrite, keep uint64) {
	p.dropTurns(keep)
	for i, f := range c.frames {
		p.w.put(bTurns, turnKey(p.digest, keep+uint64(i)), f) //nolint:gosec // an index
	}
	if c.meta != nil {
		p.w.put(bContexts, p.digest[:], c.meta)
	}
}

// prefix measures the first k turns, from the end that is nearer: the record
// knows the whole.
func (p *place) prefix(k uint64) (tokens, bytes uint64, err error) {
	r := p.Record
	if k <= r.Turns/2 {
		return p.measure(0, k)
	}
	tokens, bytes, err = p.measure(k, r.Turns)
	if err == nil && (tokens > r.Tokens || bytes > r.Bytes) {
		err = fmt.Errorf("turns are larger than their session: %w", ErrDamaged)
	}
	return r.Tokens - tokens, r.Bytes - bytes, err
}

func (p *place) measure(from, to uint64) (tokens, bytes uint64, err error) {
	for n := from; n < to; n++ {
		info, err := frame.Measure(p.w.get(bTurns, turnKey(p.digest, n)))
		if err != nil {
			return 0, 0, fmt.Errorf("turn %d: %w: %w", n, err, ErrDamaged)
		}
		tokens += info.Tokens
		bytes += info.Bytes
	}
	return tokens, bytes, nil
}

// park keeps an append of an instance that is no longer the owner, and returns
// the refusal.
func (p *place) park(c *contextWrite, refusal error) error {
	var notOwner *statestore.NotOwnerError
	if !c.parks || p.Record == nil || !errors.As(refusal, &notOwner) {
		return refusal
	}
	key := parkedKey(p.digest, c.Op)
	if p.parked > 0 && p.w.get(bParked, key) != nil {
		notOwner.Parked = true
		return refusal
	}
	// What no session can hold will never be adopted.
	if p.parked >= statestore.ParkedLimit || c.Bytes > statestore.MaxSessionBytes || p.w.full {
		return refusal
	}
	p.parked++
	p.parkedEver++
	p.w.put(bParked, key, encodeParked(&parkedWrite{
		Parked: statestore.Parked{Op: c.name, By: c.By, Floor: c.Handle.Floor, Base: c.Base, Meta: c.meta},
		seq:    p.parkedEver, at: p.w.now,
	}, c.frames))
	notOwner.Parked = true
	return refusal
}

// adopt removes the parked write of an op that was accepted.
func (p *place) adopt(op statestore.OpDigest) bool {
	key := parkedKey(p.digest, op)
	if p.parked == 0 || p.w.get(bParked, key) == nil {
		return false
	}
	p.w.delete(bParked, key)
	p.parked--
	return true
}
