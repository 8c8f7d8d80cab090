package routing

import (
	"fmt"
	"math"
	"testing"
)

// Shares of a snapshot are those of the instances that a new session is placed on, and
// its movement is what of that changed, whatever the ring says of those who take none.
func TestSharesAreOfThoseWhoTakeNew(t *testing.T) {
	t.Parallel()
	list := readyFleet(8)
	all := pool(t, list)
	shut := map[string]func(*Instance){
		"i0": state(Draining), "i1": state(Cordoned), "i2": state(Suspect), "i3": func(in *Instance) { in.Breaker = BreakerOpen },
		"i4": func(in *Instance) { in.Weight = 0 },
	}
	for id, edit := range shut {
		list = with(list, id, edit)
	}
	some := pool(t, list)
	sum := 0.0
	byID := map[string]Share{}
	for _, s := range some.Shares() {
		byID[s.ID] = s
		if sum += s.Share; (shut[s.ID] != nil) != (s == Share{ID: s.ID}) {
			t.Errorf("share %+v", s)
		}
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("shares add up to %v", sum)
	}
	const keys = 100_000
	placed := map[string]int{}
	moved := 0
	for i := range keys {
		key := fmt.Sprintf("k%d", i)
		to := some.Owner(key).ID
		placed[to]++
		if to != all.Owner(key).ID {
			moved++
		}
	}
	for id, n := range placed {
		if got := float64(n) / keys; math.Abs(got-byID[id].Share) > 0.01 {
			t.Errorf("%s: share %v, and %v of the keys", id, byID[id].Share, got)
		}
	}
	m := all.Movement(some)
	if got := float64(moved) / keys; math.Abs(got-m.Moved) > 0.01 || math.Abs(m.Ideal-0.625) > 1e-9 || m.Avoidable != 0 {
		t.Errorf("movement %+v, and %v of the keys", m, got)
	}
	if back := some.Movement(all); back.Moved != m.Moved || back.Avoidable != 0 {
		t.Errorf("the way back: %+v", back)
	}
	if s := some.Spread(); s.MaxMean > 1.2 || s.MinMean < 0.8 || s.StdDev > 0.15 {
		t.Errorf("spread of three: %+v", s)
	}
	if !all.PlacesAs(all.WithLoads(Loads{})) || all.PlacesAs(some) || all.PlacesAs(after(t, all, with(readyFleet(8), "i5", state(Suspect)))) {
		t.Error("who places alike is not told")
	}
}

// Where nobody takes new sessions there is nothing to share, and nothing moves.
func TestSharesOfNobody(t *testing.T) {
	t.Parallel()
	some := pool(t, readyFleet(2))
	none := after(t, some, with(with(readyFleet(2), "i0", state(Suspect)), "i1", state(Draining)))
	if none.Spread() != (Spread{}) || none.Movement(some) != (Movement{}) || some.Movement(none) != (Movement{}) {
		t.Errorf("spread %+v, movement %+v", none.Spread(), some.Movement(none))
	}
	for _, s := range none.Shares() {
		if s != (Share{ID: s.ID}) {
			t.Errorf("share %+v", s)
		}
	}
}
