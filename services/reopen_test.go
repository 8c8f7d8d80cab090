package services_test

import (
	"fmt"
	"strings"
	"testing"
)

// A drain that has given up leaves its instance closed, with nobody at work on it.
// Uncordon gives it back; while the drain is under way, it names what to cancel.
func TestUncordonAfterADrainGaveUp(t *testing.T) {
	t.Parallel()
	b := setup(t, quick)
	w1, w2 := b.worker("i1"), b.worker("i2")
	b.crowd(3, w1, w2)
	w1.beat(1)
	jobs := func() string {
		a := b.call("GET", "/v1/instances/i1", "").want(200)
		for i := 0; ; i++ {
			if a.str(fmt.Sprintf("because.%d.reason", i)) == "job" {
				return a.str(fmt.Sprintf("because.%d.count", i))
			}
		}
	}
	named := func() string { return b.call("GET", "/v1/instances/i1", "").want(200).str("job") }
	job := b.call("POST", "/v1/drains", `{"instances":["i1"],"mode":"linger","at_deadline":"leave","deadline_ms":600000}`).want(202).str("id")
	if a := b.call("POST", "/v1/instances/i1/uncordon", "").refused(409, "wrong_state"); !strings.Contains(a.str("detail"), job) {
		t.Errorf("refused with %s", a.body)
	}
	if n := jobs(); n != "1" || named() != job {
		t.Errorf("%s jobs drain it, and it names %q", n, named())
	}
	b.call("POST", "/v1/jobs/"+job+"/cancel", "").want(202)
	eventually(t, "it is cancelled", func() bool { return b.call("GET", "/v1/jobs/"+job, "").want(200).str("state") == "cancelled" })
	if w1.beat(1).str("state") != "ready" || named() != "" {
		t.Errorf("it was given back, and names %q", named())
	}
	job = b.call("POST", "/v1/drains", `{"instances":["i1"],"mode":"linger","at_deadline":"leave","deadline_ms":500}`).want(202).str("id")
	b.ended(job, "partial")
	if n := jobs(); n != "0" || named() != job || w1.beat(1).str("state") != "draining" {
		t.Errorf("after the drain gave up %s jobs drain it, and it names %q", n, named())
	}
	if a := b.call("POST", "/v1/instances/i1/uncordon", "").want(200); a.str("state") != "ready" || a.str("job") != "" || named() != "" {
		t.Errorf("uncordon: %s", a.body)
	}
	if a := b.route("new", "&exclude=i2:busy").want(200); a.str("instance") != "i1" {
		t.Errorf("a new session: %s", a.body)
	}
	w1.append("late", "op", handleFor(b, "late", "i1"), `1`).want(200)
	if a := b.call("GET", "/v1/sessions/late", "").want(200); a.str("owner.instance") != "i1" {
		t.Errorf("after it was given back: %s", a.body)
	}
}
