package services

import (
	"fmt"
	"slices"
	"time"

	"berth/routing"
	"berth/statestore"
)

// ringChangesKept is how many changes of a pool's ring a process remembers.
const ringChangesKept = 20

// ringChange is one change of where a pool's new sessions go by the ring, as this
// process saw it.
type ringChange struct {
	SnapshotVersion uint64    `json:"snapshot_version" doc:"the first that places so"`
	At              time.Time `json:"at" doc:"when this process built it"`
	Moved           float64   `json:"moved" doc:"part of the key space whose new sessions go elsewhere"`
	Ideal           float64   `json:"ideal" doc:"part that had to, for every instance to have its new share"`
	Why             []string  `json:"why" doc:"what changed, at most ten"`
}

// ringChanges are the changes of a pool up to its present snapshot. Without one before,
// there is nothing to compare with.
func ringChanges(prev *pool, next *routing.Snapshot, now statestore.Millis) []ringChange {
	switch {
	case prev == nil:
		return nil
	case prev.snapshot.PlacesAs(next):
		return prev.changes
	}
	c := ringChange{
		SnapshotVersion: next.Version(), At: time.UnixMilli(int64(now)).UTC(), Why: whyChanged(prev.snapshot, next),
	}
	if len(c.Why) == 0 {
		return prev.changes
	}
	m := prev.snapshot.Movement(next)
	c.Moved, c.Ideal = m.Moved, m.Ideal
	kept := prev.changes[max(0, len(prev.changes)-ringChangesKept+1):]
	return append(slices.Clip(kept), c)
}

// reasonsKept bounds what one change says: a rollout changes many.
const reasonsKept = 10

// whyChanged says what of the members changed between two snapshots: nothing if only
// weights in force did, of instances that take no new sessions before or after.
func whyChanged(before, after *routing.Snapshot) []string {
	why := []string{}
	if before.Policy().Ring != after.Policy().Ring {
		why = append(why, "ring policy")
	}
	for in := range after.Instances() {
		old := before.Lookup(in.ID)
		switch {
		case old == nil:
			why = append(why, fmt.Sprintf("%s joined at %s of weight %d", in.ID, ramped(in), in.Weight))
		case old.Weight != in.Weight:
			why = append(why, fmt.Sprintf("%s weighs %d instead of %d", in.ID, in.Weight, old.Weight))
		case old.State != in.State:
			why = append(why, fmt.Sprintf("%s is %s instead of %s, at %s", in.ID, in.State, old.State, ramped(in)))
		case (old.Breaker == routing.BreakerClosed) != (in.Breaker == routing.BreakerClosed):
			why = append(why, fmt.Sprintf("the breaker of %s is %s instead of %s", in.ID, in.Breaker, old.Breaker))
		case old.RampPercent != in.RampPercent && (before.Eligible(in.ID) || after.Eligible(in.ID)):
			why = append(why, fmt.Sprintf("%s ramped from %s to %s", in.ID, ramped(old), ramped(in)))
		}
	}
	for in := range before.Instances() {
		if after.Lookup(in.ID) == nil {
			why = append(why, in.ID+" left")
		}
	}
	return why[:min(len(why), reasonsKept)]
}

func ramped(in *routing.Instance) string { return fmt.Sprintf("%d %%", percentInForce(in)) }

// percentInForce is the part of its weight that an instance has in force.
func percentInForce(in *routing.Instance) int {
	switch in.RampPercent {
	case 0:
		return 100
	case routing.RampQueued:
		return 0
	}
	return in.RampPercent
}
