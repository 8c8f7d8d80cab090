package services_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Case R28: instances that a cancelled drain gives back ramp, also where they had been
// registered together with those who stayed: that rollout is over.
func TestInstancesThatAreGivenBackRamp(t *testing.T) {
	t.Parallel()
	const opening = 2 * time.Second
	b := setup(t, quick)
	b.call("PUT", "/v1/pools/default/policy", fmt.Sprintf(`{"ramp":{"opening_ms":%d}}`, opening.Milliseconds())).want(200)
	for _, id := range []string{"e1", "e2", "e3", "e4"} {
		b.worker(id)
	}
	percents := func() (whole, all int) {
		t.Helper()
		a := b.call("GET", "/v1/snapshot", "").want(200)
		for _, i := range []string{"0", "1", "2", "3"} {
			if a.str("instances."+i+".state") == "ready" {
				all++
			}
			if a.str("instances."+i+".ramp_percent") == "100" {
				whole++
			}
		}
		return whole, all
	}
	eventually(t, "all are in whole", func() bool { whole, all := percents(); return whole == 4 && all == 4 })
	began := time.Now()
	eventually(t, "the pool is open", func() bool { return time.Since(began) > opening+time.Second })
	job := b.call("POST", "/v1/drains", `{"instances":["e1","e2","e3"],"mode":"linger"}`).want(202).str("id")
	eventually(t, "they take nothing new", func() bool { whole, all := percents(); return whole == 1 && all == 1 })
	b.call("POST", "/v1/jobs/"+job+"/cancel", "").want(202)
	ready := 0
	eventually(t, "they are back", func() bool {
		whole, all := percents()
		if whole > 1 {
			t.Fatalf("%d are whole, of %d that are ready", whole, all)
		}
		if all == 4 {
			ready++
		}
		return ready > 20
	})
	eventually(t, "they ramp", func() bool {
		return strings.Contains(string(b.call("GET", "/v1/ring", "").want(200).body), `"ramp_percent":10`)
	})
}

// A weight that an operator, or a worker, raises is a join of the difference: at no
// moment, on no replica, does it take more of the key space than joins may.
func TestARaisedWeightIsPacedFromTheFirstMoment(t *testing.T) {
	t.Parallel()
	const opening = time.Second
	a, b := two(t, quick)
	a.call("PUT", "/v1/pools/default/policy", fmt.Sprintf(`{"ramp":{"opening_ms":%d}}`, opening.Milliseconds())).want(200)
	for _, id := range []string{"e1", "e2", "e3"} {
		a.worker(id)
	}
	inForce := func(b *bundle) int {
		t.Helper()
		s := b.call("GET", "/v1/snapshot", "").want(200)
		weight, err := strconv.Atoi(s.str("instances.0.weight"))
		percent, err2 := strconv.Atoi(s.str("instances.0.ramp_percent"))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return weight * percent / 100
	}
	eventually(t, "all are in whole", func() bool {
		return inForce(a) == 100 && inForce(b) == 100 && strings.Count(string(a.call("GET", "/v1/snapshot", "").body), `"ramp_percent":100`) == 3
	})
	began := time.Now()
	eventually(t, "the pool is open", func() bool { return time.Since(began) > opening+time.Second })
	a.call("PATCH", "/v1/instances/e1", `{"weight":1000}`).want(200)
	raised := false
	looks := 0
	eventually(t, "the ramp has begun on both", func() bool {
		for _, process := range []*bundle{a, b} {
			got := inForce(process)
			if got > 200 { // a tenth of the key space more, at most: 100 of 300 become 152 of 352
				t.Fatalf("%d of 1000 are in force at once", got)
			}
			raised = raised || got > 100
		}
		looks++
		return raised && looks > 20
	})
}
