package routing

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

// Only ids, weights and ramps make a ring; everything else reuses it.
func TestOnlyMembersRebuildTheRing(t *testing.T) {
	t.Parallel()
	list := readyFleet(5)
	s := pool(t, list)
	tests := map[string]struct {
		edit   func(*Instance)
		reused bool
	}{
		"state":       {state(Down), true},
		"breaker":     {func(in *Instance) { in.Breaker = BreakerOpen }, true},
		"load":        {func(in *Instance) { in.Load.Waiting = 9 }, true},
		"address":     {func(in *Instance) { in.Address = "10.1.1.1:1" }, true},
		"incarnation": {func(in *Instance) { in.Incarnation = "next" }, true},
		"full ramp":   {func(in *Instance) { in.RampPercent = 100 }, true},
		"weight":      {func(in *Instance) { in.Weight = 50 }, false},
		"ramp":        {func(in *Instance) { in.RampPercent = 50 }, false},
		"id":          {func(in *Instance) { in.ID = "other" }, false},
	}
	for name, tt := range tests {
		next := after(t, s, with(list, "i3", tt.edit))
		if (next.Ring() == s.Ring()) != tt.reused {
			t.Errorf("%s: ring reused %v, want %v", name, !tt.reused, tt.reused)
		}
	}
	if next := s.WithLoads(Loads{Version: 9, LoadVersion: 4}); next.Ring() != s.Ring() || next.Version() != 9 || next.LoadVersion() != 4 {
		t.Error("a load table rebuilt the ring or lost its versions")
	}
	policy := s.Policy()
	policy.Ring.CapPercent = 110
	capped, err := NewSnapshot(Spec{Policy: policy, Instances: list}, s)
	if err != nil || capped.Ring() == s.Ring() || capped.Ring().Options().CapPercent != 110 {
		t.Errorf("a cap was not applied: %v", err)
	}
}

// A load table replaces the loads it names and leaves the old snapshot alone.
func TestWithLoads(t *testing.T) {
	t.Parallel()
	s := pool(t, loaded(1, 2, 3))
	next := s.WithLoads(Loads{Version: 2, ByInstance: map[string]Load{"i0": {Running: 40}, "gone": {Running: 1}}})
	if next.Lookup("i0").Load.Running != 40 || next.Lookup("i2").Load.Running != 3 || s.Lookup("i0").Load.Running != 1 {
		t.Error("loads are not as the table says")
	}
	if !next.OverBound("i0") || s.OverBound("i0") || next.OverBound("gone") {
		t.Error("the bound does not follow the loads")
	}
	whole := pool(t, loaded(40, 2, 3))
	if !reflect.DeepEqual(next.takes, whole.takes) || !reflect.DeepEqual(next.roomy, whole.roomy) ||
		!reflect.DeepEqual(next.over, whole.over) || next.crowd != whole.crowd {
		t.Error("a load table and a whole build judge differently")
	}
}

// A snapshot keeps its own copy of what it was built from.
func TestSnapshotIsImmutable(t *testing.T) {
	t.Parallel()
	list := readyFleet(3)
	s := pool(t, list)
	list[0].State, list[0].ID = Down, "renamed"
	if !s.Eligible("i0") || s.Lookup("i0").State != Ready || s.Lookup("renamed") != nil {
		t.Error("editing the list changed the snapshot")
	}
	n := 0
	for in := range s.Instances() {
		if in.ID != fmt.Sprintf("i%d", n) {
			t.Errorf("instance %d is %s", n, in.ID)
		}
		n++
	}
	if n != 3 || s.Len() != 3 {
		t.Errorf("%d instances, Len %d", n, s.Len())
	}
}

