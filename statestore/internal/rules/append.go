package rules

import (
	"crypto/sha1" //nolint:gosec // tells histories apart; the only digest a Redis script can compute
	"slices"

	"berth/statestore"
)

// Write is an append or a replace as the rules see it.
type Write struct {
	Key      statestore.SessionKey
	Kind     statestore.WriteKind
	By       statestore.Owner
	Handle   statestore.Presented
	Op       statestore.OpDigest
	Content  statestore.ContentDigest
	At       statestore.At
	Base     *uint64
	Recreate bool
	// What the turns of this write add.
	Turns, Tokens, Bytes uint64
	// Prefix measures the first k turns of what is stored, for a base.
	Prefix func(k uint64) (tokens, bytes uint64, err error)
	// Fenced says that By is fenced in this partition.
	Fenced bool
	statestore.Lifetimes
}

// Outcome is what an accepted write was.
type Outcome struct {
	Version   uint64
	Floor     statestore.Floor
	Duplicate bool
	Moved     bool
	Arrived   bool
	// Keep is how many leading turns stay below those of this write.
	Keep uint64
}

// Apply judges the write and, if it is accepted, changes the slot.
func (s *Slot) Apply(w Write, now statestore.Millis) (Outcome, error) {
	if err := s.checkEnded(&w.Handle, nil); err != nil {
		return Outcome{}, err
	}
	if s.Record == nil {
		return s.first(w, now)
	}
	r := s.Record
	lineage := r.CheckLineage(&w.Handle.Floor, w.Handle.Second)
	if i := slices.IndexFunc(r.Ops, func(o statestore.Op) bool { return o.Op == w.Op }); i >= 0 {
		return repeated(r, r.Ops[i], w, lineage)
	}
	if r.Version > w.Handle.Version+statestore.OpsRemembered {
		return Outcome{}, &statestore.OpForgottenError{Version: r.Version}
	}
	if lineage != nil {
		return Outcome{}, lineage
	}
	if r.Version == 0 && !isTail(r, w) {
		// Bound by reports only: nothing is stored, so this is the first append,
		// whichever report its handle has seen.
		return s.first(w, now)
	}
	moved, err := mayWrite(r, w)
	if err != nil {
		return Outcome{}, err
	}
	return s.accept(w, moved, now)
}

// repeated answers a known op as it was answered, if it says the same.
func repeated(r *statestore.Record, o statestore.Op, w Write, lineage error) (Outcome, error) {
	if lineage != nil {
		return Outcome{}, lineage
	}
	if o.Content != w.Content {
		return Outcome{}, &statestore.OpReusedError{Version: o.Version}
	}
	out := Outcome{
		Version:   o.Version,
		Floor:     statestore.Floor{Epoch: r.Epoch, Version: o.Version, Op: o.Op},
		Duplicate: true,
	}
	if t := r.Tail; t != nil && t.Owner == w.By {
		out.Floor.Epoch, out.Moved = t.Epoch, true
	}
	return out, nil
}

// mayWrite reports whether the writer is the tail rather than the owner.
func mayWrite(r *statestore.Record, w Write) (moved bool, err error) {
	if r.Owner == w.By && w.Handle.Epoch == r.Epoch && !r.Owner.IsZero() {
		return false, nil
	}
	if isTail(r, w) {
		return true, nil
	}
	return false, notOwner(r, w.By)
}

// isTail reports whether the write is one that the tail may still make.
func isTail(r *statestore.Record, w Write) bool {
	t := r.Tail
	return t != nil && t.Owner == w.By && t.Epoch == w.Handle.Epoch && w.Kind == statestore.KindAppend && w.Base == nil
}

// notOwner says who may write instead, and why.
func notOwner(r *statestore.Record, by statestore.Owner) error {
	e := &statestore.NotOwnerError{Why: statestore.WhyFailover, Owner: r.Owner, Epoch: r.Epoch}
	switch {
	case r.Owner.IsZero():
		e.Why = statestore.WhyUnbound
	case r.Owner.Instance == by.Instance && r.Owner != by:
		e.Why = statestore.WhyReplaced
	case len(r.Changes) > 0 && r.Changes[len(r.Changes)-1].Reason == statestore.ChangeMoved:
		e.Why = statestore.WhyMoved
	}
	return e
}

