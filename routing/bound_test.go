package routing

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// loaded is a ready fleet with the given running requests.
func loaded(loads ...int) []Instance {
	list := readyFleet(len(loads))
	for i, load := range loads {
		list[i].Load.Running = load
	}
	return list
}

func TestBound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		loads []int
		over  bool // of the first
	}{
		{"one request among idle ones", []int{1, 0, 0, 0, 0, 0, 0, 0}, false},
		{"a gap of two", []int{2, 0}, false},
		{"a gap of three over an idle one", []int{3, 0}, true},
		{"noise at ten", []int{16, 10, 10, 10}, false},
		{"beyond noise at ten", []int{20, 10, 10, 10}, true},
		{"a quarter above a hundred is within noise", []int{128, 100, 100, 100}, false},
		{"a quarter above a thousand", []int{1250, 1000, 1000, 1000}, false},
		{"more than that", []int{1251, 1000, 1000, 1000}, true},
		{"nobody else", []int{900}, false},
		{"everybody equal", []int{50, 50, 50}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := pool(t, loaded(tt.loads...)).OverBound("i0"); got != tt.over {
				t.Errorf("loads %v: over %v, want %v", tt.loads, got, tt.over)
			}
		})
	}
}

// Only instances that may be chosen count for the mean: a full one that drains
// does not make the others look idle.
func TestBoundCountsOnlyWhoMayBeChosen(t *testing.T) {
	t.Parallel()
	list := loaded(12, 10, 500, 500)
	list[2].State, list[3].Breaker = Draining, BreakerOpen
	s := pool(t, list)
	for id, want := range map[string]bool{"i0": false, "i1": false, "i2": true, "i3": true} {
		if s.OverBound(id) != want {
			t.Errorf("%s over %v, want %v", id, !want, want)
		}
	}
	list = loaded(40, 10, 0, 0)
	list[2].State, list[3].Weight = Down, 0
	if !pool(t, list).OverBound("i0") {
		t.Error("40 against 10 is within the bound")
	}
}

// Twice the weight may carry twice the load.
func TestBoundIsWeighted(t *testing.T) {
	t.Parallel()
	list := loaded(80, 40, 40)
	list[0].Weight = 200
	if s := pool(t, list); s.OverBound("i0") || s.OverBound("i1") {
		t.Error("loads in proportion to weights are over the bound")
	}
	list[0].Weight = 50
	if !pool(t, list).OverBound("i0") {
		t.Error("half the weight with twice the load is within the bound")
	}
	list[0].Weight, list[0].RampPercent = 200, 25
	if !pool(t, list).OverBound("i0") {
		t.Error("the ramp does not lower the bound")
	}
}

// Taken over all instances, the mean leaves the bound of a small pool out of
// reach: R13's four requests against none stay below 2 + 3·√2 = 6.2. The mean
// of the others tells the two apart, and lets R14's single request stay.
func TestOwnLoadWouldHideOverload(t *testing.T) {
	t.Parallel()
	mean := (4.0 + 0.0) / 2
	if 4.0 > max(1.25*mean, mean+3*math.Sqrt(mean)) {
		t.Error("four against none is over the bound of the mean of both")
	}
	if !pool(t, loaded(4, 0)).OverBound("i0") {
		t.Error("four against none is within the bound")
	}
	if pool(t, loaded(1, 0, 0, 0, 0, 0, 0, 0)).OverBound("i0") {
		t.Error("one against none is over the bound")
	}
}

// drawBound draws bounds around the default.
func drawBound(t *rapid.T) Bound {
	return Bound{
		Percent: rapid.IntRange(100, 300).Draw(t, "percent"),
		Gap:     rapid.IntRange(0, 10).Draw(t, "gap"),
		Noise:   rapid.IntRange(0, 5).Draw(t, "noise"),
	}
}

// floatOver is the bound as DESIGN writes it, in floating point. Close calls,
// which the rounding of either side decides, report close.
func floatOver(b Bound, load, fair float64) (over, close bool) {
	limit := max(fair*float64(b.Percent)/100, fair+float64(b.Noise)*math.Sqrt(fair), fair+float64(b.Gap))
	return load > limit, math.Abs(load-limit) < 0.01*float64(b.Noise+b.Percent+1)/100
}

func TestBoundMatchesItsFormula(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := DefaultPolicy()
		policy.Bound = drawBound(t)
		n := rapid.IntRange(1, 6).Draw(t, "instances")
		list := readyFleet(n)
		for i := range list {
			list[i].Load.Running = rapid.IntRange(0, 200).Draw(t, "load")
			list[i].Weight = rapid.SampledFrom([]int{1, 50, 100, 300}).Draw(t, "weight")
		}
		s, err := NewSnapshot(Spec{Policy: policy, Instances: list}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, in := range list {
			load, weight := 0.0, 0.0
			for j, other := range list {
				if i != j {
					load, weight = load+float64(other.Load.Running), weight+float64(other.Weight)
				}
			}
			want, close := false, false
			if n > 1 {
				want, close = floatOver(policy.Bound, float64(in.Load.Running), load*float64(in.Weight)/weight)
			}
			if got := s.OverBound(in.ID); got != want && !close {
				t.Fatalf("%+v over %v, want %v", in, got, want)
			}
		}
	})
}

// Whatever instances report, somebody of the eligible is under the bound, and
// nothing overflows.
func TestBoundSurvivesAbsurdLoads(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := readyFleet(rapid.IntRange(1, 20).Draw(t, "instances"))
		for i := range list {
			absurd := rapid.OneOf(rapid.Int(), rapid.SampledFrom([]int{math.MinInt, 0, maxInFlight, math.MaxInt}))
			list[i].Load = Load{Running: absurd.Draw(t, "running"), Waiting: absurd.Draw(t, "waiting")}
			list[i].Weight = rapid.SampledFrom([]int{1, 100, MaxWeight}).Draw(t, "weight")
		}
		policy := DefaultPolicy()
		policy.Ring.Points = 1
		policy.Bound = drawBound(t)
		s, err := NewSnapshot(Spec{Policy: policy, Instances: list}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for in := range s.Instances() {
			if n := in.Load.InFlight(); n < 0 || n > maxInFlight {
				t.Fatalf("%+v counts as %d", in.Load, n)
			}
		}
		if s.roomy.empty() {
			t.Fatal("all are over a bound that their own mean sets")
		}
	})
}

// A share beyond all measure is the highest there is.
func TestFairShareSaturates(t *testing.T) {
	t.Parallel()
	if got := (crowd{load: 1 << 50, weight: 1}).fairMilli(0, 100*MaxWeight, false); got != maxFairMilli {
		t.Errorf("fair share %d, want %d", got, uint64(maxFairMilli))
	}
}
