package routing

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// heldBinding draws a live binding that holds, of an owner that may serve it, with a
// request that may go there. A breaker that is not closed is borne until min_stick.
func heldBinding(t *rapid.T, policy *Policy, list []Instance) (Request, Record) {
	owner := &list[rapid.IntRange(0, len(list)-1).Draw(t, "owner")]
	owner.State = rapid.SampledFrom([]State{Ready, Ready, Suspect, Cordoned, Draining}).Draw(t, "state of the owner")
	rec := bind(owner)
	if owner.Breaker == BreakerClosed || rapid.Bool().Draw(t, "closed") {
		owner.Breaker = BreakerClosed
		rec.BoundFor = time.Duration(rapid.SampledFrom([]int{0, 60, 61, 200, 6000}).Draw(t, "minutes")) * time.Minute
	} else {
		rec.BoundFor = policy.MinStick - time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds of min_stick left"))*time.Second
	}
	rec.LastServer = rapid.OneOf(rapid.Just(""), drawnIDs).Draw(t, "last server")
	req := drawRequest(t, list)
	req.Key = rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key of the session")
	if !permits(req, owner) {
		req.Exclude, req.Subset = nil, nil
	}
	return req, rec
}

// loadTable gives the owner that load, and the others a little, or a few of them so
// much that they are over their bound too.
func loadTable(t *rapid.T, list []Instance, owner string, load int) Loads {
	table := Loads{Version: 8, LoadVersion: 8, ByInstance: map[string]Load{}}
	for i := range list {
		other := rapid.OneOf(rapid.IntRange(0, 9), rapid.IntRange(0, 9), rapid.IntRange(0, 9), rapid.IntRange(100, 20_000))
		table.ByInstance[list[i].ID] = Load{Running: other.Draw(t, "others' load")}
	}
	table.ByInstance[owner] = Load{Running: load}
	return table
}

// However the loads change, a live binding stays: over the bound as well, unless the
// policy sets a maximum age and the binding is older. Then it goes to somebody who is
// under the bound, or stays too.
func TestOtherLoadsMoveNoLiveBinding(t *testing.T) {
	t.Parallel()
	var drawn, over, othersOver, mayLeave, left int
	rapid.Check(t, func(t *rapid.T) {
		list := readyFleet(rapid.IntRange(2, 12).Draw(t, "instances"))
		for i := range list {
			in := &list[i]
			in.State = rapid.SampledFrom([]State{Ready, Ready, Ready, Suspect, Down, Draining}).Draw(t, "state")
			in.Breaker = rapid.SampledFrom([]Breaker{BreakerClosed, BreakerClosed, BreakerClosed, BreakerOpen, BreakerSaturated}).Draw(t, "breaker")
		}
		policy := drawPolicy(t)
		policy.MaxAge = rapid.SampledFrom([]time.Duration{0, time.Hour, time.Hour}).Draw(t, "max age")
		req, rec := heldBinding(t, &policy, list)
		s, err := NewSnapshot(Spec{Version: 7, Policy: policy, Instances: list}, nil)
		if err != nil {
			t.Fatal(err)
		}
		idle := Decide(s, req, rec)
		if idle.Reason != ReasonBound || idle.Instance.ID != rec.Owner {
			t.Fatalf("without any load %s does not keep its binding: %+v", rec.Owner, idle)
		}
		// So few that all leave who may, or so many that they leave by lot.
		load := rapid.SampledFrom([]int{shedFreely, 100, 1000, 10_000}).Draw(t, "load of the owner")
		s = s.WithLoads(loadTable(t, list, rec.Owner, load))
		d := Decide(s, req, rec)
		drawn++
		aged := policy.MaxAge > 0 && rec.BoundFor > policy.MaxAge
		if s.OverBound(rec.Owner) {
			over++
		}
		if slices.ContainsFunc(list, func(in Instance) bool { return in.ID != rec.Owner && s.Eligible(in.ID) && s.OverBound(in.ID) }) {
			othersOver++
		}
		if !aged || !s.OverBound(rec.Owner) {
			if !sameDecision(d, idle) {
				t.Fatalf("loads alone moved a binding of %v: %+v became %+v", rec.BoundFor, idle, d)
			}
			return
		}
		mayLeave++
		var room space
		_, roomy := s.choices(&req, &room)
		stays := d.Instance.ID == rec.Owner && d.Reason == ReasonBound
		switch {
		case stays && load <= shedFreely && !roomy.empty():
			t.Fatalf("a binding of %v stays on one that is over its bound by a few: %+v", rec.BoundFor, d)
		case !stays && (d.Reason != ReasonBreaker || !roomy.has(s.find(d.Instance.ID))):
			t.Fatalf("a binding of %v leaves one that is over its bound for %+v", rec.BoundFor, d)
		case !stays:
			left++
		}
	})
	t.Logf("of %d owners %d were over their bound, beside %d others; of %d old bindings %d left", drawn, over, othersOver, mayLeave, left)
	if drawn >= 100 && (4*over < drawn || 10*othersOver < drawn || 25*mayLeave < drawn || left == 0) {
		t.Errorf("the draws show too little: of %d owners %d over their bound, beside %d others, of %d old bindings %d left", drawn, over, othersOver, mayLeave, left)
	}
}
