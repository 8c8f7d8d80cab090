package services_test

import (
	"fmt"
	"slices"
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

// An instance that is shut for new sessions says so in the ring's changes.
func TestRingSaysWhoWasShut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	b.worker("i2")
	b.call("POST", "/v1/instances/i1/cordon", "").want(200)
	eventually(t, "the ring tells of it", func() bool {
		return strings.Contains(string(b.call("GET", "/v1/ring", "").want(200).body), "i1 is cordoned instead of ready")
	})
}
