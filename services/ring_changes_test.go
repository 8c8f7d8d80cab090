package services_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The ring says what its last changes moved, and why.
func TestRingSaysWhatChangedIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 4 {
		b.worker(fmt.Sprintf("i%d", i), `"pool":"p"`)
	}
	b.call("PATCH", "/v1/instances/i0", `{"weight":300}`).want(200)
	b.call("DELETE", "/v1/instances/i3?force=true", "").want(204)
	a := b.call("GET", "/v1/ring?pool=p", "").want(200)
	var last []string
	moved := 0
	for i := 0; a.str(fmt.Sprintf("changes.%d.snapshot_version", i)) != ""; i++ {
		last = append(last, a.str(fmt.Sprintf("changes.%d.why.0", i)))
		if m := a.str(fmt.Sprintf("changes.%d.moved", i)); m != "0" {
			moved++
		}
	}
	if n := len(last); n < 2 || !slices.Contains(last, "i0 weighs 300 instead of 100") || last[n-1] != "i3 left" {
		t.Fatalf("changes: %q\n%s", last, a.body)
	}
	if moved < 2 {
		t.Fatalf("%d changes moved keys: %s", moved, a.body)
	}
	if a.str("members.0.instance") != "i0" || a.str("members.0.weight") != "300" || a.str("members.0.takes_new") != "true" {
		t.Fatalf("members: %s", a.body)
	}
}

// letIn waits until the health lease holder has let instances in, with all their weight.
func (b *bundle) letIn(ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		eventually(b.t, id+" is let in", func() bool {
			return b.metric(fmt.Sprintf("berth_instance_ramp{instance=%q,pool=\"default\"}", id)) == 1
		})
	}
}

// An instance that is shut for new sessions says so in the ring's changes.
func TestRingSaysWhoWasShut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	b.worker("i2")
	b.call("PUT", "/v1/pools/default/policy", `{"ramp":{"over_ms":0,"max_churn_percent":0}}`).want(200)
	b.letIn("i1", "i2")
	b.call("POST", "/v1/instances/i1/cordon", "").want(200)
	for range 3 { // before and after its weight is out of force
		if a := b.call("GET", "/v1/ring", "").want(200); a.str("shares.i1") != "0" || a.str("shares.i2") != "1" || a.str("max_mean") != "1" || a.str("stddev") != "0" {
			t.Errorf("shares: %s", a.body)
		}
	}
	eventually(t, "the ring tells of it", func() bool {
		return strings.Contains(string(b.call("GET", "/v1/ring", "").want(200).body), "i1 is cordoned instead of ready")
	})
}

// Who is suspect takes no new sessions for the time being: the changes say where they
// go, and that they come back.
func TestRingSaysWhoIsSuspect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.call("PUT", "/v1/pools/default/policy", `{"ramp":{"over_ms":0,"max_churn_percent":0}}`).want(200)
	w := b.worker("i1")
	b.worker("i2")
	said := func(what string) (moved float64) {
		t.Helper()
		eventually(t, "the ring says that "+what, func() bool {
			a := b.call("GET", "/v1/ring", "").want(200)
			for i := 0; a.str(fmt.Sprintf("changes.%d.at", i)) != ""; i++ {
				if a.str(fmt.Sprintf("changes.%d.why.0", i)) == what {
					moved, _ = strconv.ParseFloat(a.str(fmt.Sprintf("changes.%d.moved", i)), 64)
					return true
				}
			}
			return false
		})
		return moved
	}
	b.letIn("i1", "i2")
	b.call("PUT", "/v1/instances/i3", fmt.Sprintf(`{"weight":0,"address":%q}`, b.call("GET", "/v1/instances/i1", "").str("address"))).want(200) // which displaces i1
	if moved := said("i1 is suspect instead of ready, at 100 %"); moved < 0.3 || moved > 0.7 {
		t.Errorf("%v of the key space moved", moved)
	}
	if a := b.call("GET", "/v1/ring", "").want(200); a.str("shares.i1") != "0" || a.str("shares.i2") != "1" || a.str("max_mean") != "1" || a.str("members.0.fair") != "0" {
		t.Errorf("with a suspect: %s", a.body)
	}
	w.beat(0)
	if moved := said("i1 is ready instead of suspect, at 100 %"); moved < 0.3 || moved > 0.7 {
		t.Errorf("%v of the key space moved back", moved)
	}
}
