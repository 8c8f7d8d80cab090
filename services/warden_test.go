package services

import (
	"testing"
	"time"

	"berth/statestore"
)

func TestWhoFallsSilentIsSuspectAndThenDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 3)
		w.rounds(3)
		w.silent["i2"] = true
		w.rounds(5)
		w.want("after 5 s", w.instance("i2").Health, statestore.Healthy)
		w.rounds(2)
		w.want("after 7 s", w.instance("i2").Health, statestore.Suspect)
		w.rounds(9)
		w.want("after 16 s", w.instance("i2").Health, statestore.Down)
		w.want("the others", w.instance("i1").Health, statestore.Healthy)
		delete(w.silent, "i2")
		w.rounds(2)
		w.want("heard of again", w.instance("i2").Health, statestore.Healthy)
	})
}

// A warden that lost the lease and has it back is a new one: what it saw before
// must not heal whom another found down.
func TestAWardenThatComesBackHealsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 2)
		w.rounds(3)
		w.silent["i1"] = true
		w.store.token = 3
		w.instance("i1").Judge(statestore.Verdict{Health: statestore.Down}, w.store.now()) // by the holder of token 2
		w.rounds(2)
		w.want("back again", w.instance("i1").Health, statestore.Down)
		delete(w.silent, "i1")
		w.rounds(2)
		w.want("after a heartbeat", w.instance("i1").Health, statestore.Healthy)
	})
}

// Case T18: a stall of Berth or its store convicts nobody, though nobody's heartbeat
// came through meanwhile, and is told once.
func TestAStallConvictsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 20)
		w.rounds(3)
		for i := range w.store.view.Instances {
			w.silent[w.store.view.Instances[i].ID] = true
		}
		time.Sleep(45 * time.Second) // stopped, and the store with it
		w.rounds(3)
		for i := range w.store.view.Instances {
			w.want("health after a stall", w.store.view.Instances[i].Health, statestore.Healthy)
		}
		w.want("stalls told", w.counter("berth_self_stalls_total"), 1.0)
		for id := range w.silent {
			if id != "i1" {
				delete(w.silent, id)
			}
		}
		w.rounds(15)
		w.want("who stays silent", w.instance("i1").Health, statestore.Down)
		w.want("who is heard of", w.instance("i2").Health, statestore.Healthy)
	})
}

// Cases R33 and R34: what fails is left out, and let back by exactly one trial at a
// time, which the replicas get in turn.
func TestABreakerOpensAndIsTried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 2)
		w.rounds(2)
		w.tell("p1", "i1", "client", 50)
		w.tell("p2", "i1", "busy", 50)
		w.rounds(1)
		w.want("after client errors and load", w.instance("i1").Breaker, statestore.BreakerClosed)
		w.tell("p1", "i1", "5xx", 3)
		w.tell("p2", "i1", "connect", 2)
		w.rounds(1)
		w.want("after five failures told to two replicas", w.instance("i1").Breaker, statestore.BreakerOpen)
		w.want("nobody may try it", w.instance("i1").TrialTo, "")
		w.rounds(14)
		w.want("after 14 s", w.instance("i1").Breaker, statestore.BreakerOpen)
		w.rounds(2)
		w.want("after 16 s", w.instance("i1").Breaker, statestore.BreakerTrial)
		w.want("who may try", w.instance("i1").TrialTo, "p1")
		w.tell("p1", "i1", "client", 1)
		w.rounds(1)
		w.want("a request that was at fault itself", w.instance("i1").Breaker, statestore.BreakerTrial)
		w.rounds(30)
		w.want("the slot after no outcome came", w.instance("i1").TrialTo, "p2")
		w.want("the trial", w.instance("i1").Trial, uint64(2))
		w.tell("p2", "i1", "ok", 1)
		w.rounds(1)
		w.want("after it was served", w.instance("i1").Breaker, statestore.BreakerClosed)
	})
}

// A breaker outlives the holder that opened it.
func TestTheNextHolderGoesOnWithABreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 2)
		w.rounds(2)
		w.tell("p1", "i1", "reset", 9)
		w.rounds(1)
		w.store.token++
		w.rounds(10)
		w.want("for another holder", w.instance("i1").Breaker, statestore.BreakerOpen)
		w.rounds(7)
		w.want("in time", w.instance("i1").Breaker, statestore.BreakerTrial)
	})
}

