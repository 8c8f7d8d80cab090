package simulate

import (
	"fmt"
	"testing"
	"time"

	"berth/routing"
)

// A key stands in for every hash of its slot: the ring walks alike from both.
func TestStandInsWalkAlike(t *testing.T) {
	t.Parallel()
	members := make([]routing.Member, 30)
	for i := range members {
		members[i] = routing.Member{ID: fmt.Sprintf("i%d", i), Weight: 50 + i}
	}
	for _, o := range []routing.RingOptions{{}, {Slots: 1 << 10, CapPercent: 105}, {Slots: 1 << 13, Points: 64}} {
		ring, err := routing.NewRing(o, members)
		if err != nil {
			t.Fatal(err)
		}
		names, err := newStandIns(o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(2000) {
			hash := mix(i)
			a, b := ring.WalkHash(hash), ring.Walk(names.key(hash))
			for {
				x, more := a.Next()
				y, also := b.Next()
				if x != y || more != also {
					t.Fatalf("%+v: the walk of %x goes to %d, its stand-in's to %d", o, hash, x, y)
				}
				if !more {
					break
				}
			}
		}
	}
}

// fleet is n instances with the sessions of each where the ring puts them.
func fleet(t testing.TB, n, sessions int) *Fleet {
	t.Helper()
	f := new(Fleet)
	var members []routing.Member
	for i := range n {
		id := fmt.Sprintf("worker-%d", i)
		f.Replicas = append(f.Replicas, Replica{ID: id, Weight: 100, State: routing.Ready, RampPercent: 100, MaxRunning: 100})
		members = append(members, routing.Member{ID: id, Weight: 100})
	}
	ring, err := routing.NewRing(routing.RingOptions{}, members)
	if err != nil {
		t.Fatal(err)
	}
	for i := range sessions {
		hash := mix(uint64(i))
		walk := ring.WalkHash(hash)
		owner, _ := walk.Next()
		f.Sessions = append(f.Sessions, Stored{
			Hash: hash, Owner: ring.ID(owner), Live: true, Turns: 2, Tokens: 1500,
			Age: 20 * time.Minute, Idle: time.Duration(i%300) * time.Second, Bound: 20 * time.Minute,
		})
	}
	return f
}

// The sessions of a live fleet keep their places, and go on as often as ones
// that were idle as long would.
func TestFleetGoesOn(t *testing.T) {
	t.Parallel()
	sc := Default()
	sc.Duration = 3 * time.Minute
	f := fleet(t, 6, 3000)
	f.Replicas[5].State = routing.Cordoned
	r, err := RunFleet(t.Context(), with(t, sc, "1m:kill:worker-2"), f, []string{Modulo}, func(string, int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, s := range f.Sessions {
		if s.Owner == "worker-2" {
			held++
		}
	}
	e := r.Events[0]
	if e.Bound != held || e.MovedSessions != held || e.To["worker-5"] != 0 || e.From["worker-2"] != e.LiveJumps {
		t.Errorf("of %d sessions: %+v", held, e)
	}
	if r.HitRate < 0.9*r.IdealHitRate || r.Turns == 0 {
		t.Errorf("hit rate %.3f of %.3f in %d turns: prompts should be where the sessions are", r.HitRate, r.IdealHitRate, r.Turns)
	}
	if r.Others[0].Turns == 0 {
		t.Error("the policy beside it was asked nothing")
	}
}
