package main

import (
	"encoding/json"
	"testing"

	"berth/cmd/berth/internal/drainbench"
)

// A small run of the drain benchmark: everything moves while traffic goes on, nothing
// is lost or doubled, and nobody new is sent to what is being drained.
func TestBenchDrain(t *testing.T) {
	t.Parallel()
	var out output
	err := run(t.Context(), []string{
		"bench", "drain", "--sessions", "150", "--targets", "2", "--clients", "4", "--pace", "30", "--json",
	}, &out, new(output))
	if err != nil {
		t.Fatal(err)
	}
	var f drainbench.Figures
	if err := json.Unmarshal([]byte(out.String()), &f); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if f.Lost != 0 || f.Doubled != 0 || f.NewHintsToSource != 0 || f.FailedTurns != 0 {
		t.Errorf("lost, doubled or sent to the source: %+v", f)
	}
	// A busy machine answers too late for most; package migrations holds how many are.
	if f.Prewarmed+f.Offloaded == 0 {
		t.Errorf("%d prewarmed, %d offloaded", f.Prewarmed, f.Offloaded)
	}
	if f.Sessions < 150 || f.SessionsPerS <= 0 || f.PacedPerS <= 0 || f.Turns == 0 || f.NewSessions == 0 || f.SafeToStopMS == 0 {
		t.Errorf("figures %+v", f)
	}
	if err := run(t.Context(), []string{"bench", "drain", "--targets", "1"}, new(output), new(output)); err == nil {
		t.Error("a drain without another target is measured")
	}
}
