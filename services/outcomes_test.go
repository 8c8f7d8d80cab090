package services_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"berth/statestore"
)

// outcome reports one, and returns how many sessions it bound.
func (b *bundle) outcome(session, handle, instance, result string) string {
	b.t.Helper()
	body := fmt.Sprintf(`{"outcomes":[{"session":%q,"handle":%q,"instance":%q,"result":%q}]}`, session, handle, instance, result)
	a := b.call("POST", "/v1/outcomes", body).want(202)
	if a.str("accepted") != "1" {
		b.t.Fatalf("outcome: %s", a.body)
	}
	return a.str("bound")
}

// Case R20: a session belongs to whoever served it, not to whom the hint named; a
// failure binds nobody, and the next hint leaves out who failed.
func TestAReportBindsWhoServed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w1, w2 := b.worker("i1"), b.worker("i2")
	hint := b.route("s").want(200)
	hinted, other := w1, w2
	if hint.str("instance") == w2.id {
		hinted, other = w2, w1
	}
	h := hint.str("handle")
	for _, failure := range []string{"connect", "reset", "5xx", "timeout", "busy", "client"} {
		if b.outcome("s", h, hinted.id, failure) != "0" {
			t.Fatalf("%s binds", failure)
		}
	}
	for _, told := range []string{"", "&exclude=" + hinted.id + ":connect"} {
		if a := b.route("s", told).want(200); a.str("instance") != other.id {
			t.Fatalf("hint after failures: %s", a.body)
		}
	}
	if b.outcome("s", h, other.id, "ok") != "1" {
		t.Fatal("the report of who served binds nobody")
	}
	a := b.route("s").want(200)
	if a.str("instance") != other.id || a.str("reason") != "bound" || a.str("new") != "true" || a.str("epoch") == "0" {
		t.Fatalf("route: %s", a.body)
	}
	if b.outcome("s", h, hinted.id, "ok") != "0" {
		t.Fatal("a report of an older epoch binds")
	}
	// Turns decide over reports.
	first := other.append("s", "op", a.str("handle"), `1`).want(200)
	for _, handle := range []string{h, a.str("handle"), first.str("handle"), b.route("s").want(200).str("handle")} {
		if b.outcome("s", handle, hinted.id, "ok") != "0" {
			t.Fatal("a report binds a session that has turns")
		}
	}
}

func TestAReportThatBindsNothingStillCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	b.worker("x1", `"pool":"x"`)
	good := b.route("s").want(200).str("handle")
	for name, c := range map[string][3]string{
		"no handle":               {"s", "", "i1"},
		"no session":              {"", good, "i1"},
		"a forged handle":         {"s", "forged", "i1"},
		"a handle far too long":   {"s", strings.Repeat("h", 10_000), "i1"},
		"another session's":       {"other", good, "i1"},
		"an unknown instance":     {"s", good, "nobody"},
		"another pool's instance": {"s", good, "x1"},
	} {
		if b.outcome(c[0], c[1], c[2], "ok") != "0" {
			t.Errorf("%s binds", name)
		}
	}
	if a := b.route("s").want(200); a.str("epoch") != "0" {
		t.Fatalf("bound: %s", a.body)
	}
	metrics := string(b.call("GET", "/metrics", "").want(200).body)
	if !strings.Contains(metrics, `berth_outcomes_total{result="ok"} 7`) {
		t.Error("the reports were not counted")
	}
}

// What the store does not bind is no reason to refuse the report: repeated, it
// would count twice.
func TestReportsSurviveTheStore(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t)
	b.worker("i1")
	h := b.route("s").want(200).str("handle")
	store.fail(func(ctx context.Context, call string) error {
		if call == "bind" {
			return statestore.ErrUnavailable
		}
		return nil
	})
	if b.outcome("s", h, "i1", "ok") != "0" {
		t.Fatal("bound without the store")
	}
	store.fail(nil)
	if b.outcome("s", h, "i1", "ok") != "1" {
		t.Fatal("not bound afterwards")
	}
}

func TestManyOutcomesComeAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	list := make([]string, 200)
	for i := range list {
		id := fmt.Sprint("s", i)
		list[i] = fmt.Sprintf(`{"session":%q,"handle":%q,"instance":"i1","result":"ok","ttft_ms":12.5}`, id, b.route(id).want(200).str("handle"))
	}
	a := b.call("POST", "/v1/outcomes", `{"outcomes":[`+strings.Join(list, ",")+`]}`).want(202)
	if a.str("accepted") != "200" || a.str("bound") != "200" {
		t.Fatalf("%s", a.body)
	}
	many := strings.Repeat(`{"instance":"i1","result":"ok"},`, 1000) + `{"instance":"i1","result":"ok"}`
	b.call("POST", "/v1/outcomes", `{"outcomes":[`+many+`]}`).refused(422, "invalid")
}

// Usage is the engine's own object, in three dialects; numbers that no request has
// do not spoil the counters.
func TestUsageIsCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("told", `"reports_cached":true`)
	b.worker("untold")
	usages := []struct{ instance, usage string }{
		{"untold", `{"prompt_tokens":100,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":40}}`},
		{"untold", `{"input_tokens":200,"input_tokens_details":{"cached_tokens":50},"output_tokens":1}`},
		{"untold", `{"input_tokens":10,"cache_read_input_tokens":80,"cache_creation_input_tokens":10}`},
		{"told", `{"prompt_tokens":1000}`},
		{"untold", `{"prompt_tokens":5000}`}, // unknown: it never tells what was cached
		{"told", `{"prompt_tokens":-7}`},
		{"told", `{"prompt_tokens":1e300}`},
		{"told", `{"prompt_tokens":"100"}`},
		{"told", `{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":1e18}}`},
		{"told", `{}`},
	}
	for _, u := range usages {
		b.call("POST", "/v1/outcomes", fmt.Sprintf(`{"outcomes":[{"instance":%q,"result":"ok","usage":%s}]}`, u.instance, u.usage)).want(202)
	}
	metrics := string(b.call("GET", "/metrics", "").want(200).body)
	for _, want := range []string{
		"berth_kv_tokens_prompted_total 1401\n", "berth_kv_tokens_cached_total 170\n", "berth_kv_requests_unknown_total 1\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("not %s", want)
		}
	}
	b.call("POST", "/v1/outcomes", `{"outcomes":[{"instance":"told","result":"ok","usage":[1]}]}`).refused(422, "invalid")
}
