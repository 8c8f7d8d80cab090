package storetest

import (
	"testing"
	"time"

	"berth/statestore"
)

// Backend is what the tests of a store hand to the suite. Only Open is required;
// what another field makes possible is skipped, by name, where it is nil.
type Backend struct {
	// Open returns an empty store that nobody else uses, or an empty key space
	// of one, and closes it when the test ends. The suite may close it before.
	Open func(t testing.TB) statestore.Store

	// Advance moves the clock of the store forward. Where it is nil the suite
	// uses short lifetimes and waits until the store's own clock has passed.
	Advance func(t testing.TB, s statestore.Store, d time.Duration)

	// Snapshot copies what s holds. The function it returns brings that copy
	// back, under a clock that has gone on, and opens the store to use from then
	// on. The suite closes the store that is in use before it calls it, and may
	// call it more than once.
	Snapshot func(t testing.TB, s statestore.Store) (restore func() statestore.Store)

	// Reopen returns what another process finds that opens the same store, and
	// closes it when the test ends. It may close s before.
	Reopen func(t testing.TB, s statestore.Store) statestore.Store

	// Concurrent says that s and what Reopen returns may be used at the same
	// time, as by two processes.
	Concurrent bool
}

// trace is one story. Its name says what must hold.
type trace struct {
	name string
	play func(w *world)
}

// group is the traces that hold one part of the contract.
type group struct {
	name   string
	traces []trace
}

// Run holds a backend to the contract of package statestore.
func Run(t *testing.T, b Backend) {
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			for _, tr := range g.traces {
				t.Run(tr.name, func(t *testing.T) {
					t.Parallel()
					tr.play(newWorld(t, b))
				})
			}
		})
	}
	t.Run("every random sequence of calls is answered as by the model", func(t *testing.T) {
		t.Parallel()
		randomSequences(t, b)
	})
}

func groups() []group {
	return []group{
		{"append", appendTraces()},
		{"rewrite", rewriteTraces()},
		{"claim", claimTraces()},
		{"move", moveTraces()},
		{"park", parkedTraces()},
		{"lose", lossTraces()},
		{"end", endTraces()},
		{"bind", bindTraces()},
		{"order", orderTraces()},
		{"bytes", byteTraces()},
		{"place", placementTraces()},
		{"index", indexTraces()},
		{"fleet", fleetTraces()},
		{"pools", poolTraces()},
		{"heartbeats", heartbeatTraces()},
		{"jobs", jobTraces()},
		{"race", raceTraces()},
		{"settings", settingsTraces()},
	}
}
