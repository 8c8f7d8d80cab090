package routing_test

import (
	"fmt"
	"sync/atomic"
	"time"

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

// The holder of the health lease judges its fleet once a round, and publishes what
// comes out.
func ExampleWatch() {
	policy := routing.DefaultPolicy()
	watch := routing.NewWatch(routing.DefaultHealthPolicy())
	circuit := routing.NewCircuit(policy.Breaker, routing.BreakerStatus{}, 0)
	ramp := routing.NewRamp(policy.Ramp)

	old, added := routing.Boot{ID: "i1", Incarnation: "a"}, routing.Boot{ID: "i2", Incarnation: "b"}
	health := map[routing.Boot]routing.Health{}
	beats := map[routing.Boot]uint64{old: 1, added: 1}
	percents := map[string]int{"i1": 100, "i2": routing.RampQueued}
	round := func(now time.Duration) {
		beats[added]++ // i1 has stopped to send heartbeats
		var fleet []routing.Sighting
		var members []routing.RampMember
		for _, boot := range []routing.Boot{old, added} {
			fleet = append(fleet, routing.Sighting{Boot: boot, Pool: "default", Beats: beats[boot], Stored: health[boot]})
		}
		for boot, verdict := range watch.Round(now, now, fleet).Verdicts {
			health[boot] = verdict
		}
		states := []routing.State{routing.Healthy: routing.Ready, routing.HealthSuspect: routing.Suspect, routing.HealthDown: routing.Down}
		for _, boot := range []routing.Boot{old, added} {
			members = append(members, routing.RampMember{
				Boot: boot, Weight: 100, Percent: percents[boot.ID], State: states[health[boot]],
			})
		}
		percents = ramp.Step(now, members).Percents
	}
	for s := range 20 {
		now := time.Duration(s) * time.Second
		if s == 3 { // gateways report failures of i2
			for range 5 {
				circuit.Observe(now, routing.OutcomeServer)
			}
		}
		if trial, ok := circuit.Grant(now, "replica-a"); ok {
			fmt.Printf("%2d s: replica-a may send i2 trial %d\n", s, trial.Number)
			circuit.Observe(now, routing.OutcomeOK)
		}
		if round(now); s%6 == 0 {
			fmt.Printf("%2d s: i1 %v at %d %%, i2 %v at %d %%\n", s,
				health[old], percents["i1"], circuit.Status(now).State, percents["i2"])
		}
	}

	// Output:
	//  0 s: i1 healthy at 100 %, i2 closed at 10 %
	//  6 s: i1 suspect at 100 %, i2 open at 10 %
	// 12 s: i1 suspect at 100 %, i2 open at 10 %
	// 18 s: replica-a may send i2 trial 1
	// 18 s: i1 down at 10 %, i2 closed at 20 %
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
