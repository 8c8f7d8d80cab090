package rules

import "berth/statestore"

// Slot is what stands in the place of a session: a record, or the tombstone of
// one, or neither.
type Slot struct {
	Record    *statestore.Record
	Tombstone statestore.Tombstone
}

// Expire turns a record whose time is over into its tombstone and reports
// whether it did. The tombstone's epoch is that of the moment at which the time
// was over, not of the call: a read that finds the session expired before
// anybody ended it names the epoch that every later write finds.
func (s *Slot) Expire(now statestore.Millis) bool {
	if s.Record == nil || now < s.Record.Expires {
		return false
	}
	s.end(statestore.Expired, s.Record.Expires)
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
// off its lineage is a loss, unless a claimant accepted that loss before or it
// belongs to a life that ended: that was told when it ended.
func checkLineage(r *statestore.Record, floors ...*statestore.Floor) error {
	var want uint64
	forgiven := false
	for _, f := range floors {
		switch {
		case f == nil || f.Epoch < r.Before.Epoch || r.Holds(*f):
		case r.Forgiven(*f):
			forgiven = true
		default:
			want = max(want, f.Version)
		}
	}
	switch {
	case want > 0:
		return &statestore.StoreBehindError{HaveVersion: r.Version, HaveTurns: r.Turns, WantVersion: want}
	case forgiven:
		return &statestore.StaleHandleError{Owner: r.Owner, Epoch: r.Epoch}
	}
	return nil
}

// checkEnded refuses what was told of a life before this one, and, where there
// is no record, everything but what may begin a session. It returns nil for a
// record in its own life, and for no record with floors that may begin one. have
// is the floor of a claimant's copy, if it told one.
func (s *Slot) checkEnded(p *statestore.Presented, have *statestore.Floor) error {
	end := s.Tombstone
	if s.Record != nil {
		end = s.Record.Before
	}
	if p != nil && p.Epoch < end.Epoch {
		return &statestore.EndedError{Reason: end.Reason, Epoch: end.Epoch}
	}
	if s.Record != nil {
		return nil
	}
	if want := promised(end, p, have); want > 0 {
		return &statestore.StoreBehindError{WantVersion: want}
	}
	if p != nil && p.Epoch > end.Epoch {
		// A life without turns: nothing was promised, and a new route begins anew.
		return &statestore.EndedError{Reason: statestore.Expired, Epoch: end.Epoch}
	}
	return nil
}

// promised is the highest version of a life after the tombstone, which is not
// here, that a caller was told of.
func promised(end statestore.Tombstone, p *statestore.Presented, have *statestore.Floor) uint64 {
	floors := []*statestore.Floor{have}
	if p != nil {
		floors = append(floors, &p.Floor, p.Second)
	}
	var want uint64
	for _, f := range floors {
		if f != nil && f.Epoch >= end.Epoch {
			want = max(want, f.Version)
		}
	}
	return want
}
