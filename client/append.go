package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Durability is how much an accepted write outlives: "memory" the process of
// the store, "fsynced" a crash of its machine, "replicated" a failover when
// Replicas is Of.
type Durability struct {
	Level    string `json:"level"`
	Replicas int    `json:"replicas"`
	Of       int    `json:"of"`
}

// durable reports whether nothing has to be kept for repair.
func (d Durability) durable() bool {
	switch d.Level {
	case "fsynced":
		return true
	case "replicated":
		return d.Of > 0 && d.Replicas >= d.Of
	}
	return false
}

// Receipt answers an accepted write.
type Receipt struct {
	Op         string
	Version    uint64 // that this write made
	Epoch      uint64 // of the session, as of the answer
	Turns      int    // of the session, as of the answer
	Bytes      int64  // of the session, as of the answer
	Durability Durability
	Handle     Handle
	Affinity   time.Duration // until the binding lapses
	Duplicate  bool          // the op was known: nothing was added
	// Moved is whom the session was moved to while this instance was finishing:
	// the write counts, further requests belong there.
	Moved *Owner
}

type wireReceipt struct {
	Version    uint64     `json:"version"`
	Epoch      uint64     `json:"epoch"`
	Turns      int        `json:"turns"`
	Bytes      int64      `json:"bytes"`
	Durability Durability `json:"durability"`
	Handle     Handle     `json:"handle"`
	AffinityMS int64      `json:"affinity_ms"`
	Duplicate  bool       `json:"duplicate"`
	Moved      *Owner     `json:"moved"`
}

func (r *wireReceipt) receipt(op string) Receipt {
	return Receipt{
		Op: op, Version: r.Version, Epoch: r.Epoch, Turns: r.Turns, Bytes: r.Bytes, Durability: r.Durability,
		Handle: r.Handle, Affinity: time.Duration(r.AffinityMS) * time.Millisecond, Duplicate: r.Duplicate, Moved: r.Moved,
	}
}

// mark is the place that the write was stored at. A handle for late writes
// after a move names an older epoch than the session's, but is as new.
func (r *Receipt) mark() mark {
	m := mark{handle: r.Handle, epoch: r.Epoch, version: r.Version, op: r.Op}
	if r.Moved != nil {
		m.epoch = max(m.epoch, r.Moved.Epoch)
	}
	return m
}

// WriteError is a write that was not accepted, or not known to be. To go on
// with it later, write the same again with this op.
type WriteError struct {
	Op  string
	Err error
}

func (e *WriteError) Error() string { return e.Err.Error() }
func (e *WriteError) Unwrap() error { return e.Err }

// Append adds turns to the session on behalf of its owner, or begins it.
//
// It presents the newest handle and repeats the write, byte for byte, until it
// has an answer, at most for Config.RepeatFor. A store that lost earlier writes
// of this Session is repaired first. Errors are *WriteError and wrap a *Problem
// where Berth refused, an *UnansweredError where it stayed silent, a
// *RepairError where a loss could not be repaired.
func (s *Session) Append(ctx context.Context, in Write) (Receipt, error) {
	return s.write(ctx, in, false)
}

// Replace stores the turns as the whole context: a compaction or an import.
// Otherwise it is as Append.
func (s *Session) Replace(ctx context.Context, in Write) (Receipt, error) {
	return s.write(ctx, in, true)
}

func (s *Session) write(ctx context.Context, in Write, replaces bool) (Receipt, error) {
	w, err := newWrite(in, replaces)
	if err != nil {
		return Receipt{}, &WriteError{Op: w.Op, Err: fmt.Errorf("%s: %w", w.act(), err)}
	}
	ctx, cancel := context.WithTimeout(ctx, s.w.conn.cfg.RepeatFor)
	defer cancel()
	if err := s.takeTurn(ctx); err != nil {
		return Receipt{}, &WriteError{Op: w.Op, Err: fmt.Errorf("%s: %w", w.act(), err)}
	}
	defer s.passTurn()
	r, err := s.settle(ctx, w)
	if err != nil {
		return Receipt{}, &WriteError{Op: w.Op, Err: err}
	}
	return r, nil
}

// maxConflicts bounds how often one write gives way to others.
const maxConflicts = 16

