package services

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/routing"
	"berth/statestore"
)

// placed is what this process's routes know of an instance at this moment.
func (w *watched) placed(id string) *routing.Instance {
	w.t.Helper()
	w.store.view.Version++
	w.store.view.Members++
	if err := w.warden.server.fleet.refresh(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return w.warden.server.fleet.now().pools["p"].snapshot.Lookup(id)
}

// moved is what joins moved of the key space since a moment, as the routes saw it.
// None of it may be moved back.
func (w *watched) moved(since time.Time) (part float64) {
	w.t.Helper()
	for _, c := range w.warden.server.fleet.now().pools["p"].changes {
		if slices.ContainsFunc(c.Why, func(why string) bool { return strings.HasSuffix(why, "to 0 %") }) {
			w.t.Fatalf("%.4f of the key space moved back: %v", c.Moved, c.Why)
		}
		if ramped := func(why string) bool { return strings.Contains(why, " ramped ") }; slices.ContainsFunc(c.Why, ramped) && !c.At.Before(since) {
			part += c.Moved
		}
	}
	return part
}

// Who flaps has to be well for long before it takes new sessions again, and that is no
// time of its ramp: it begins with a tenth when it does, whoever holds the lease.
func TestAFlappingInstanceRampsWhenItReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 4)
		w.rounds(20)
		for range 4 {
			w.silent["i1"] = true
			w.rounds(17)
			w.want("silent for long", w.instance("i1").Health, statestore.Down)
			delete(w.silent, "i1")
			damped, gained := 0, w.instance("i1").Gained // of the last minute, before it fell silent
			for w.rounds(1); w.instance("i1").Health == statestore.Suspect; w.rounds(1) {
				if damped++; damped == 7 {
					w.store.token++
				} else if damped > 120 {
					t.Fatal("it does not come back")
				}
				if now := w.instance("i1").Gained; now > gained {
					t.Fatalf("it gained %d millionths of the key space as a suspect", now-gained)
				}
				w.want("what it may begin with", w.instance("i1").RampPercent, 10)
			}
			w.want("well again", w.instance("i1").Health, statestore.Healthy)
			t.Logf("back after %d s as a suspect", damped)
			if now := w.placed("i1").RampPercent; now > 10 {
				t.Fatalf("it begins at %d %%", now)
			}
		}
		w.ramps("i1", 400)
	})
}

// Who only fell silent for a moment keeps what it had, be it whole or on its way, and
// also if it has to prove itself.
func TestAMomentOfSilenceBeginsNoRamp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 20)
		w.rounds(20)
		w.join("new")
		w.rounds(15)
		w.want("on its way", w.instance("new").RampPercent, 30)
		for flap := range 3 {
			w.silent["i1"], w.silent["new"] = true, true
			w.rounds(8)
			before := w.instance("new").RampPercent
			clear(w.silent)
			for n := 0; n == 0 || w.instance("new").Health == statestore.Suspect; n++ {
				if n == 5 {
					w.store.token++
				} else if n > 120 {
					t.Fatal("it does not come back")
				}
				w.rounds(1)
				w.want("of one that is whole", w.instance("i1").RampPercent, 100)
				w.want("of one on its way", w.instance("new").RampPercent, before)
			}
			w.want("whole as before", w.placed("i1").RampPercent, 100)
			if flap == 2 {
				w.want("where it goes on", w.instance("new").RampPercent, before)
			}
		}
		w.rounds(120)
		w.want("in the end", w.instance("new").RampPercent, 100)
	})
}

// An instance that is given back waits for its part of the budget without having been
// placed on: nothing moves to it to be moved back. Without a holder of the lease it
// waits for the next one.
func TestWhoIsGivenBackWaitsForTheBudget(t *testing.T) {
	for closed, open := range map[statestore.Lifecycle]statestore.Lifecycle{
		statestore.Drained: statestore.Ready, statestore.Cordoned: statestore.Ready, statestore.Warming: statestore.Ready,
	} {
		t.Run(string(closed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := watch(t, 4)
				w.rounds(20)
				w.instance("i4").Lifecycle = closed
				w.rounds(2)
				w.placed("i4")
				w.join("new")
				began := time.UnixMilli(int64(w.store.now()))
				w.rounds(1)
				for w.instance("new").RampPercent < 30 {
					w.rounds(1)
					w.placed("i4")
				}
				w.instance("i4").Lifecycle = open
				w.want("given back over the budget", w.placed("i4").RampPercent, routing.RampQueued)
				waited := 0
				for ; w.placed("i4").RampPercent == routing.RampQueued; w.rounds(1) {
					if waited++; waited > 120 {
						t.Fatal("it waits for ever")
					}
					if part := w.moved(began); waited < 40 && part > 0.11 { // the ring's own unevenness
						t.Fatalf("%.4f of the key space moved within a minute", part)
					}
				}
				w.want("let in", w.placed("i4").RampPercent, 10)
				w.moved(began)
			})
		})
	}
}

func TestWhoIsGivenBackWaitsForAHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, 4)
		w.rounds(20)
		w.instance("i4").Lifecycle = statestore.Drained
		w.rounds(2)
		w.placed("i4")
		w.instance("i4").Lifecycle = statestore.Ready
		time.Sleep(healthTTL) // nobody holds the lease
		w.want("without a holder", w.placed("i4").RampPercent, routing.RampQueued)
		w.store.token++
		w.rounds(1)
		w.want("with the next one", w.placed("i4").RampPercent, 10)
		w.moved(time.Time{})

		w.instance("i4").Lifecycle = statestore.Cordoned
		w.rounds(1)
		for _, id := range []string{"i1", "i2", "i3"} {
			w.instance(id).Lifecycle = statestore.Draining
		}
		w.instance("i4").Lifecycle = statestore.Ready
		w.placed("i4")
		if !w.warden.server.fleet.now().pools["p"].snapshot.Eligible("i4") {
			t.Error("with nobody else, and no holder, it takes no sessions")
		}
	})
}
