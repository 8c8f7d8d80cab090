package routing

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawFleet draws a pool of any states, breakers, weights and loads.
func drawFleet(t *rapid.T) []Instance {
	list := readyFleet(rapid.IntRange(0, 12).Draw(t, "instances"))
	for i := range list {
		in := &list[i]
		in.State = rapid.SampledFrom([]State{Unknown, Warming, Ready, Ready, Ready, Draining, Drained, Suspect, Down, Cordoned}).Draw(t, "state")
		in.Breaker = rapid.SampledFrom([]Breaker{BreakerClosed, BreakerClosed, BreakerOpen, BreakerTrial, BreakerSaturated}).Draw(t, "breaker")
		in.Weight = rapid.SampledFrom([]int{0, 50, 100, 100}).Draw(t, "weight")
		in.RampPercent = rapid.SampledFrom([]int{0, 0, 10}).Draw(t, "ramp")
		in.Load = Load{Running: rapid.IntRange(0, 60).Draw(t, "running"), Waiting: rapid.IntRange(0, 5).Draw(t, "waiting"), Report: 1}
		in.Incarnation = rapid.SampledFrom([]string{"boot", "boot2"}).Draw(t, "incarnation")
	}
	return list
}

func drawPolicy(t *rapid.T) Policy {
	p := DefaultPolicy()
	p.Ring = RingOptions{Points: 16, Slots: 1 << 10}
	p.Bound = drawBound(t)
	p.Panic, p.Shed = rapid.Bool().Draw(t, "panic"), rapid.Bool().Draw(t, "shed")
	p.MaxAge = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "max age")
	return p
}

var drawnIDs = rapid.Custom(func(t *rapid.T) string {
	return fmt.Sprintf("i%d", rapid.IntRange(0, 13).Draw(t, "id"))
})

func drawRequest(t *rapid.T, list []Instance) Request {
	req := Request{
		Key:       rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(t, "key"),
		RequestID: rapid.String().Draw(t, "request id"),
		Exclude:   rapid.SliceOfN(drawnIDs, 0, 3).Draw(t, "exclude"),
		Trials:    rapid.SliceOfN(drawnIDs, 0, 2).Draw(t, "trials"),
		Fallbacks: rapid.IntRange(0, 4).Draw(t, "fallbacks"),
	}
	if rapid.IntRange(0, 3).Draw(t, "restrict") == 0 {
		req.Subset = []string{"192.0.2.1:80"}
		for _, in := range list {
			if rapid.Bool().Draw(t, "in subset") {
				req.Subset = append(req.Subset, in.Address)
			}
		}
	}
	return req
}

func drawRecord(t *rapid.T) Record {
	return Record{
		Exists:      rapid.Bool().Draw(t, "exists"),
		Owner:       rapid.OneOf(rapid.Just(""), drawnIDs).Draw(t, "owner"),
		Incarnation: "boot",
		Lapsed:      rapid.Bool().Draw(t, "lapsed"),
		BoundFor:    time.Duration(rapid.IntRange(0, 200).Draw(t, "minutes")) * time.Minute,
		LastServer:  rapid.OneOf(rapid.Just(""), drawnIDs).Draw(t, "last server"),
	}
}

func permits(req Request, in *Instance) bool {
	return !slices.Contains(req.Exclude, in.ID) && (req.Subset == nil || slices.Contains(req.Subset, in.Address))
}

func TestDecideProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, decideProperties)
}

func FuzzDecide(f *testing.F) { f.Fuzz(rapid.MakeFuzz(decideProperties)) }