// Nobody is forgiven because another holder judges: who flapped has to be well for
// long before it returns.
func TestTheNextHolderGoesOnWithFlapping(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 3)
		w.rounds(1)
		for range 3 {
			w.silent["i1"] = true
			w.rounds(8)
			w.want("silent", w.instance("i1").Health, statestore.Suspect)
			delete(w.silent, "i1")
			w.rounds(40)
			w.want("well for long", w.instance("i1").Health, statestore.Healthy)
		}
		w.want("told", w.instance("i1").Flaps, 3)
		w.store.token++
		w.silent["i1"] = true
		w.rounds(8)
		delete(w.silent, "i1")
		w.rounds(35)
		w.want("under another holder, well for 35 s", w.instance("i1").Health, statestore.Suspect)
		w.rounds(10)
		w.want("well for 45 s", w.instance("i1").Health, statestore.Healthy)
		w.rounds(300)
		w.want("after five minutes of health", w.instance("i1").Flaps, 0)
	})
}

// What joins have moved counts for the whole minute, whoever lets them in.
func TestTheNextHolderGoesOnWithARamp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 4)
		w.rounds(20)
		w.join("new")
		writes := w.store.view.Version
		for i := range 59 {
			if i%20 == 19 {
				w.store.token++
			}
			w.rounds(1)
		}
		// 44 % of a weight beside four whole ones is a tenth of the key space.
		if got := w.instance("new").RampPercent; got < 40 || got > 44 {
			t.Fatalf("after a minute with three holders: %d %% of its weight, want 40 to 44", got)
		}
		w.rounds(600)
		w.want("in the end", w.instance("new").RampPercent, 100)
		w.want("what it gained lately", w.instance("new").Gained, 0)
		if n := w.store.view.Version - writes; n > 30 {
			t.Errorf("%d versions of the fleet for one that joins", n)
		}
	})
}

func TestSaturationOpensABreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 2)
		w.rounds(1)
		w.instance("i1").LastBeat.KVUsage = 0.97
		w.rounds(4)
		w.want("after three saturated reports", w.instance("i1").Breaker, statestore.BreakerSaturated)
		w.instance("i1").LastBeat.KVUsage = 0.5
		w.rounds(17)
		w.want("calm again", w.instance("i1").Breaker, statestore.BreakerClosed)
	})
}

// The first instances of a pool are whole at once; who joins later ramps.
func TestWhoJoinsRamps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 10)
		w.rounds(2)
		w.want("the first", w.instance("i7").RampPercent, 100)
		w.rounds(20)
		w.join("new")
		w.want("before anybody let it in", w.instance("new").RampPercent, statestore.RampQueued)
		w.rounds(1)
		w.want("at first", w.instance("new").RampPercent, 10)
		w.ramps("new", 80)
	})
}

// A policy is parsed once, and the warden follows one that the fleet's image has not
// seen yet. One that nobody can read leaves the last.
func TestPoliciesAreParsedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 2)
		fleet := w.warden.server.fleet
		put := func(version uint64, doc string) {
			w.store.view.Policies = map[string]statestore.Policy{"p": {Version: version, Doc: []byte(doc)}}
			w.store.view.Version++
			w.store.view.Members++
		}
		look := func() (seen, known *poolPolicy) {
			return w.warden.policies(&w.store.view)["p"], fleet.now().pools["p"].policy
		}
		refresh := func() {
			if err := fleet.refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		put(1, `{"min_stick_ms":1000}`)
		refresh()
		seen, first := look()
		w.want("the policy is the image's", seen, first)
		w.join("i3")
		w.store.view.Members++
		refresh()
		_, known := look()
		w.want("with another member it is still", known, first)
		for version, doc := range map[uint64]string{1: `{"min_stick_ms":3000}`, 2: `{"min_stick_ms":3000}`} {
			put(version, doc)
			seen, _ = look()
			w.want("before the image has seen it, min_stick", seen.routing.MinStick, 3*time.Second)
		}
		put(3, `{"min_stick_ms":`)
		refresh()
		seen, known = look()
		w.want("one that cannot be read leaves the last", seen.routing.MinStick, time.Second)
		w.want("also in the image", known.routing.MinStick, time.Second)
		refresh()
		if fleet.now().broken["p"] == nil {
			t.Error("it is not told that the policy cannot be read")
		}
		w.store.view.Members++
		refresh()
		if fleet.now().broken["p"] == nil {
			t.Error("with other members it is not told that the policy cannot be read")
		}
	})
}