// Several ranks of one server share an address; a subset means all of them.
func TestSubsetNamesAllRanksOfAnAddress(t *testing.T) {
	t.Parallel()
	list := readyFleet(6)
	for i := range 3 {
		rank := i
		list[2*i].Address, list[2*i].Rank = "10.7.7.7:8000", &rank
	}
	s := pool(t, list)
	served := map[string]bool{}
	for i := range 300 {
		d := Decide(s, Request{Key: fmt.Sprint(i), Subset: []string{"10.7.7.7:8000"}}, Record{})
		served[d.Instance.ID] = true
		if d.Instance.Rank == nil {
			t.Fatalf("%s is not at the address", d.Instance.ID)
		}
	}
	if len(served) != 3 {
		t.Errorf("ranks served: %v, want three", served)
	}
}

// Data-parallel ranks of one server are instances of their own at one address: each
// fails, is excluded and is told by itself.
func TestRanksOfOneServerAreInstances(t *testing.T) {
	t.Parallel()
	list := readyFleet(4)
	for i := range list {
		rank := i % 2
		list[i].Address, list[i].Rank = fmt.Sprintf("10.7.7.%d:8000", i/2), &rank
	}
	s := pool(t, list)
	key := keyOwnedBy(t, s, "i0")
	d := Decide(s, Request{Key: key, Fallbacks: 3}, Record{})
	if d.Instance.ID != "i0" || *d.Instance.Rank != 0 || len(d.Fallbacks) != 3 {
		t.Errorf("%+v", d)
	}
	only := Request{Key: key, Subset: []string{"10.7.7.0:8000"}, Exclude: []string{"i0"}, Fallbacks: 3}
	if d := Decide(s, only, bind(&list[0])); d.Instance.ID != "i1" || *d.Instance.Rank != 1 || d.Reason != ReasonFailover || len(d.Fallbacks) != 0 {
		t.Errorf("without rank 0: %+v", d)
	}
	broken := after(t, s, with(list, "i0", func(in *Instance) { in.Breaker = BreakerOpen }))
	if d := Decide(broken, only, Record{}); d.Instance.ID != "i1" {
		t.Errorf("rank 0 is broken: %+v", d)
	}
	if d := Decide(after(t, s, with(list, "i0", state(Down))), Request{Key: key}, bind(&list[1])); d.Instance.ID != "i1" || d.Reason != ReasonBound {
		t.Errorf("a session of rank 1, when rank 0 is down: %+v", d)
	}
	// One moves to another address: both addresses mean who is there.
	moved := after(t, s, with(list, "i1", func(in *Instance) { in.Address = "10.7.7.1:8000" }))
	for address, want := range map[string]int{"10.7.7.0:8000": 1, "10.7.7.1:8000": 3} {
		served := map[string]bool{}
		for i := range 300 {
			served[Decide(moved, Request{Key: fmt.Sprint(i), Subset: []string{address}}, Record{}).Instance.ID] = true
		}
		if len(served) != want {
			t.Errorf("%s means %v, want %d instances", address, served, want)
		}
	}
}

// Zones are told and decide nothing.
func TestZonesDecideNothing(t *testing.T) {
	t.Parallel()
	list := readyFleet(6)
	s := pool(t, list)
	for i := range list {
		list[i].Zone = fmt.Sprintf("zone-%d", i%2)
	}
	zoned := after(t, s, list)
	for i := range 1000 {
		req := Request{Key: fmt.Sprint(i), Fallbacks: 2}
		a, b := Decide(s, req, Record{}), Decide(zoned, req, Record{})
		if a.Instance.ID != b.Instance.ID || a.Fallbacks[0].ID != b.Fallbacks[0].ID || b.Instance.Zone == "" {
			t.Fatalf("%+v, with zones %+v", a, b)
		}
	}
}