// settle sends the write until it is stored or refused for good. The caller has
// the turn.
func (s *Session) settle(ctx context.Context, w *write) (r Receipt, err error) {
	if err := s.repairKnown(ctx); err != nil {
		return r, err
	}
	for conflicts := 0; ; conflicts++ {
		err = s.presenting(ctx, hasTurn, func(newest mark) error {
			sent, err := s.send(ctx, w, newest)
			r = sent.Receipt
			return err
		})
		p := refusal(err)
		met := p != nil && (p.Code == ErrVersionConflict || s.ownsLater(p))
		if !met || conflicts == maxConflicts || (w.OnConflict == nil && w.At != AtEnd) {
			return r, err
		}
		if meant, failed := s.resolve(ctx, w); failed != nil || !meant {
			return r, errors.Join(err, failed)
		}
	}
}

// ownsLater reports whether a write was refused because this instance owns the
// session at a later epoch than its handle knows: a request that gave up had
// begun the session, or it went away and came back.
func (s *Session) ownsLater(p *Problem) bool {
	return p.Code == ErrNotOwner && p.Why != "replaced" && p.Why != "fenced" &&
		p.Owner != nil && p.Owner.Instance == s.w.instance.ID
}

// turnState says whether a caller has the session's turn to write.
type turnState bool

const (
	hasTurn turnState = true
	noTurn  turnState = false
)

// presenting makes a call that presents the newest handle. Where the store turns
// out to have lost something, it repairs that and makes the call again.
func (s *Session) presenting(ctx context.Context, turn turnState, do func(newest mark) error) error {
	for stalled := false; ; {
		newest, repairs := s.position()
		err := do(newest)
		p := refusal(err)
		switch {
		case p == nil:
			return err
		case p.Code == ErrDeleted && newest.version == 0:
			return err // that handle may begin anew: Recreate is what is missing
		case p.Code == ErrExpired || p.Code == ErrDeleted:
			s.over(newest.epoch)
			return err
		case p.Code != ErrStoreBehind || stalled:
			return err
		}
		stored, err := s.repair(ctx, turn, repairs, p)
		if err != nil {
			return err
		}
		stalled = stored == 0 // once more all the same: another call may have repaired
	}
}

// position is the newest handle, and how many repairs it has seen.
func (s *Session) position() (mark, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest, s.repairs
}

// sending is an accepted write as its sender sees it.
type sending struct {
	Receipt
	// fresh says that the store may not have had it before.
	fresh bool
}

// send sends the write with one handle until there is an answer, and takes an
// acceptance in.
func (s *Session) send(ctx context.Context, w *write, presented mark) (sending, error) {
	if presented.handle == "" {
		return sending{}, fmt.Errorf("%s: %w", w.act(), ErrNoHandle)
	}
	by := s.w.credentials(presented.handle)
	k := w.call(s.key.call("", ""), by)
	var answer wireReceipt
	torn, err := s.w.conn.repeat(ctx, k.into(&answer))
	if err != nil {
		return sending{}, err
	}
	r := answer.receipt(w.Op)
	s.accepted(w, presented, &r, by.incarnation)
	return sending{Receipt: r, fresh: torn || !r.Duplicate}, nil
}

// accepted takes in the answer to a write of a boot.
func (s *Session) accepted(w *write, presented mark, r *Receipt, boot string) {
	m := r.mark()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.Duplicate && r.Moved == nil { // a repeat answers an epoch that may be another's
		s.owned = ownership{r.Epoch, boot}
	}
	if s.journal.displaced(w.Op, m) {
		s.copy = copied{} // it is not in the order that the store has now
		if s.newest.op == w.Op {
			s.newest = m // the same write, where it is now
		}
	}
	s.learn(m)
	s.copy.wrote(w, presented, m, r.Turns)
	if r.Durability.durable() {
		s.journal.settle(w, presented)
	} else {
		s.journal.add(&kept{write: w, presented: presented, answered: m})
	}
}

// resolve reads what came before a refused write and asks whether the write is
// still meant. The caller has the turn.
func (s *Session) resolve(ctx context.Context, w *write) (meant bool, err error) {
	req := RecoverRequest{Mode: Read, NoTurns: true}
	if w.OnConflict != nil {
		req = RecoverRequest{Mode: Read, Have: s.Have()}
	}
	now, err := s.recoverWhole(ctx, hasTurn, req)
	if err != nil {
		return false, fmt.Errorf("read what the write met: %w", err)
	}
	if w.OnConflict == nil {
		return true, nil
	}
	return w.OnConflict(Conflict{Op: w.Op, Now: now}), nil
}
