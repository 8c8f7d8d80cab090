package integration_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"testing"

	"berth/integration/redistest"
)

// demoReport is what scripts rely on in `berth demo --json`.
type demoReport struct {
	Requests     *int         `json:"requests"`
	Sessions     *int         `json:"sessions"`
	IdealHitRate *float64     `json:"ideal_hit_rate"`
	Policies     []demoPolicy `json:"policies"`
}

type demoPolicy struct {
	Name                *string     `json:"name"`
	HitRate             *float64    `json:"hit_rate"`
	ShareOfIdeal        *float64    `json:"share_of_ideal"`
	JumpRate            *float64    `json:"jump_rate"`
	ColdJumpRate        *float64    `json:"cold_jump_rate"`
	RecomputedTokens    *int        `json:"recomputed_tokens"`
	PrewarmedTokens     *int        `json:"prewarmed_tokens"`
	PrewarmedTokensUsed *int        `json:"prewarmed_tokens_used"`
	MaxMeanLoad         *float64    `json:"max_mean_load"`
	LostTurns           *int        `json:"lost_turns"`
	FailedRequests      *int        `json:"failed_requests"`
	AvoidableJumps      *int        `json:"avoidable_jumps"`
	Events              []demoEvent `json:"events"`
}

// demoEvent is what one event did: turns that jumped because an instance had left, and
// those of them that found their KV cache prewarmed where they landed.
type demoEvent struct {
	At         *int    `json:"at"`
	Kind       *string `json:"kind"`
	Instance   *string `json:"instance"`
	Sessions   *int    `json:"sessions"`
	Moved      *int    `json:"moved"`
	Warm       *int    `json:"warm"`
	Reshuffled *int    `json:"reshuffled"`
}

// TestDemoLosesNothing plays a part of the demo's trace on either store: no turn is
// lost, no request fails, and no session leaves an instance that is in service. Its
// gateways and heartbeats are as impatient as real ones, so it has the machine to
// itself.
func TestDemoLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("not tested with -short: the demo")
	}
	t.Run("on the embedded store", func(t *testing.T) {
		requests := 1500
		if raceEnabled {
			requests = 600
		}
		checkDemo(t, requests)
	})
	t.Run("on Redis", func(t *testing.T) {
		redis := redistest.Standalone(t, redistest.Fsync("always"))
		checkDemo(t, 400, "--store", redis.URL)
		// A named Redis is not the demo's own: it leaves nothing there.
		if keys := redis.Client(t).Keys(t.Context(), "berth-demo-*").Val(); len(keys) > 0 {
			t.Errorf("the demo left %d keys behind, the first is %s", len(keys), keys[0])
		}
	})
}

func checkDemo(t *testing.T, requests int, flags ...string) {
	t.Helper()
	got := run(t, append([]string{"demo", "--json", "--requests", strconv.Itoa(requests)}, flags...)...)
	if got.code != 0 {
		t.Fatalf("the demo ends with code %d:\n%s", got.code, got.stderr)
	}
	if trouble.MatchString(got.stderr) {
		t.Errorf("the demo tells of trouble:\n%s", got.stderr)
	}
	var report demoReport
	dec := json.NewDecoder(bytes.NewReader([]byte(got.stdout)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&report); err != nil || dec.More() {
		t.Fatalf("the report is not one document of the promised form: %v\n%s", err, got.stdout)
	}
	if report.Requests == nil || *report.Requests != requests || report.Sessions == nil || report.IdealHitRate == nil {
		t.Errorf("the report's head misses something:\n%s", got.stdout)
	}
	names := map[string]demoPolicy{}
	for _, p := range report.Policies {
		if p.Name == nil || p.HitRate == nil || p.ShareOfIdeal == nil || p.JumpRate == nil || p.ColdJumpRate == nil ||
			p.RecomputedTokens == nil || p.PrewarmedTokens == nil || p.PrewarmedTokensUsed == nil || p.MaxMeanLoad == nil ||
			p.LostTurns == nil || p.FailedRequests == nil || p.AvoidableJumps == nil || len(p.Events) != 3 {
			t.Fatalf("a policy misses something:\n%s", got.stdout)
		}
		names[*p.Name] = p
	}
	if len(names) != 5 {
		t.Errorf("want berth, random, round-robin, modulo and a plain ring; got %d policies", len(names))
	}
	berth, ok := names["berth"]
	if !ok {
		t.Fatalf("no policy is called berth:\n%s", got.stdout)
	}
	if *berth.LostTurns != 0 || *berth.FailedRequests != 0 || *berth.AvoidableJumps != 0 {
		t.Errorf("%d turns lost, %d requests failed, %d avoidable jumps; want none\n%s",
			*berth.LostTurns, *berth.FailedRequests, *berth.AvoidableJumps, got.stderr)
	}
	berth.checkJumps(t, requests-*report.Sessions)
	for name, p := range names {
		if *p.ShareOfIdeal < 0 || *p.ShareOfIdeal > 1 || name != "berth" && *p.ShareOfIdeal > *berth.ShareOfIdeal {
			t.Errorf("%s reaches %.4f of the ideal, berth %.4f", name, *p.ShareOfIdeal, *berth.ShareOfIdeal)
		}
	}
}

// checkJumps holds that sessions jump only because an instance left, and cold only off
// the killed one: in the minutes that a part of the trace takes, no session is idle for
// so long that a drain would not prewarm it. Of so many turns that had a predecessor.
func (p *demoPolicy) checkJumps(t *testing.T, turns int) {
	t.Helper()
	moved, warm := map[string]int{}, map[string]int{}
	for _, e := range p.Events {
		if e.At == nil || e.Kind == nil || e.Instance == nil || e.Sessions == nil || e.Moved == nil || e.Warm == nil || e.Reshuffled == nil {
			t.Fatalf("an event misses something: %+v", e)
		}
		moved[*e.Kind], warm[*e.Kind] = *e.Moved, *e.Warm
		if *e.Reshuffled != 0 {
			t.Errorf("%d sessions left instances in service after the %s", *e.Reshuffled, *e.Kind)
		}
	}
	if moved["join"] != 0 || moved["kill"] == 0 || warm["kill"] != 0 || warm["drain"] != moved["drain"] {
		t.Errorf("moved %v, warm %v; want nobody to move by the join, and all of the drain's to be warm", moved, warm)
	}
	jumps, cold := math.Round(*p.JumpRate*float64(turns)), math.Round(*p.ColdJumpRate*float64(turns))
	if int(jumps) != moved["kill"]+moved["drain"] || int(cold) != moved["kill"] {
		t.Errorf("%v jumps, %v of them cold, of %d turns; the events explain %v and %v", jumps, cold, turns, moved["kill"]+moved["drain"], moved["kill"])
	}
	if (*p.PrewarmedTokensUsed > 0) != (moved["drain"] > 0) {
		t.Errorf("%d prewarmed tokens were hit by %d turns that the drain moved", *p.PrewarmedTokensUsed, moved["drain"])
	}
	if moved["drain"] == 0 && turns >= 300 {
		t.Error("nobody came back of those that the drain moved")
	}
}
