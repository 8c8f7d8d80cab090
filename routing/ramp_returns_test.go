package routing

import (
	"testing"
	"time"
)

// What comes back from where it took nothing new begins again; what was only
// suspect never left. Failure of others changes nobody's part.
func TestWhoReturnsRampsAgain(t *testing.T) {
	t.Parallel()
	c := newClimbers(t, 20, DefaultRampPolicy())
	c.member("old3").State = Down
	c.step(time.Second).is("old3", 10).seconds(300).is("old3", 10).is("old4", 100)
	c.member("old3").State = Ready
	c.step(time.Second).is("old3", 10).seconds(6).is("old3", 20).seconds(60).is("old3", 100)
	c.member("old3").Incarnation, c.member("old3").Percent = "next", RampQueued
	c.step(time.Second).is("old3", 10)
}

// Time in which a suspect takes nothing new is no time of its ramp. One that was down
// is out until it is ready, and begins then; one that only fell silent for a moment
// keeps what it had, and goes on from there. The next holder of the lease knows both.
func TestASuspectDoesNotRamp(t *testing.T) {
	t.Parallel()
	for _, handed := range []bool{false, true} {
		c := newClimbers(t, 20, DefaultRampPolicy()).join("new").step(0)
		for c.pace.Percents["new"] < 30 {
			c.seconds(1)
		}
		damped := []string{"old3", "old4", "old5", "old6"}
		for i, state := range []State{Down, Drained, Cordoned, Warming} {
			c.member(damped[i]).State = state
		}
		c.member("new").State, c.member("old7").State = Suspect, Suspect
		c.seconds(1)
		for _, id := range damped {
			c.member(id).State = Suspect
		}
		for range 120 {
			if handed {
				c.ramp = NewRamp(DefaultRampPolicy())
			}
			c.seconds(1).is("new", 30).is("old7", 100)
			for _, id := range damped {
				if c.is(id, 10); !c.pace.Out[id] || c.pace.Gained[id] > 0 {
					t.Fatalf("at %v: %s is out: %v, and gained %d millionths", c.now, id, c.pace.Out[id], c.pace.Gained[id])
				}
			}
		}
		if handed {
			c.ramp = NewRamp(DefaultRampPolicy())
		}
		if c.pace.Next != 0 {
			t.Errorf("nobody takes new sessions who may rise, and the next step is told for %v", c.pace.Next)
		}
		for i := range c.members {
			c.members[i].State = Ready
		}
		c.seconds(1).is("old7", 100).is("old3", 10).is("new", 30)
		c.seconds(600)
		for _, id := range append(damped, "new") {
			c.is(id, 100)
		}
	}
}

// Who took new sessions before and has yet to be let in again is known as that, also
// to the next holder of the lease, until it is let in; a boot that is new is not.
func TestRampTellsWhoReturns(t *testing.T) {
	t.Parallel()
	policy := DefaultRampPolicy()
	policy.MaxChurn = 1 // so that they wait
	c := newClimbers(t, 3, policy)
	c.join("new")
	c.member("new").State = Warming
	c.member("old0").State = Cordoned
	c.step(time.Second)
	c.member("new").State, c.member("old0").State = Ready, Ready
	c.member("old1").Weight = 0
	c.step(time.Second)
	c.member("old1").Weight = 100
	c.step(0)
	want := func(id string, returns bool) {
		t.Helper()
		if got := c.pace.Returns[id]; got != returns {
			t.Errorf("at %v: %s at %d %% returns: %v, want %v", c.now, id, c.pace.Percents[id], got, returns)
		}
	}
	check := func() {
		t.Helper()
		for _, id := range []string{"old0", "old1", "new"} {
			if waits := c.pace.Percents[id] <= 0; waits {
				want(id, id != "new")
			} else {
				want(id, false)
			}
		}
	}
	check()
	c.ramp = NewRamp(policy) // another holder
	waited := map[string]bool{}
	for range 600 {
		c.step(time.Second)
		check()
		for id, percent := range c.pace.Percents {
			waited[id] = waited[id] || percent <= 0
		}
	}
	if !waited["old0"] && !waited["old1"] {
		t.Fatalf("nobody waited: %v", waited)
	}
	for _, id := range []string{"old0", "old1", "new"} {
		want(id, false)
	}
}
