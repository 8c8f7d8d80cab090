package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"berth/cmd/berth/internal/simulate"
	"berth/statestore"
)

// drains begins a drain, or another job, and returns its id.
func (b *liveBerth) drains(path string, request map[string]any) string {
	b.t.Helper()
	return b.call("POST", path, request)["id"].(string)
}

// beats lets every worker say that nothing runs.
func (b *liveBerth) beats() {
	b.t.Helper()
	for id, incarnation := range b.incarnations {
		b.call("POST", "/v1/instances/"+id+"/heartbeat", map[string]any{"incarnation": incarnation, "ready": true, "running": 0, "waiting": 0})
	}
}

// ends waits for the end of a job.
func (b *liveBerth) ends(job, state string) {
	b.t.Helper()
	for range 120 {
		b.beats()
		got := b.call("GET", "/v1/jobs/"+job+"?wait=1s", nil)["state"].(string)
		if statestore.JobState(got).Ended() {
			if got != state {
				b.t.Fatalf("job %s ended %s, want %s", job, got, state)
			}
			return
		}
	}
	b.t.Fatalf("job %s does not end", job)
}

func (b *liveBerth) check(job string) (c simulate.Check, doc string) {
	b.t.Helper()
	doc, err := runSimulate(b.t, "--from", b.remote.URL, "--check", job, "--json")
	if err != nil {
		b.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(doc), &c); err != nil {
		b.t.Fatal(err)
	}
	return c, doc
}

// holds are the sessions whose owner is the instance.
func (b *liveBerth) holds(instance string) (ids []string) {
	b.t.Helper()
	for i := range 60 {
		id := fmt.Sprintf("chat-%d", i)
		if b.call("GET", "/v1/sessions/"+id, nil)["owner"].(map[string]any)["instance"] == instance {
			ids = append(ids, id)
		}
	}
	return ids
}

// claims lets an instance take a session over.
func (b *liveBerth) claims(instance, session, exclude string) {
	b.t.Helper()
	hint := b.call("GET", "/route?session="+session+"&exclude="+exclude, nil)
	b.call("POST", "/v1/recover", map[string]any{
		"session": session, "handle": hint["handle"], "instance": instance, "incarnation": b.incarnations[instance], "mode": "claim", "turns": "none",
	})
}

// A drain of passive workers at a slow pace is checked, and the check says the same
// after sessions came back, were moved on and deleted, the instance was drained again,
// and the fleet has changed.
func TestCheckOfADrainThatWasMade(t *testing.T) {
	t.Parallel()
	b := startBerth(t)
	held := b.holds("i1")
	b.beats()
	request := map[string]any{"instances": []string{"i1"}, "in_flight_grace_ms": 500, "pace": map[string]any{"sessions_per_s": 10}}
	job := b.drains("/v1/drains", request)
	b.ends(job, "succeeded")
	check, before := b.check(job)
	n := int64(len(held))
	same := func(what string, f simulate.CheckedFigure, predicted, actual int64) {
		t.Helper()
		if f.Predicted == nil || f.Actual == nil || *f.Predicted != predicted || *f.Actual != actual {
			t.Errorf("%s is not %d predicted and %d in fact: %s", what, predicted, actual, before)
		}
	}
	same("moved", check.Moved, n, n)
	same("prewarmed", check.Prewarmed, n, 0) // that nobody takes tasks comes out only then
	same("cold", check.Cold, 0, n)
	same("tokens", check.Tokens, 700*n, 700*n)
	same("prewarmed tokens", check.PrewarmedTokens, 700*n, 0)
	same("lapsed", check.Lapsed, 0, 0)
	same("left", check.Left, 0, 0)
	if check.Unanswered != len(held) || check.Misplaced != 0 || len(check.Targets) != 2 || len(check.Unexpected) != 0 {
		t.Errorf("of %d passive moves: %s", n, before)
	}
	for _, target := range check.Targets {
		if target.Predicted != target.Actual || target.Actual == 0 {
			t.Errorf("target %+v", target)
		}
	}
	// After the wait for the first task half a second of the pace is made up for.
	if took := check.TookMS; took.Predicted == nil || *took.Predicted != (n-1)*100 || took.Actual == nil || *took.Actual < *took.Predicted-500 {
		t.Errorf("%d moves at 10 a second: %s", n, before)
	}

	b.call("POST", "/v1/instances/i1/uncordon", nil)
	b.beats()
	for _, id := range held[:4] {
		b.claims("i1", id, "i2,i3")
	}
	if back := b.holds("i1"); len(back) != 4 {
		t.Fatalf("%d sessions came back", len(back))
	}
	b.claims("i3", held[5], "i1,i2")
	if _, err := b.remote.call(t.Context(), "DELETE", "/v1/sessions/"+held[6], nil); err != nil {
		t.Fatal(err)
	}
	request["pace"] = map[string]any{}
	again := b.drains("/v1/drains", request)
	b.ends(again, "succeeded")
	b.call("PATCH", "/v1/instances/i2", map[string]any{"weight": 10})
	b.call("POST", "/v1/instances/i3/cordon", nil)
	if _, after := b.check(job); after != before {
		t.Errorf("the check says something else later:\n%s\nbefore:\n%s", after, before)
	}
	if second, doc := b.check(again); *second.Moved.Actual != 4 || *second.Moved.Predicted != 4 || second.Misplaced != 0 || second.TookMS.Predicted != nil {
		t.Errorf("the second drain, of 4 and without a pace: %s", doc)
	}
	table, err := runSimulate(t, "--from", b.remote.URL, "--check", job)
	for _, want := range []string{
		"a second at most 10 sessions", "sessions moved", "seconds from first to last move", "took no task", "until it is known to poll for nothing",
		"at least 0 of the moved sessions are on another target",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("%v: no %q in\n%s", err, want, table)
		}
	}
}

// What moves nothing, has not ended or was cut off is not checked.
func TestCheckRefusesWhatWasNotPredicted(t *testing.T) {
	t.Parallel()
	b := startBerth(t)
	b.beats()
	refused := func(job, want string) {
		t.Helper()
		if out, err := runSimulate(t, "--from", b.remote.URL, "--check", job); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%v, want an error that says %q\n%s", err, want, out)
		}
	}
	refused("none", "not_found")
	slow := b.drains("/v1/drains", map[string]any{"instances": []string{"i1"}, "in_flight_grace_ms": 0, "pace": map[string]any{"sessions_per_s": 0.01}})
	refused(slow, "wait until it has ended")
	b.call("POST", "/v1/jobs/"+slow+"/cancel", nil)
	b.ends(slow, "cancelled")
	refused(slow, "it was cancelled")
	linger := b.drains("/v1/drains", map[string]any{"instances": []string{"i1"}, "mode": "linger"})
	refused(linger, "linger until they lapse")
	b.call("POST", "/v1/jobs/"+linger+"/cancel", nil)
	b.ends(linger, "cancelled")
	refused(linger, "linger until they lapse")
	detach := b.drains("/v1/drains", map[string]any{"instances": []string{"i1"}, "mode": "detach", "in_flight_grace_ms": 0})
	b.ends(detach, "succeeded")
	refused(detach, "detaches sessions")
	rebalance := b.drains("/v1/rebalances", map[string]any{})
	b.ends(rebalance, "succeeded")
	refused(rebalance, "only drains are checked")
}
