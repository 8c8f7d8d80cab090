package routing_test

import (
	"fmt"
	"sync/atomic"

	"berth/routing"
)

// A service holds the pool's snapshot behind a pointer, reads the session's
// record and decides once per request.
func Example() {
	instances := []routing.Instance{
		{ID: "i1", Incarnation: "a1", Address: "10.0.0.1:8000", Weight: 100, State: routing.Ready},
		{ID: "i2", Incarnation: "b1", Address: "10.0.0.2:8000", Weight: 100, State: routing.Ready},
		{ID: "i3", Incarnation: "c1", Address: "[fd00::3]:8000", Weight: 100, State: routing.Ready},
	}
	var pool atomic.Pointer[routing.Snapshot]
	publish := func(version uint64) {
		next, err := routing.NewSnapshot(routing.Spec{
			Version: version, Policy: routing.DefaultPolicy(), Instances: instances,
		}, pool.Load())
		if err != nil {
			fmt.Println(err)
			return
		}
		pool.Store(next)
	}
	decide := func(rec routing.Record) routing.Decision {
		d := routing.Decide(pool.Load(), routing.Request{Key: "conversation-42"}, rec)
		fmt.Printf("%s at %s: %s, jump %v\n", d.Instance.ID, d.Instance.Address, d.Reason, d.Jump)
		return d
	}

	publish(1)
	d := decide(routing.Record{}) // a first turn
	rec := routing.Record{Exists: true, Owner: d.Instance.ID, Incarnation: d.Instance.Incarnation}
	decide(rec) // the next one stays

	for i := range instances {
		if instances[i].ID == rec.Owner {
			instances[i].State = routing.Down
		}
	}
	publish(2)
	d = decide(rec) // its owner is dead
	rec.Owner, rec.Incarnation = d.Instance.ID, d.Instance.Incarnation

	for i := range instances {
		instances[i].State = routing.Ready
	}
	publish(3)
	decide(rec) // recovery moves nobody back

	// Output:
	// i3 at [fd00::3]:8000: new, jump false
	// i3 at [fd00::3]:8000: bound, jump false
	// i1 at 10.0.0.1:8000: failover, jump true
	// i1 at 10.0.0.1:8000: bound, jump false
}

// A drain places its sessions against one snapshot and counts what it plans.
func ExampleTally() {
	var instances []routing.Instance
	for i := range 4 {
		instances = append(instances, routing.Instance{
			ID: fmt.Sprintf("i%d", i), Address: fmt.Sprintf("10.0.0.%d:8000", i+1), Weight: 100, State: routing.Ready,
		})
	}
	instances[0].State = routing.Draining
	s, err := routing.NewSnapshot(routing.Spec{Policy: routing.DefaultPolicy(), Instances: instances}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	old := func(in *routing.Instance) bool { return in.ID == "i3" } // the previous release
	plan := routing.NewTally(s, "i0")
	for _, session := range []string{"a", "b", "c"} {
		to, ok := plan.Place(session, 1, old)
		if !ok {
			fmt.Println("no target")
			return
		}
		if err := plan.Add(to.Instance.ID, 1); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(session, "moves to", to.Instance.ID)
	}
	// Output:
	// a moves to i1
	// b moves to i2
	// c moves to i2
}