func TestSnapshotRefusesNonsense(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*Spec){
		"bound below the mean": func(s *Spec) { s.Policy.Bound.Percent = 99 },
		"negative gap":         func(s *Spec) { s.Policy.Bound.Gap = -1 },
		"negative noise":       func(s *Spec) { s.Policy.Bound.Noise = -1 },
		"negative min_stick":   func(s *Spec) { s.Policy.MinStick = -time.Second },
		"negative max_age":     func(s *Spec) { s.Policy.MaxAge = -time.Second },
		"breaker":              func(s *Spec) { s.Policy.Breaker.Open = 0 },
		"ramp":                 func(s *Spec) { s.Policy.Ramp.Steps = 0 },
		"probe":                func(s *Spec) { s.Policy.Probe.Path = "health" },
		"queued below -1":      func(s *Spec) { s.Instances[0].RampPercent = -2 },
		"ring options":         func(s *Spec) { s.Policy.Ring.Slots = 3 },
		"two of one id":        func(s *Spec) { s.Instances[0].ID = "i1" },
		"no id":                func(s *Spec) { s.Instances[0].ID = "" },
		"weight":               func(s *Spec) { s.Instances[0].Weight = -5 },
		"no policy at all":     func(s *Spec) { s.Policy = Policy{} },
	}
	for name, spoil := range tests {
		spec := Spec{Policy: DefaultPolicy(), Instances: readyFleet(3)}
		spoil(&spec)
		if _, err := NewSnapshot(spec, nil); err == nil {
			t.Errorf("%s: was accepted", name)
		}
	}
}

// An empty pool decides too.
func TestEmptyPool(t *testing.T) {
	t.Parallel()
	policy := DefaultPolicy()
	policy.Panic = true
	s := mustSnapshot(t, Spec{Policy: policy})
	rec := Record{Exists: true, Owner: "i0"}
	for _, req := range []Request{{Key: "k"}, {RequestID: "r"}, {Key: "k", Exclude: []string{"i0"}, Subset: []string{}, Trials: []string{"i0"}, Fallbacks: 2}} {
		for _, d := range []Decision{Decide(s, req, Record{}), Decide(s, req, rec), Degraded(s, req)} {
			if d.Instance != nil || d.Reason != ReasonNone {
				t.Errorf("%+v: %+v", req, d)
			}
		}
	}
	if _, ok := NewTally(s).Place("k", 1, nil); ok || s.Owner("k") != nil {
		t.Error("an empty pool placed a session")
	}
}

func TestNamesRoundTrip(t *testing.T) {
	t.Parallel()
	for st := Unknown; st <= Cordoned; st++ {
		var back State
		text, _ := st.MarshalText()
		if err := back.UnmarshalText(text); err != nil || back != st {
			t.Errorf("state %d reads back as %d: %v", st, back, err)
		}
	}
	for br := BreakerClosed; br <= BreakerSaturated; br++ {
		var back Breaker
		text, _ := br.MarshalText()
		if err := back.UnmarshalText(text); err != nil || back != br {
			t.Errorf("breaker %d reads back as %d: %v", br, back, err)
		}
	}
	if _, err := ParseState("Ready"); err == nil {
		t.Error("a name that is not one was read")
	}
	if _, err := ParseBreaker("half open"); err == nil {
		t.Error("a name that is not one was read")
	}
	want := []string{"none", "bound", "new", "lapsed", "failover", "replaced", "over_bound", "breaker", "stateless", "panic"}
	for i, name := range want {
		if got := Reason(i).String(); got != name {
			t.Errorf("reason %d is %q, want %q", i, got, name)
		}
	}
	if len(want) != Reasons || State(99).String() != "invalid(99)" || BreakerTrial.String() != "trial" {
		t.Error("names out of range")
	}
}

