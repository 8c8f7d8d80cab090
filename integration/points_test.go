package integration_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// points is how many random points of a drain are tried: a few, or as many as
// BERTH_TEST_POINTS says.
func points(t *testing.T) int {
	if n, err := strconv.Atoi(os.Getenv("BERTH_TEST_POINTS")); err == nil {
		return n
	}
	if testing.Short() {
		t.Skip("not tested: a drain whose process is hurt at random points, which takes minutes")
	}
	return 4
}

// TestDrainSurvivesItsProcessAtAnyPoint kills the process that runs a drain at random
// points of it, or pauses it until another has ended the job and lets it go on: each
// drain ends right, its counters are what the sessions say, and nothing moves any more
// afterwards. Now and then the drain is cancelled half way.
func TestDrainSurvivesItsProcessAtAnyPoint(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("not tested outside Linux: a process that is paused")
	}
	n := points(t)
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // a test
	p, c := drainPair(t)
	var kept []string
	for i := range n {
		trial := trial{
			pair: p, crew: c, name: fmt.Sprintf("trial-%d", i), after: time.Duration(rng.IntN(2500)) * time.Millisecond,
			pause: i%2 == 1, cancel: i%5 == 3, kept: kept,
		}
		kept = trial.run(t)
		if t.Failed() {
			t.Fatalf("%s: after %v, paused %v, cancelled %v", trial.name, trial.after, trial.pause, trial.cancel)
		}
	}
}

// trial is one drain of i1 whose process is hurt.
type trial struct {
	pair
	crew
	name   string
	after  time.Duration // from the answer to the request
	pause  bool          // until the drain has ended, instead of a kill
	cancel bool          // right after it was hurt
	kept   []string      // sessions that the cancelled drains before it left on i1
}

const trialSessions = 12

// run returns the sessions that are still on i1.
func (d *trial) run(t *testing.T) (kept []string) {
	t.Helper()
	ctx := t.Context()
	sessions := append(d.s1.api().group(t, d.name, d.credentials("i1"), "i2:busy,i3:busy", trialSessions), d.kept...)
	var j job
	must(t, d.s1.api().do(ctx, http.MethodPost, "/v1/drains", map[string]any{
		"instances": []string{"i1"}, "in_flight_grace_ms": 500,
		"pace": map[string]any{"sessions_per_s": 6}, "prewarm": map[string]any{"idle_below_ms": 0},
	}, &j))
	lost, left := holder(t, d.pair, j.ID)
	must(t, sleep(ctx, d.after))
	woken := lost.log.mark()
	if d.pause {
		lost.pause(t)
	} else {
		lost.kill9(t)
	}
	if d.cancel {
		must(t, left.api().do(ctx, http.MethodPost, "/v1/jobs/"+j.ID+"/cancel", nil, nil))
	}
	hurt := time.Now()
	eventually(t, "the drain ends", func() (err error) {
		j, err = left.api().job(ctx, j.ID)
		if err == nil && !j.ended() {
			err = fmt.Errorf("%s after %v with %d moved", j.State, time.Since(hurt), j.Progress.Moved)
		}
		return err
	})
	if d.pause {
		lost.resume(t)
		if j.Attempts > 1 {
			must(t, lost.awaitLine(within(t), woken, "job is let go"))
		}
	} else {
		lost.restart(t)
	}
	kept = d.check(t, left, j, sessions)
	d.reopen(t, left)
	return kept
}

// check holds the end of the drain against every session, and returns those that have
// not moved.
func (d *trial) check(t *testing.T, at *berth, end job, sessions []string) (kept []string) {
	t.Helper()
	j, err := at.api().job(t.Context(), end.ID)
	must(t, err)
	want := "succeeded"
	if d.cancel && j.State == "cancelled" {
		want = "cancelled" // it may have ended before
	}
	moved := 0
	for _, id := range sessions {
		var h history
		must(t, at.api().do(t.Context(), http.MethodGet, "/v1/sessions/"+id+"/history", nil, &h))
		switch {
		case len(h.Changes) == 2 && h.Owner.Instance != "i1":
			moved++
		case len(h.Changes) == 1 && want == "cancelled":
			kept = append(kept, id)
		default:
			t.Errorf("%s: %s had the owners %+v", d.name, id, h.Changes)
		}
		if got, err := at.api().load(t.Context(), id); err != nil || got.Count != 1 {
			t.Errorf("%s: %s has %d turns: %v", d.name, id, got.Count, err)
		}
	}
	if j.State != want || j.Progress.Moved != moved || want == "succeeded" && j.Progress.Total != len(sessions) {
		t.Errorf("%s: in truth %d of %d have moved, the job ended as %+v", d.name, moved, len(sessions), j)
	}
	return kept
}

// reopen lets i1 take sessions again, which it gives the other instances' share of
// what it kept.
func (d *trial) reopen(t *testing.T, at *berth) {
	t.Helper()
	states, err := at.api().states(t.Context())
	must(t, err)
	if states["i1"] == "drained" {
		must(t, at.api().do(t.Context(), http.MethodPost, "/v1/instances/i1/uncordon", nil, nil))
	}
	for _, b := range []*berth{d.s1, d.s2} {
		eventually(t, "i1 is ready at "+b.url, func() error {
			states, err := b.api().states(t.Context())
			if err == nil && states["i1"] != "ready" {
				err = fmt.Errorf("it is %s", states["i1"])
			}
			return err
		})
	}
}
