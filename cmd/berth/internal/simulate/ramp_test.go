package simulate

import (
	"testing"
	"time"

	"berth/routing"
)

// One that was down, and is suspect until it has proved itself, begins its ramp when it
// is ready: nothing of it is in force before it was let in.
func TestASuspectThatWasDownDoesNotRamp(t *testing.T) {
	t.Parallel()
	sc := small()
	e, err := newEngine(&sc, newSynthetic(&sc), newPlacer(Berth))
	if err != nil {
		t.Fatal(err)
	}
	in := e.fleet[3]
	seconds := func(n int, state routing.State, verdict routing.Health) {
		t.Helper()
		for range n {
			e.now += time.Second
			e.rampDirty = e.rampDirty || in.state != state
			in.state, in.health.verdict = state, verdict
			e.raise()
		}
	}
	seconds(100, routing.Down, routing.HealthDown)
	for range 100 {
		if seconds(1, routing.Suspect, routing.HealthSuspect); in.health.percent != 10 {
			t.Fatalf("as a suspect it rises to %d %%", in.health.percent)
		}
	}
	if seconds(1, routing.Ready, routing.Healthy); in.health.percent != 10 {
		t.Fatalf("it begins at %d %%", in.health.percent)
	}
	if seconds(1, routing.Suspect, routing.HealthSuspect); in.health.percent != 10 {
		t.Fatalf("suspect for a moment it is at %d %%", in.health.percent)
	}
	seconds(300, routing.Ready, routing.Healthy)
	if in.health.percent != 100 {
		t.Fatalf("in the end it is at %d %%", in.health.percent)
	}
}
