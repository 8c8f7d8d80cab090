package migrations

import "berth/statestore"

// fate is what became of a planned commit, as the session itself tells.
type fate uint8

const (
	fateBound fate = iota // still the source's, at the epoch of the plan
	fateStale             // still the source's, at another epoch: to be planned anew
	fateMoved             // the intent's own commit moved or unbound it
	fateLeft              // it left without it
	fateExpired
	fateDeleted
)

// fateOf reads the fate of an intent off the session. The first change of owner
// after the epoch of the plan is the one that took the session from the source; sent
// says that it may have been the commit of this intent, which it was if it is a
// job's move to the target that was planned.
func fateOf(v *statestore.View, in intent, sent bool) fate {
	switch {
	case !v.Exists && v.Tombstone.Reason == statestore.Deleted:
		return fateDeleted
	case !v.Exists:
		return fateExpired
	case v.Epoch == in.Epoch:
		return fateBound
	case sent && in.committed(v.Changes):
		return fateMoved
	case v.Owner == in.From:
		return fateStale
	}
	return fateLeft
}

// committed reports whether the change of owner after the intent's epoch is its own.
func (in *intent) committed(changes []statestore.OwnerChange) bool {
	why := statestore.ChangeMoved
	if in.To.IsZero() {
		why = statestore.ChangeDetached
	}
	for _, c := range changes {
		if c.Epoch > in.Epoch {
			return c.Reason == why && c.Instance == in.To.Instance
		}
	}
	return false
}

// skipped is the reason under which the fate is counted, empty for one that is
// not skipped.
func (f fate) skipped() string {
	switch f {
	case fateExpired:
		return SkippedExpired
	case fateDeleted:
		return SkippedDeleted
	case fateLeft:
		return SkippedAlreadyMoved
	}
	return ""
}
