package services_test

import (
	"strconv"
	"strings"
	"testing"
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
