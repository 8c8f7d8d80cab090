package routing

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// voyage is a fleet that things happen to, and the sessions that live on it.
type voyage struct {
	snap     *Snapshot
	fleet    []Instance
	setbacks map[string]int // how often each instance became one to leave
	relieved int            // sessions that left an instance over its bound
	sessions []*traveller
}

type traveller struct {
	key      string
	rec      Record
	setbacks int // of its owner, when it was bound there
}

// sound reports whether an instance gives its sessions no reason to leave.
func sound(in *Instance) bool { return in.State.MayServeBound() && in.Breaker == BreakerClosed }

// befall lets something happen to the fleet.
func (v *voyage) befall(t *rapid.T) {
	was := map[string]Instance{}
	for _, in := range v.fleet {
		was[in.ID] = in
	}
	if i := rapid.IntRange(0, len(v.fleet)).Draw(t, "instance"); i == len(v.fleet) {
		id := fmt.Sprintf("n%d", len(v.setbacks))
		v.setbacks[id] = 0
		v.fleet = append(v.fleet, Instance{
			ID: id, Incarnation: "boot", Address: fmt.Sprintf("10.1.0.%d:1", len(v.setbacks)), Weight: 100, State: Ready,
			RampPercent: rapid.SampledFrom([]int{RampQueued, 10, 100}).Draw(t, "ramp"),
		})
	} else if in := &v.fleet[i]; rapid.IntRange(0, 9).Draw(t, "leaves") == 0 {
		v.setbacks[in.ID]++
		v.fleet = slices.Delete(v.fleet, i, i+1)
	} else {
		in.State = rapid.SampledFrom([]State{Ready, Ready, Warming, Draining, Drained, Suspect, Down, Cordoned}).Draw(t, "state")
		in.Breaker = rapid.SampledFrom([]Breaker{BreakerClosed, BreakerClosed, BreakerOpen, BreakerTrial, BreakerSaturated}).Draw(t, "breaker")
		in.RampPercent = rapid.SampledFrom([]int{RampQueued, 0, 10, 60}).Draw(t, "ramp")
		in.Weight = rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "weight")
		in.Load.Running = rapid.IntRange(0, 100).Draw(t, "load")
		if rapid.IntRange(0, 5).Draw(t, "reboots") == 0 {
			in.Incarnation += "'"
		}
	}
	for i := range v.fleet {
		in := &v.fleet[i]
		if old, known := was[in.ID]; known && (sound(&old) && !sound(in) || old.Incarnation != in.Incarnation) {
			v.setbacks[in.ID]++
		}
	}
}

// turn routes a turn of a session, and lets whoever is hinted serve and own it.
func (v *voyage) turn(t *rapid.T, s *traveller) {
	d := Decide(v.snap, Request{Key: s.key}, s.rec)
	if d.Instance == nil {
		return
	}
	owner := s.rec.Owner
	if owner != "" && (d.Instance.ID != owner || d.Instance.Incarnation != s.rec.Incarnation) {
		aged := v.snap.policy.MaxAge > 0 && s.rec.BoundFor > v.snap.policy.MaxAge && v.snap.OverBound(owner)
		if aged && d.Reason == ReasonBreaker {
			v.relieved++
		} else if v.setbacks[owner] == s.setbacks {
			t.Fatalf("%s leaves %s for %s (%v), to which nothing happened since it came", s.key, owner, d.Instance.ID, d.Reason)
		}
	} else if owner != "" {
		return
	}
	s.rec, s.setbacks = bind(d.Instance), v.setbacks[d.Instance.ID]
}

// R12, in general: whatever fails, recovers, joins, drains, trips and is reweighted
// in whatever order, a session jumps no more often than that happened to its owner,
// unless the policy sets a maximum age, the binding is older, and its owner is over
// its bound.
func TestSessionsJumpForCauseOnly(t *testing.T) {
	t.Parallel()
	policy := DefaultPolicy()
	policy.Ring = RingOptions{Points: 32, Slots: 1 << 10}
	relieved := 0
	rapid.Check(t, func(t *rapid.T) {
		policy := policy
		policy.MaxAge = rapid.SampledFrom([]time.Duration{0, 2 * time.Minute, 20 * time.Minute}).Draw(t, "max age")
		v := &voyage{fleet: readyFleet(rapid.IntRange(1, 5).Draw(t, "instances")), setbacks: map[string]int{}}
		for _, in := range v.fleet {
			v.setbacks[in.ID] = 0
		}
		for i := range 12 {
			v.sessions = append(v.sessions, &traveller{key: fmt.Sprintf("s%d", i)})
		}
		for version := range rapid.IntRange(1, 40).Draw(t, "events") {
			next, err := NewSnapshot(Spec{Version: uint64(version), Policy: policy, Instances: v.fleet}, v.snap)
			if err != nil {
				t.Fatal(err)
			}
			v.snap = next
			age := time.Duration(rapid.IntRange(0, 300).Draw(t, "age")) * time.Second
			for _, s := range v.sessions {
				s.rec.BoundFor += age
				if rapid.Bool().Draw(t, "turn") {
					v.turn(t, s)
				}
			}
			v.befall(t)
		}
		relieved += v.relieved
	})
	if relieved == 0 {
		t.Error("the draws show too little: no session left an instance over its bound")
	}
}
