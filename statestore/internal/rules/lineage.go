package rules

import "berth/statestore"

// Slot is what stands in the place of a session: a record, or the tombstone of
// one, or neither.
type Slot struct {
	Record    *statestore.Record
	Tombstone statestore.Tombstone
}

// Expire turns a record whose time is over into its tombstone and reports
// whether it did.
func (s *Slot) Expire(now statestore.Millis) bool {
	if s.Record == nil || now < s.Record.Expires {
		return false
	}
	s.end(statestore.Expired, now)
	return true
}

func (s *Slot) end(why statestore.EndReason, now statestore.Millis) {
	s.Tombstone = statestore.Tombstone{Epoch: nextEpoch(s.Record.Epoch, now), Reason: why}
	s.Record = nil
}

// nextEpoch never repeats a number that was issued, not even one whose issue the
// store lost: the clock has gone on since.
func nextEpoch(epoch uint64, now statestore.Millis) uint64 {
	return max(epoch+1, uint64(now)) //nolint:gosec // the clock is past 1970
}

// checkLineage holds every floor that was presented against the record. A floor
// off its lineage is a loss, unless a claimant accepted that loss before.
func checkLineage(r *statestore.Record, floors ...*statestore.Floor) error {
	covered := false
	for _, f := range floors {
		if f == nil || r.Holds(*f) {
			continue
		}
		if !r.Forgiven(*f) {
			return &statestore.StoreBehindError{HaveVersion: r.Version, HaveTurns: r.Turns, WantVersion: f.Version}
		}
		covered = true
	}
	if covered {
		return &statestore.StaleHandleError{Owner: r.Owner, Epoch: r.Epoch}
	}
	return nil
}

// checkEnded refuses what was told of a life before this one, and, where there
// is no record, everything but what may begin a session. It returns nil for a
// record in its own life, and for no record with a floor that may begin one.
func (s *Slot) checkEnded(p *statestore.Presented) error {
	if s.Record != nil {
		if b := s.Record.Before; p != nil && p.Epoch < b.Epoch {
			return &statestore.EndedError{Reason: b.Reason, Epoch: b.Epoch}
		}
		return nil
	}
	if p == nil {
		return nil
	}
	t := s.Tombstone
	if p.Epoch < t.Epoch {
		return &statestore.EndedError{Reason: t.Reason, Epoch: t.Epoch}
	}
	// The holder was told of a life after the tombstone, and it is not here.
	want := p.Version
	if p.Second != nil && p.Second.Epoch >= t.Epoch {
		want = max(want, p.Second.Version)
	}
	if want > 0 {
		return &statestore.StoreBehindError{WantVersion: want}
	}
	if p.Epoch > t.Epoch {
		// A life without turns: nothing was promised, and a new route begins anew.
		return &statestore.EndedError{Reason: statestore.Expired, Epoch: t.Epoch}
	}
	return nil
}
