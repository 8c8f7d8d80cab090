package routing

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// with returns a copy of the list in which edit changed one instance.
func with(list []Instance, id string, edit func(*Instance)) []Instance {
	out := append([]Instance(nil), list...)
	for i := range out {
		if out[i].ID == id {
			edit(&out[i])
		}
	}
	return out
}

func state(st State) func(*Instance) { return func(in *Instance) { in.State = st } }

// after builds the snapshot that follows another.
func after(t testing.TB, prev *Snapshot, list []Instance) *Snapshot {
	t.Helper()
	s, err := NewSnapshot(Spec{Version: prev.Version() + 1, Policy: prev.Policy(), Instances: list}, prev)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// R01: when a pod went away its sessions failed, and a modulo hash moved
// everybody else's too.
func TestR01DeathMovesOnlyItsOwnSessions(t *testing.T) {
	t.Parallel()
	list := readyFleet(4)
	s := pool(t, list)
	owned := map[string]Record{}
	for i := range 1000 {
		key := fmt.Sprintf("session-%d", i)
		owned[key] = bind(Decide(s, Request{Key: key}, Record{}).Instance)
	}
	s = after(t, s, with(list, "i2", state(Down)))
	moved := 0
	for key, rec := range owned {
		d := Decide(s, Request{Key: key}, rec)
		switch {
		case rec.Owner != "i2":
			if d.Reason != ReasonBound || d.Instance.ID != rec.Owner || d.Jump {
				t.Fatalf("%s of %s: %+v", key, rec.Owner, d)
			}
		case d.Reason != ReasonFailover || d.Instance.ID == "i2" || !d.Jump || d.Previous != "i2":
			t.Fatalf("%s of the dead: %+v", key, d)
		default:
			moved++
		}
	}
	if moved < 200 || moved > 300 {
		t.Errorf("%d sessions moved, want about 250", moved)
	}
}

// R02: scaling from one to two lost half of the live sessions.
func TestR02ScalingMovesNoLiveSession(t *testing.T) {
	t.Parallel()
	list := readyFleet(2)
	list[1].RampPercent = 10
	s := after(t, pool(t, list[:1]), list)
	for i := range 200 {
		d := Decide(s, Request{Key: fmt.Sprintf("live-%d", i)}, bind(&list[0]))
		if d.Reason != ReasonBound || d.Instance.ID != "i0" || d.Jump {
			t.Fatalf("session %d: %+v", i, d)
		}
	}
	newcomers := 0
	const n = 20_000
	for i := range n {
		if Decide(s, Request{Key: fmt.Sprintf("new-%d", i)}, Record{}).Instance.ID == "i1" {
			newcomers++
		}
	}
	if share := float64(newcomers) / n; math.Abs(share-10.0/110) > 0.3*10/110 {
		t.Errorf("the newcomer takes %.3f of the new sessions, want its ramp share %.3f ± 30 %%", share, 10.0/110)
	}
}

// R12: keys went back to a worker as soon as it recovered.
func TestR12NobodyJumpsBack(t *testing.T) {
	t.Parallel()
	list := readyFleet(3)
	s := pool(t, list)
	key := keyOwnedBy(t, s, "i0")
	rec, jumps := bind(&list[0]), 0
	// serve routes a turn; the chosen instance claims the session and serves it.
	serve := func() Decision {
		d := Decide(s, Request{Key: key}, rec)
		if d.Jump {
			jumps++
		}
		rec = bind(d.Instance)
		return d
	}
	s = after(t, s, with(list, "i0", state(Down)))
	second := serve().Instance.ID
	s = after(t, s, list)
	for range 20 {
		if d := serve(); d.Instance.ID != second || d.Reason != ReasonBound {
			t.Fatalf("after recovery: %+v", d)
		}
	}
	if jumps != 1 {
		t.Errorf("%d jumps, want 1", jumps)
	}
}

// R13: a few heavy keys kept one worker busy while the other idled.
func TestR13LongRequestsSpill(t *testing.T) {
	t.Parallel()
	s := pool(t, loaded(4, 0))
	d := Decide(s, Request{Key: keyOwnedBy(t, s, "i0")}, Record{})
	if d.Instance.ID != "i1" || d.Reason != ReasonOverBound {
		t.Errorf("a new session of the busy instance: %+v", d)
	}
	// One after the other, at least one of the four already goes elsewhere.
	list, spilled := loaded(0, 0), 0
	for range 4 {
		d := Decide(pool(t, list), Request{Key: keyOwnedBy(t, s, "i0")}, Record{})
		list = with(list, d.Instance.ID, func(in *Instance) { in.Load.Running++ })
		if d.Reason == ReasonOverBound {
			spilled++
		}
	}
	if spilled == 0 {
		t.Error("four long requests of one owner all stayed on it")
	}
}

// R14: bounded loads spilled at tiny loads.
func TestR14TinyLoadsDoNotSpill(t *testing.T) {
	t.Parallel()
	s := pool(t, loaded(1, 0, 0, 0, 0, 0, 0, 0))
	key := keyOwnedBy(t, s, "i0")
	if d := Decide(s, Request{Key: key}, Record{}); d.Instance.ID != "i0" || d.Reason != ReasonNew {
		t.Errorf("new: %+v", d)
	}
	if d := Decide(s, Request{Key: key}, bind(s.Lookup("i0"))); d.Instance.ID != "i0" || d.Reason != ReasonBound {
		t.Errorf("bound: %+v", d)
	}
}

// R09: with most instances dead, traffic still went to them. With all of them dead
// there is nobody, unless the policy asks for panic.
func TestR09NoHintToTheDead(t *testing.T) {
	t.Parallel()
	list := with(with(readyFleet(3), "i0", state(Down)), "i1", state(Down))
	s := pool(t, list)
	for i := range 500 {
		for _, rec := range []Record{{}, bind(&list[0]), bind(&list[2])} {
			if d := Decide(s, Request{Key: fmt.Sprint(i), Fallbacks: 2}, rec); d.Instance.ID != "i2" || len(d.Fallbacks) != 0 {
				t.Fatalf("%+v", d)
			}
		}
	}
	list[2].State = Down
	if d := Decide(after(t, s, list), Request{Key: "k"}, bind(&list[2])); d.Instance != nil || d.Reason != ReasonNone {
		t.Errorf("all dead: %+v", d)
	}
	policy := s.Policy()
	policy.Panic = true
	if d := Decide(mustSnapshot(t, Spec{Policy: policy, Instances: list}), Request{Key: "k"}, bind(&list[2])); d.Instance.ID != "i2" || d.Reason != ReasonPanic {
		t.Errorf("all dead, with panic: %+v", d)
	}
}

// R18: sessions stayed pinned to a replaced worker for ever. What Berth calls
// incarnation_changed there is the reason replaced.
func TestR18NewIncarnationReplaces(t *testing.T) {
	t.Parallel()
	list := readyFleet(3)
	s := pool(t, list)
	key := keyOwnedBy(t, s, "i0")
	old := bind(&list[0])
	s = after(t, s, with(list, "i0", func(in *Instance) { in.Incarnation, in.Address = "boot2", "10.9.9.9:8000" }))
	d := Decide(s, Request{Key: key}, old)
	if d.Reason != ReasonReplaced || d.Instance.ID != "i0" || d.Instance.Address != "10.9.9.9:8000" || d.Jump {
		t.Errorf("the same id is the walk's first: %+v", d)
	}
	if d := Decide(s, Request{Key: keyOwnedBy(t, s, "i1")}, old); d.Reason != ReasonReplaced || d.Instance.ID != "i1" || !d.Jump {
		t.Errorf("another is the walk's first: %+v", d)
	}
}

// R35: IPv6 without brackets made a proxy refuse the endpoint.
func TestR35IPv6IsBracketed(t *testing.T) {
	t.Parallel()
	list := readyFleet(2)
	list[0].Address, list[1].Address = "[fd00:0:0::8]:8000", "[fd00::9]:8000"
	s := pool(t, list)
	d := Decide(s, Request{Key: keyOwnedBy(t, s, "i0"), Fallbacks: 1}, Record{})
	if d.Instance.Address != "[fd00::8]:8000" || d.Fallbacks[0].Address != "[fd00::9]:8000" {
		t.Errorf("addresses %s, %s", d.Instance.Address, d.Fallbacks[0].Address)
	}
	// A subset names endpoints however they are written.
	d = Decide(s, Request{Key: "k", Subset: []string{"[fd00:0::0:9]:8000"}}, Record{})
	if d.Instance == nil || d.Instance.ID != "i1" {
		t.Errorf("subset by another spelling: %+v", d)
	}
}

func TestCanonicalAddress(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"10.0.0.1:8000":            "10.0.0.1:8000",
		"[fd00::8]:8000":           "[fd00::8]:8000",
		"[FD00:0:0:0:0:0:0:8]:80":  "[fd00::8]:80",
		"[::ffff:10.0.0.1]:8000":   "10.0.0.1:8000",
		"[fe80::1%eth0]:8000":      "[fe80::1%eth0]:8000",
		"fd00::8:8000":             "",
		"fd00::8":                  "",
		"worker-1:8000":            "",
		"10.0.0.1":                 "",
		"10.0.0.1:65536":           "",
		"010.0.0.1:80":             "",
		"10.0.0.1:8000\r\nx: evil": "",
		"":                         "",
	}
	for in, want := range tests {
		got, err := CanonicalAddress(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

// Fallbacks follow the walk and name nobody twice, nobody excluded and nobody
// on trial.
func TestFallbacksFollowTheWalk(t *testing.T) {
	t.Parallel()
	list := with(readyFleet(6), "i4", state(Suspect))
	list = with(list, "i5", func(in *Instance) { in.Breaker = BreakerTrial })
	s := pool(t, list)
	req := Request{Key: "some session", Exclude: []string{"i1"}, Trials: []string{"i5"}, Fallbacks: 9}
	var want []string
	for _, id := range walkIDs(s.Ring(), req.Key) {
		if id == "i0" || id == "i2" || id == "i3" {
			want = append(want, id)
		}
	}
	var got []string
	for _, in := range Decide(s, req, bind(&list[4])).Fallbacks {
		got = append(got, in.ID)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("fallbacks of a bound session %v, want %v", got, want)
	}
	req.Trials, req.Fallbacks = nil, 1
	d := Decide(s, req, Record{})
	if d.Instance.ID != want[0] || len(d.Fallbacks) != 1 || d.Fallbacks[0].ID != want[1] {
		t.Errorf("new session on %s with %v, want %v", d.Instance.ID, d.Fallbacks, want[:2])
	}
}

// A trial is only for the request that was granted it, and is told.
func TestTrialNeedsAGrant(t *testing.T) {
	t.Parallel()
	list := with(readyFleet(3), "i0", func(in *Instance) { in.Breaker = BreakerTrial })
	s := pool(t, list)
	key := keyOwnedBy(t, s, "i0")
	aged := bind(&list[0])
	aged.BoundFor = time.Hour
	for name, tt := range map[string]struct {
		rec     Record
		trials  []string
		on      string
		reason  Reason
		isTrial bool
	}{
		"new, not granted":         {Record{}, nil, "", ReasonNew, false},
		"new, granted":             {Record{}, []string{"i0"}, "i0", ReasonNew, true},
		"aged, not granted":        {aged, []string{"i1"}, "", ReasonBreaker, false},
		"aged, granted":            {aged, []string{"i0"}, "i0", ReasonBound, true},
		"fresh, not granted":       {bind(&list[0]), nil, "i0", ReasonBound, false},
		"fresh, granted":           {bind(&list[0]), []string{"i0"}, "i0", ReasonBound, true},
		"granted to somebody else": {Record{}, []string{"i0-"}, "", ReasonNew, false},
	} {
		d := Decide(s, Request{Key: key, Trials: tt.trials}, tt.rec)
		on := d.Instance.ID == "i0"
		if on != (tt.on == "i0") || d.Reason != tt.reason || d.Trial != tt.isTrial {
			t.Errorf("%s: %s, %s, trial %v", name, d.Instance.ID, d.Reason, d.Trial)
		}
	}
}

// Without a maximum age the oldest binding stays on the busiest owner.
func TestMaxAgeIsOffByDefault(t *testing.T) {
	t.Parallel()
	s := pool(t, loaded(900, 0, 0))
	rec := bind(s.Lookup("i0"))
	rec.BoundFor = 1000 * time.Hour
	if d := Decide(s, Request{Key: "k"}, rec); d.Reason != ReasonBound || d.Instance.ID != "i0" {
		t.Errorf("off: %+v", d)
	}
	policy := s.Policy()
	policy.MaxAge = time.Hour
	s = mustSnapshot(t, Spec{Policy: policy, Instances: loaded(900, 0, 0)})
	if d := Decide(s, Request{Key: "k"}, rec); d.Reason != ReasonBreaker || d.Instance.ID == "i0" {
		t.Errorf("an hour: %+v", d)
	}
}

// A planned move keeps telling the jump until a turn is served elsewhere.
func TestJumpCountsFromTheLastServer(t *testing.T) {
	t.Parallel()
	list := readyFleet(3)
	s := pool(t, list)
	rec := bind(&list[1])
	for last, jump := range map[string]bool{"i0": true, "i1": false, "": false, "gone": true} {
		rec.LastServer = last
		d := Decide(s, Request{Key: "k"}, rec)
		if d.Jump != jump || jump && d.Previous != last || !jump && d.Previous != "" {
			t.Errorf("last server %q: jump %v, previous %q", last, d.Jump, d.Previous)
		}
	}
	if d := Decide(s, Request{Key: "k"}, Record{Owner: "i1", LastServer: "i0"}); d.Jump {
		t.Error("a session without a record jumped")
	}
}

// Without a record every replica names the same instance, however loaded.
func TestDegradedNamesTheRingOwner(t *testing.T) {
	t.Parallel()
	s := pool(t, loaded(900, 0, 0))
	key := keyOwnedBy(t, s, "i0")
	if d := Degraded(s, Request{Key: key}); d.Instance.ID != "i0" || d.Reason != ReasonNew || d.Jump {
		t.Errorf("ring owner: %+v", d)
	}
	if in := s.Owner(key); in.ID != "i0" {
		t.Errorf("owner %s", in.ID)
	}
	next := walkIDs(s.Ring(), key)[1]
	if d := Degraded(s, Request{Key: key, Exclude: []string{"i0"}}); d.Instance.ID != next {
		t.Errorf("owner excluded: %s, want %s", d.Instance.ID, next)
	}
	if d := Degraded(s, Request{RequestID: "r"}); d.Reason != ReasonStateless {
		t.Errorf("without a session: %+v", d)
	}
	s = after(t, s, with(with(with(loaded(0, 0, 0), "i0", state(Down)), "i1", state(Down)), "i2", state(Down)))
	if d := Degraded(s, Request{Key: key}); d.Instance != nil || d.Reason != ReasonNone || s.Owner(key) != nil {
		t.Errorf("nobody eligible: %+v", d)
	}
}

// Requests without a session spread by weight, and away from load.
func TestStatelessSpreads(t *testing.T) {
	t.Parallel()
	count := func(s *Snapshot) map[string]int {
		served := map[string]int{}
		for i := range 9000 {
			served[Decide(s, Request{RequestID: fmt.Sprintf("request-%d", i)}, Record{}).Instance.ID]++
		}
		return served
	}
	for id, n := range count(pool(t, readyFleet(3))) {
		if n < 2700 || n > 3300 {
			t.Errorf("%s serves %d of 9000 among equals", id, n)
		}
	}
	if n := count(pool(t, loaded(8, 1, 1)))["i0"]; n > 0 {
		t.Errorf("the busiest of three serves %d", n)
	}
}
