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

// checkEnded is [statestore.CheckEnded] on the slot.
func (s *Slot) checkEnded(p *statestore.Presented, have *statestore.Floor) error {
	return statestore.CheckEnded(s.Record, s.Tombstone, p, have)
}
