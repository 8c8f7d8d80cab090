package services

import (
	"testing"

	"berth/statestore"
)

// Who has no heartbeats is heard of by its writes, and not by what may have been
// written before another took its address or answered there.
func TestAWriteEndsDisplacement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 2)
		w.silent["i1"], w.instance("i1").Beats = true, 0
		w.rounds(3)
		w.instance("i1").Displaced = true
		w.tell("p2", "i1", tallyWrites, 1)
		w.rounds(13)
		w.tell("p1", "i1", "ok", 5)
		w.rounds(1)
		w.want("after a write of before, and answers at its address", w.instance("i1").Standing(), statestore.Suspect)
		w.tell("p2", "i1", tallyWrites, 1)
		w.rounds(1)
		w.want("after a write", w.instance("i1").Standing(), statestore.Healthy)
		w.instance("i1").Displaced = true
		w.tell("p2", "i1", tallyWrites, 1)
		w.rounds(1)
		w.want("displaced again", w.instance("i1").Standing(), statestore.Suspect)
	})
}