// decideProperties holds for any pool, record and request.
func decideProperties(t *rapid.T) {
	list, policy := drawFleet(t), drawPolicy(t)
	req, rec := drawRequest(t, list), drawRecord(t)
	s, err := NewSnapshot(Spec{Version: 7, Policy: policy, Instances: list}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := Decide(s, req, rec)
	checkRestrictions(t, req, d)
	checkState(t, policy, d)

	// A replica that reached the same contents on another way agrees.
	replica := detour(t, s, policy, list)
	if other := Decide(replica, req, rec); !sameDecision(d, other) {
		t.Fatalf("replicas at one version decide %+v and %+v", d, other)
	}
	checkRestrictions(t, req, Degraded(s, req))
	checkHinted(t, s, req, rec, d)
}

// checkHinted holds that what a replica has placed decides only where to put
// sessions without a live binding, among those that may take them and are under
// their bound.
func checkHinted(t *rapid.T, s *Snapshot, req Request, rec Record, d Decision) {
	req.Hinted = (*Hints)(nil).After(s)
	for i := range rapid.IntRange(0, 60).Draw(t, "placed before") {
		before := Request{Key: req.Key, Session: mix(uint64(i))}
		placed := Decide(s, before, Record{})
		req.Hinted.Count(&before, &placed)
	}
	hinted := Decide(s, req, rec)
	checkRestrictions(t, req, hinted)
	checkState(t, s.policy, hinted)
	if rec.live() || req.Key == "" || d.Instance == nil || s.OverBound(d.Instance.ID) {
		if !sameDecision(d, hinted) {
			t.Fatalf("%+v became %+v by what was placed", d, hinted)
		}
	} else if s.OverBound(hinted.Instance.ID) {
		t.Fatalf("%+v, who is over its bound, by what was placed", hinted)
	}
}

func checkRestrictions(t *rapid.T, req Request, d Decision) {
	if (d.Instance == nil) != (d.Reason == ReasonNone) || d.Shed && d.Instance != nil {
		t.Fatalf("instance and reason disagree: %+v", d)
	}
	if d.Instance == nil {
		return
	}
	if !permits(req, d.Instance) {
		t.Fatalf("%s is excluded or outside the subset: %+v", d.Instance.ID, req)
	}
	if d.Trial && !slices.Contains(req.Trials, d.Instance.ID) {
		t.Fatalf("trial of %s without a grant", d.Instance.ID)
	}
	if len(d.Fallbacks) > req.Fallbacks {
		t.Fatalf("%d fallbacks, asked for %d", len(d.Fallbacks), req.Fallbacks)
	}
	seen := map[string]bool{d.Instance.ID: true}
	for _, in := range d.Fallbacks {
		if seen[in.ID] || !permits(req, in) {
			t.Fatalf("fallback %s repeats or is not permitted", in.ID)
		}
		seen[in.ID] = true
	}
}

func checkState(t *rapid.T, policy Policy, d Decision) {
	if d.Instance == nil {
		return
	}
	st, ok := d.Instance.State, false
	switch d.Reason {
	case ReasonBound:
		ok = st.MayServeBound()
	case ReasonPanic:
		ok = st.MayServeInPanic() && policy.Panic
	default:
		ok = st.MayTakeNew() && d.Instance.Weight > 0 && (d.Instance.Breaker == BreakerClosed || d.Trial)
	}
	if !ok {
		t.Fatalf("%s on %+v", d.Reason, d.Instance)
	}
}

// detour builds the same contents from other instances, in another order, with
// the loads last.
func detour(t *rapid.T, like *Snapshot, policy Policy, list []Instance) *Snapshot {
	rotated := slices.Clone(list)
	loads := map[string]Load{}
	for i := range rotated {
		loads[rotated[i].ID] = rotated[i].Load
		rotated[i].Load = Load{Running: 3}
	}
	slices.Reverse(rotated)
	start, err := NewSnapshot(Spec{Policy: policy, Instances: rotated[len(rotated)/2:]}, nil)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := NewSnapshot(Spec{Policy: policy, Instances: rotated}, start)
	if err != nil {
		t.Fatal(err)
	}
	return whole.WithLoads(Loads{Version: like.Version(), ByInstance: loads})
}

func sameDecision(a, b Decision) bool {
	id := func(in *Instance) string {
		if in == nil {
			return ""
		}
		return in.ID
	}
	return id(a.Instance) == id(b.Instance) && a.Reason == b.Reason && a.Jump == b.Jump &&
		a.Previous == b.Previous && a.Trial == b.Trial && a.Shed == b.Shed &&
		slices.EqualFunc(a.Fallbacks, b.Fallbacks, func(x, y *Instance) bool { return x.ID == y.ID })
}
