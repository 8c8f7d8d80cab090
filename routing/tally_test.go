package routing

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"
)

// A drain of one of four spreads its sessions over the others and over nobody
// beyond the bound.
func TestTallySpreadsADrain(t *testing.T) {
	t.Parallel()
	list := with(readyFleet(4), "i1", state(Draining))
	s := pool(t, list)
	tally := NewTally(s, "i1")
	placed := map[string]int{}
	for i := range 600 {
		to, ok := tally.Place(fmt.Sprintf("session-%d", i), 1, nil)
		if !ok || !to.Roomy {
			t.Fatalf("session %d: %+v, %v", i, to, ok)
		}
		if err := tally.Add(to.Instance.ID, 1); err != nil {
			t.Fatal(err)
		}
		placed[to.Instance.ID]++
	}
	for _, id := range []string{"i0", "i2", "i3"} {
		if placed[id] < 130 || placed[id] > 270 {
			t.Errorf("%s takes %d of 600", id, placed[id])
		}
	}
	if placed["i1"] != 0 {
		t.Errorf("the source takes %d", placed["i1"])
	}
}

// A source that could still take sessions is left out, and so is its load.
func TestTallyLeavesSourcesOut(t *testing.T) {
	t.Parallel()
	s := pool(t, loaded(20, 20, 0, 0))
	tally := NewTally(s, "i2", "i3", "i3", "stranger")
	if tally.OverBound("i0") || NewTally(s).OverBound("i0") == tally.OverBound("i0") {
		t.Error("the idle sources still count for the mean")
	}
	for i := range 100 {
		if to, ok := tally.Place(fmt.Sprint(i), 1, nil); !ok || to.Instance.ID > "i1" {
			t.Fatalf("placed on a source: %+v", to)
		}
	}
	if _, ok := NewTally(s, "i0", "i1", "i2", "i3").Place("k", 1, nil); ok {
		t.Error("placed although every instance is a source")
	}
}

// Instances to avoid take sessions only when no other has room.
func TestTallyAvoids(t *testing.T) {
	t.Parallel()
	avoid := func(in *Instance) bool { return in.ID != "i0" }
	place := func(loads ...int) Target {
		to, ok := NewTally(pool(t, loaded(loads...))).Place("k", 1, avoid)
		if !ok {
			t.Fatal("nobody")
		}
		return to
	}
	if to := place(0, 0, 0); to.Instance.ID != "i0" || !to.Roomy {
		t.Errorf("with room elsewhere: %+v", to)
	}
	if to := place(50, 0, 0); to.Instance.ID == "i0" || !to.Roomy {
		t.Errorf("without room elsewhere: %+v", to)
	}
	// One session brings more than anybody may carry: all over, and the least
	// loaded of those not avoided is still the one.
	to, _ := NewTally(pool(t, loaded(5, 0, 1))).Place("k", 1000, avoid)
	if to.Instance.ID != "i0" || to.Roomy {
		t.Errorf("all over: %+v", to)
	}
	to, _ = NewTally(pool(t, loaded(5, 4, 1))).Place("k", 1000, nil)
	if to.Instance.ID != "i2" || to.Roomy {
		t.Errorf("all over, none avoided: %+v", to)
	}
}

// What is taken back counts for nothing, and a stranger cannot be counted.
func TestTallyTakesBack(t *testing.T) {
	t.Parallel()
	s := pool(t, loaded(10, 0, 0))
	tally := NewTally(s)
	for _, load := range []int{-4, -4, -100, 108} {
		if err := tally.Add("i0", load); err != nil {
			t.Fatal(err)
		}
	}
	if tally.crowd != s.crowd || tally.OverBound("i0") != s.OverBound("i0") {
		t.Errorf("sums %+v, want %+v", tally.crowd, s.crowd)
	}
	if tally.Add("stranger", 1) == nil {
		t.Error("counted load on a stranger")
	}
}

// A tally with everything planned judges as a snapshot with those loads would.
func TestTallyEqualsASnapshot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := drawPolicy(t)
		list := drawFleet(t)
		s, err := NewSnapshot(Spec{Policy: policy, Instances: list}, nil)
		if err != nil {
			t.Fatal(err)
		}
		tally := NewTally(s)
		loads := map[string]Load{}
		for i := range list {
			planned := rapid.IntRange(0, 30).Draw(t, "planned")
			loads[list[i].ID] = Load{Running: list[i].Load.InFlight() + planned}
			if err := tally.Add(list[i].ID, planned); err != nil {
				t.Fatal(err)
			}
		}
		loadedSnapshot := s.WithLoads(Loads{ByInstance: loads})
		for _, in := range list {
			if tally.OverBound(in.ID) != loadedSnapshot.OverBound(in.ID) {
				t.Fatalf("%s: tally over %v, snapshot over %v", in.ID, tally.OverBound(in.ID), loadedSnapshot.OverBound(in.ID))
			}
		}
		d := Decide(loadedSnapshot, Request{Key: "k"}, Record{})
		to, ok := tally.Place("k", 0, nil)
		if !d.Shed && (ok != (d.Reason != ReasonNone && d.Reason != ReasonPanic) || ok && to.Instance.ID != d.Instance.ID) {
			t.Fatalf("tally places on %+v, a decision on %+v", to, d)
		}
	})
}

// A key and its stored hash walk and place alike.
func TestHashedKeysPlaceAlike(t *testing.T) {
	t.Parallel()
	s := pool(t, loaded(9, 0, 4, 0, 1))
	for i := range 200 {
		key := fmt.Sprintf("key-%d", i)
		var hashed []string
		w := s.Ring().WalkHash(xxhash.Sum64String(key))
		for at, ok := w.Next(); ok; at, ok = w.Next() {
			hashed = append(hashed, s.Ring().ID(at))
		}
		if !slices.Equal(hashed, walkIDs(s.Ring(), key)) {
			t.Fatalf("%s: walks differ", key)
		}
		a, _ := NewTally(s).Place(key, 1, nil)
		if b, _ := NewTally(s).PlaceHash(xxhash.Sum64String(key), 1, nil); a != b {
			t.Fatalf("%s: placed on %+v and %+v", key, a, b)
		}
	}
}
