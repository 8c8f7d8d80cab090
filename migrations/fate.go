package migrations

import "berth/statestore"

// fate is what became of a planned commit, as the session itself tells.
type fate uint8

const (
	fateBound fate = iota // still the source's, at the epoch of the plan
	fateStale             // still the source's, at another epoch: to be planned anew
	fateMoved             // a job moved or unbound it
	fateLeft              // it left without a job
	fateExpired
	fateDeleted
)

// fateOf reads the fate of an intent off the session. The first change of owner
// after the epoch of the plan is the one that took the session from the source;
// only a job makes one for the reason "moved" or "detached", and only one job at
// a time has an instance among its sources.
func fateOf(v *statestore.View, in intent) fate {
	switch {
	case !v.Exists && v.Tombstone.Reason == statestore.Deleted:
		return fateDeleted
	case !v.Exists:
		return fateExpired
	case v.Epoch == in.Epoch:
		return fateBound
	}
	for _, c := range v.Changes {
		if c.Epoch <= in.Epoch {
			continue
		}
		if c.Reason == statestore.ChangeMoved || c.Reason == statestore.ChangeDetached {
			return fateMoved
		}
		break
	}
	if v.Owner == in.From {
		return fateStale
	}
	return fateLeft
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