// accept checks version and size and changes the record.
func (s *Slot) accept(w Write, moved bool, now statestore.Millis) (Outcome, error) {
	r := s.Record
	if w.At == statestore.AtVersion && w.Handle.Version != r.Version {
		return Outcome{}, &statestore.VersionConflictError{Version: r.Version, Turns: r.Turns}
	}
	keep, tokens, bytes, err := kept(r, w)
	if err != nil {
		return Outcome{}, err
	}
	if size := bytes + w.Bytes; size > statestore.MaxSessionBytes {
		return Outcome{}, &statestore.TooLargeError{What: "session", Limit: statestore.MaxSessionBytes, Size: size}
	}
	rewrites := keep < r.Turns
	r.Version++
	r.Turns, r.Tokens, r.Bytes = keep+w.Turns, tokens+w.Tokens, bytes+w.Bytes
	r.Digest = chain(r.Digest, w.Content)
	if rewrites {
		r.Rewritten = r.Version
	}
	r.Ops = append(r.Ops, statestore.Op{Op: w.Op, Content: w.Content, Version: r.Version, Kept: keep})
	if n := len(r.Ops); n > statestore.OpsRemembered {
		r.Ops = slices.Delete(r.Ops, 0, n-statestore.OpsRemembered)
	}
	renew(r, w.Lifetimes, now)
	r.LastTurn = now
	out := Outcome{Version: r.Version, Floor: r.Floor(), Moved: moved, Keep: keep}
	if moved {
		out.Floor.Epoch = r.Tail.Epoch
		extendTail(r)
	} else {
		out.Arrived = r.Tail != nil && r.Tail.Owner.Instance != w.By.Instance
		r.Tail = nil
	}
	return out, nil
}

// kept measures what stays below the turns of a write.
func kept(r *statestore.Record, w Write) (turns, tokens, bytes uint64, err error) {
	switch {
	case w.Kind == statestore.KindReplace:
		return 0, 0, 0, nil
	case w.Base == nil || *w.Base == r.Turns:
		return r.Turns, r.Tokens, r.Bytes, nil
	case *w.Base > r.Turns:
		return 0, 0, 0, &statestore.VersionConflictError{Version: r.Version, Turns: r.Turns}
	}
	tokens, bytes, err = w.Prefix(*w.Base)
	return *w.Base, tokens, bytes, err
}

// extendTail moves the recorded end of the tail's epoch, and of the epochs after
// it that nobody wrote in, to the present version.
func extendTail(r *statestore.Record) {
	for i := range r.Changes {
		if r.Changes[i].Epoch > r.Tail.Epoch {
			r.Changes[i].Version = r.Version
		}
	}
}

// first creates the session, bound to the writer, or to nobody if it is fenced.
func (s *Slot) first(w Write, now statestore.Millis) (Outcome, error) {
	before, epoch, key := s.Tombstone, s.Tombstone.Epoch, w.Handle.AffinityKey
	if s.Record != nil {
		before, epoch = s.Record.Before, s.Record.Epoch
	}
	if before.Reason == statestore.Deleted && !w.Recreate {
		return Outcome{}, &statestore.EndedError{Reason: before.Reason, Epoch: before.Epoch}
	}
	if w.Base != nil && *w.Base > 0 {
		return Outcome{}, &statestore.VersionConflictError{}
	}
	if w.Bytes > statestore.MaxSessionBytes {
		return Outcome{}, &statestore.TooLargeError{What: "session", Limit: statestore.MaxSessionBytes, Size: w.Bytes}
	}
	r := &statestore.Record{Key: w.Key, AffinityKey: key, Epoch: epoch, Before: before, Created: now}
	owner := w.By
	if w.Fenced {
		owner = statestore.Owner{}
	}
	rebind(r, owner, statestore.ChangeCreated, now)
	s.Record, s.Tombstone = r, statestore.Tombstone{}
	return s.accept(w, false, now)
}

// renew lets affinity and retention begin again.
func renew(r *statestore.Record, l statestore.Lifetimes, now statestore.Millis) {
	r.AffinityUntil = now.Add(l.Affinity)
	r.Expires = now.Add(l.Retention)
}

// rebind gives the record to owner at a new epoch.
func rebind(r *statestore.Record, owner statestore.Owner, why statestore.ChangeReason, now statestore.Millis) {
	r.Epoch = nextEpoch(r.Epoch, now)
	r.Owner, r.BoundAt, r.Reserved = owner, now, nil
	r.Changes = append(r.Changes, statestore.OwnerChange{
		Epoch: r.Epoch, Version: r.Version, Instance: owner.Instance, Reason: why, At: now,
	})
	if n := len(r.Changes); n > statestore.ChangesRemembered {
		r.Changes = slices.Delete(r.Changes, 0, n-statestore.ChangesRemembered)
	}
}

// chain is SHA-1 over the digest so far and the digest of the next write.
func chain(d statestore.Digest, c statestore.ContentDigest) statestore.Digest {
	return sha1.Sum(slices.Concat(d[:], c[:])) //nolint:gosec // see the import
}
