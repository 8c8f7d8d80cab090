package simulate

import (
	"testing"
	"time"

	"berth/migrations"
)

// Who pulls no tasks is waited for by the in-flight grace: its sessions are left in
// peace after each turn, and without heartbeats the instance is safe to stop only
// that much after the last hint. Nothing is prewarmed.
func TestDrainsOfWorkersThatDoNotCooperate(t *testing.T) {
	t.Parallel()
	drained := func(workers Workers, grace time.Duration) Effect {
		sc := small()
		sc.Move.Workers, sc.Move.Grace, sc.Move.SessionsPerS = workers, grace, 1000
		e := mustRun(t, with(t, sc, "1m:drain:i3")).Events[0]
		if e.SafeAfterMS == 0 || e.MovedSessions == 0 {
			t.Fatalf("%s, grace %v: %d sessions moved, safe after %d ms", workers, grace, e.MovedSessions, e.SafeAfterMS)
		}
		if e.FailedTries != 0 || workers != Cooperative && e.PrewarmedTokens != 0 {
			t.Errorf("%s: %d tries failed, %d tokens prewarmed", workers, e.FailedTries, e.PrewarmedTokens)
		}
		return e
	}
	safe := func(e Effect) time.Duration { return time.Duration(e.SafeAfterMS) * time.Millisecond }
	const grace = 20 * time.Second
	cooperative := drained(Cooperative, grace)
	if again := drained(Cooperative, 2*grace); safe(again) != safe(cooperative) {
		t.Errorf("safe after %v, and with a longer grace after %v: workers that cooperate need none", safe(cooperative), safe(again))
	}
	passive, silent := drained(Passive, grace), drained(Silent, grace)
	if safe(passive) < safe(cooperative)+grace/2 || passive.RecomputedTokens <= cooperative.RecomputedTokens {
		t.Errorf("passive: safe after %v, %d tokens recomputed; cooperative: %v, %d", safe(passive), passive.RecomputedTokens, safe(cooperative), cooperative.RecomputedTokens)
	}
	if longer := drained(Silent, 30*time.Second); safe(longer) < safe(silent)+grace/2 {
		t.Errorf("silent: safe after %v, and with 10s more of grace after %v", safe(silent), safe(longer))
	}
	// One that holds nobody: hints, and then two heartbeats or the grace.
	for workers, want := range map[Workers]time.Duration{Passive: 2 * heartbeatEvery, Silent: grace} {
		sc := small()
		sc.Sessions, sc.Move.Workers, sc.Move.Grace = 1, workers, grace
		e := mustRun(t, with(t, sc, "1m:drain:i3")).Events[0]
		want += migrations.DefaultLongestHint
		if off := safe(e) - want; e.Bound != 0 || off < -heartbeatEvery || off > heartbeatEvery {
			t.Errorf("%s: of %d sessions, safe after %v, want about %v", workers, e.Bound, safe(e), want)
		}
	}
}