// Lookups and decisions allocate nothing, restricted ones neither, at any size
// up to 1,024 instances. Fallbacks and panic do, and are rare.
func TestNoAllocations(t *testing.T) {
	for _, n := range []int{3, 100, 1000} {
		list := readyFleet(n)
		list[1].Breaker = BreakerTrial
		list[2].Breaker = BreakerSaturated
		s := pool(t, list)
		bound := bind(&list[0])
		lapsed, replacedRec, gone, shedding := bound, bound, bound, bind(&list[2])
		shedding.BoundFor = time.Hour
		lapsed.Lapsed, replacedRec.Incarnation, gone.Owner = true, "before", "stranger"
		plain := Request{Key: "0b9f5c1e-session"}
		h := fullOnTheWalk(s, plain.Key, n-1)
		narrow := Request{Key: plain.Key, Exclude: []string{"i0", "i2"}, Trials: []string{"i1"}, Subset: []string{list[1].Address, list[2].Address}}
		runs := map[string]func(){
			"ring owner": func() { s.Ring().Owner(plain.Key) },
			"owner":      func() { s.Owner(plain.Key) },
			"bound":      func() { Decide(s, plain, bound) },
			"new":        func() { Decide(s, plain, Record{}) },
			"lapsed":     func() { Decide(s, plain, lapsed) },
			"replaced":   func() { Decide(s, plain, replacedRec) },
			"failover":   func() { Decide(s, plain, gone) },
			"shed":       func() { Decide(s, plain, shedding) },
			"narrowed":   func() { Decide(s, narrow, bound) },
			"hinted": func() {
				req := Request{Key: plain.Key, Hinted: h}
				d := Decide(s, req, Record{})
				h.Count(&req, &d)
			},
			"stateless": func() { Decide(s, Request{RequestID: "r"}, Record{}) },
			"degraded":  func() { Degraded(s, narrow) },
			"five on the walk": func() {
				w := s.Ring().Walk(plain.Key)
				for range 5 {
					w.Next()
				}
			},
		}
		for name, run := range runs {
			if allocs := testing.AllocsPerRun(100, run); allocs != 0 {
				t.Errorf("N=%d, %s: %v allocations", n, name, allocs)
			}
		}
	}
}

// Who waits to join serves all the same where nobody else may: nobody is there, or
// a request leaves out all who are. Instances of one rollout do not wait at all.
func TestPaceRefusesNobody(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_900_000_000, 0)
	member := func(id string, ramp int, after time.Duration) Instance {
		return Instance{ID: id, Address: "10.0.0.1:80", Weight: 100, State: Ready, RampPercent: ramp, Registered: began.Add(after)}
	}
	build := func(list ...Instance) *Snapshot {
		s, err := NewSnapshot(Spec{Version: 1, Policy: DefaultPolicy(), Instances: list}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	late := DefaultRampPolicy().Opening + time.Second
	s := build(member("old", 100, 0), member("same", RampQueued, time.Second), member("late", RampQueued, late), member("later", RampQueued, late))
	if !s.Eligible("same") || s.Eligible("late") {
		t.Fatalf("of the same rollout %v, later %v", s.Eligible("same"), s.Eligible("late"))
	}
	back := member("same", RampQueued, time.Second)
	back.Returns = true
	if s := build(member("old", 100, 0), back); s.Eligible("same") {
		t.Fatal("one that returns came in with the rollout of before")
	}
	if s := build(back); !s.Eligible("same") {
		t.Fatal("one that returns to nobody waits")
	}
	seen := map[string]int{}
	for i := range 100 {
		req := Request{Key: fmt.Sprint(i), Exclude: []string{"old", "same"}}
		d := Decide(s, req, Record{Exists: true, Owner: "old", Incarnation: "x"})
		if d.Instance == nil || d.Reason != ReasonFailover || !d.Jump {
			t.Fatalf("a failover with only the queued left: %+v", d)
		}
		if again := Decide(s, req, Record{}); again.Instance != d.Instance || again.Reason != ReasonNew {
			t.Fatalf("a new session of the same key: %+v", again)
		}
		if degraded := Degraded(s, req); degraded.Instance != d.Instance {
			t.Fatalf("degraded: %+v", degraded)
		}
		if d := Decide(s, Request{Key: fmt.Sprint(i)}, Record{}); d.Instance.ID == "late" || d.Instance.ID == "later" {
			t.Fatalf("an ordinary session at who waits to join: %+v", d)
		}
		seen[d.Instance.ID]++
	}
	if seen["late"] < 20 || seen["later"] < 20 {
		t.Fatalf("they do not share the work: %v", seen)
	}
}
