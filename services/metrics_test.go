package services_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"berth/statestore"
)

// metric reads a series of /metrics as it is written there; one that is not there
// is 0.
func (b *bundle) metric(series string) float64 {
	b.t.Helper()
	v, _ := b.hasMetric(series)
	return v
}

func (b *bundle) hasMetric(series string) (float64, bool) {
	b.t.Helper()
	for line := range strings.Lines(string(b.call("GET", "/metrics", "").want(200).body)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				b.t.Fatal(err)
			}
			return v, true
		}
	}
	return 0, false
}

// moved fails unless a series grew by that much while f ran.
func (b *bundle) moved(series string, by float64, f func()) {
	b.t.Helper()
	before := b.metric(series)
	f()
	if got := b.metric(series) - before; got != by {
		b.t.Errorf("%s grew by %v, want %v", series, got, by)
	}
}

// Turns are counted as they are stored, and loads as they end.
func TestMetricsOfTurnsAndLoads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	h := b.route("s").want(200).str("handle")
	const turns, whole = "berth_turns_total", `berth_loads_total{end="whole"}`
	body := fmt.Sprintf(`{"op":"two","handle":%q,"instance":"i1","incarnation":%q,"turns":[{"value":1},{"value":2}]}`, h, w.incarnation)
	b.moved(turns, 2, func() { h = w.call("POST", "/v1/sessions/s/turns", body).want(200).str("handle") })
	b.moved(turns, 0, func() {
		w.call("POST", "/v1/sessions/s/turns", body).want(200)
		w.append("s", "late", b.routeHandle("s", statestore.Floor{}), `3`).refused(409, "not_owner")
		w.replace("s", "whole", h, `"all in one"`).want(200)
	})
	b.moved(whole, 1, func() { b.call("GET", "/v1/sessions/s", "").want(200) })
	b.moved(whole, 0, func() {
		b.call("GET", "/v1/sessions/nobody", "").refused(404, "not_found")
		w.recover("s", "", "read").want(200)
	})
}

// A jump is a session that another instance takes over than the one that served it.
func TestMetricsOfJumpsByCause(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner, other := b.open("s", b.worker("i1"), b.worker("i2"))
	jumps := func(cause string) string { return `berth_cross_instance_jumps_total{cause="` + cause + `"}` }
	claim := func(who, from *worker) string {
		h := b.route("s", "&exclude="+from.id+":busy").want(200).str("handle")
		return who.recover("s", h, "claim").want(200).str("handle")
	}
	var h string
	b.moved(jumps("rerouted"), 1, func() { h = claim(other, owner) })
	b.moved(jumps("rerouted"), 0, func() { other.recover("s", h, "claim").want(200) }) // it has it already
	h = other.append("s", "served", h, `1`).want(200).str("handle")
	b.moved(jumps("released"), 1, func() {
		other.finish("s", h).want(200)
		h = claim(owner, other)
		h = owner.append("s", "served-again", h, `1`).want(200).str("handle")
	})
	owner = b.worker(owner.id) // another boot of it
	b.moved(jumps("failover"), 0, func() { h = claim(owner, other) })
	h = owner.append("s", "served-by-the-next-boot", h, `1`).want(200).str("handle")
	b.worker(owner.id)
	b.moved(jumps("failover"), 1, func() { claim(other, owner) })
	for cause, want := range map[string]float64{"rerouted": 1, "released": 1, "failover": 1, "lost": 0} {
		if n := b.metric(jumps(cause)); n != want {
			t.Errorf("%v jumps %s, want %v", n, cause, want)
		}
	}
}

// What an engine's heartbeats tell of its KV cache wins over its requests' usage.
func TestMetricsOfKVTokensThatHeartbeatsTell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("quiet")
	w := b.worker("told")
	beat := fmt.Sprintf(`{"incarnation":%q,"ready":true,"running":0,"waiting":0,"prefix_queries":1000,"prefix_hits":600}`, w.incarnation)
	b.call("POST", "/v1/instances/told/heartbeat", beat).want(200)
	b.call("GET", "/v1/instances", "").want(200) // sees the fleet
	usage := func(id string) {
		b.call("POST", "/v1/outcomes", `{"outcomes":[{"instance":"`+id+`","result":"ok","usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":40}}}]}`).want(202)
	}
	b.moved("berth_kv_tokens_prompted_total", 0, func() { usage("told") })
	b.moved("berth_kv_tokens_cached_total", 40, func() { usage("quiet") })
	const of = `{instance="told",pool="default"}`
	if n, m := b.metric("berth_instance_kv_tokens_prompted_total"+of), b.metric("berth_instance_kv_tokens_cached_total"+of); n != 1000 || m != 600 {
		t.Errorf("%v prompted and %v cached, want 1000 and 600", n, m)
	}
	if n, shown := b.hasMetric(`berth_instance_kv_tokens_prompted_total{instance="quiet",pool="default"}`); shown {
		t.Errorf("%v prompted by one that tells nothing", n)
	}
}

// Points are those of all members of a pool's ring.
func TestMetricsOfTheRing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const points = `berth_ring_points{pool="default"}`
	b.worker("i1")
	eventually(t, "one instance is in the ring", func() bool { return b.metric(points) == 512 })
	b.worker("i2", `"weight":50`)
	eventually(t, "half of another one is", func() bool { return b.metric(points) == 512+256 })
}

// Calls of the store are counted as they are made, and their errors by what they are;
// a refusal is none.
func TestMetricsOfTheStore(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t)
	w := b.worker("i1")
	h := b.route("s").want(200).str("handle")
	const appends, failed = `berth_store_call_duration_seconds_count{call="append"}`, `berth_store_errors_total{call="append",error="unavailable"}`
	b.moved(appends, 2, func() {
		w.append("s", "first", h, `1`).want(200)
		w.append("s", "second", h, `2`).refused(409, "not_owner")
	})
	b.moved(`berth_store_call_duration_seconds_count{call="load_turns"}`, 1, func() { b.call("GET", "/v1/sessions/s", "").want(200) })
	if n := b.metric(failed); n != 0 {
		t.Fatalf("%v errors", n)
	}
	store.fail(away)
	b.moved(failed, 1, func() {
		b.moved(appends, 1, func() { w.append("s", "third", h, `3`).refused(503, "store_unavailable") })
	})
	store.fail(nil)
	b.moved(failed, 0, func() { w.append("s", "third", b.route("s").str("handle"), `3`).want(200) })
}
