package routing

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// climbers are the members of a ramp whose time a test lets pass. Percents are
// published at once.
type climbers struct {
	t       testing.TB
	ramp    *Ramp
	now     time.Duration
	members []RampMember
	pace    Pace
}

// newClimbers begins with n members of weight 100 that are in whole, long ago.
func newClimbers(t testing.TB, n int, policy RampPolicy) *climbers {
	c := &climbers{t: t, ramp: NewRamp(policy)}
	for i := range n {
		c.members = append(c.members, rampMember(fmt.Sprintf("old%d", i), 100, 0))
	}
	return c.step(0)
}

func rampMember(id string, weight, percent int) RampMember {
	return RampMember{Boot: Boot{ID: id}, Weight: weight, Percent: percent, State: Ready}
}

func (c *climbers) join(ids ...string) *climbers {
	for _, id := range ids {
		c.members = append(c.members, rampMember(id, 100, RampQueued))
	}
	return c
}

func (c *climbers) member(id string) *RampMember {
	for i := range c.members {
		if c.members[i].ID == id {
			return &c.members[i]
		}
	}
	c.t.Fatalf("no member %s", id)
	return nil
}

// step is one step after d.
func (c *climbers) step(d time.Duration) *climbers {
	c.now += d
	c.pace = c.ramp.Step(c.now, c.members)
	for i := range c.members {
		c.members[i].Percent = c.pace.Percents[c.members[i].ID]
		c.members[i].Gained = c.pace.Gained[c.members[i].ID]
		c.members[i].Out = c.pace.Out[c.members[i].ID]
		c.members[i].Returns = c.pace.Returns[c.members[i].ID]
	}
	return c
}

// seconds are n steps a second apart.
func (c *climbers) seconds(n int) *climbers {
	for range n {
		c.step(time.Second)
	}
	return c
}

func (c *climbers) is(id string, percent int) *climbers {
	c.t.Helper()
	if got := c.pace.Percents[id]; got != percent {
		c.t.Fatalf("at %v: %s at %d %%, want %d", c.now, id, got, percent)
	}
	return c
}

// share is what a member has in force of all that is in force.
func (c *climbers) share(id string) float64 {
	sum, own := 0.0, 0.0
	for _, m := range c.members {
		if !m.State.MayTakeNew() || m.Percent < 0 {
			continue
		}
		w := float64(m.Weight * m.Percent)
		sum += w
		if m.ID == id {
			own = w
		}
	}
	return own / max(sum, 1)
}

// In a large pool an instance is whole after ten steps in a minute.
func TestRampInTenSteps(t *testing.T) {
	t.Parallel()
	c := newClimbers(t, 20, DefaultRampPolicy()).join("new").step(0)
	for percent := 10; percent < 100; percent += 10 {
		c.is("new", percent).seconds(5).is("new", percent)
		if c.pace.Next != c.now+time.Second {
			t.Errorf("at %v the next step is told for %v", c.now, c.pace.Next)
		}
		c.seconds(1)
	}
	c.is("new", 100).is("old7", 100)
	if c.pace.Next != 0 || c.now != 54*time.Second {
		t.Errorf("at %v whole, and the next step is told for %v", c.now, c.pace.Next)
	}
}

// The first instances of a pool join whole, and so does whoever is left when all
// others are gone: somebody has to take the keys.
func TestNobodyElseToServe(t *testing.T) {
	t.Parallel()
	c := newClimbers(t, 0, DefaultRampPolicy()).join("a", "b").step(time.Second).is("a", 100).is("b", 100)
	c.join("c").step(time.Second).is("c", 100) // the same rollout
	c.step(20*time.Second).join("d").step(time.Second).is("d", 10)
}

// R39: a new replica got nothing, or everything. Its share of new sessions follows
// its ramp within 30 %, is never none, and no more than the limit moves.
func TestR39ShareFollowsTheRamp(t *testing.T) {
	t.Parallel()
	list := readyFleet(8)
	c := &climbers{t: t, ramp: NewRamp(DefaultRampPolicy())}
	for i := range list {
		c.members = append(c.members, rampMember(list[i].ID, 100, 0))
	}
	c.step(0)
	s := pool(t, list)
	list = append(list, Instance{ID: "new", Incarnation: "boot", Address: "10.9.9.9:1", Weight: 100, State: Ready})
	c.join("new")
	moved := map[int]float64{} // within the minute that ends with a second
	for c.seconds(1); ; c.seconds(1) {
		for i := range list {
			list[i].RampPercent = c.pace.Percents[list[i].ID]
		}
		next := after(t, s, list)
		if next.Ring() != s.Ring() {
			taken := 0
			const n = 10_000
			for i := range n {
				if Decide(next, Request{Key: fmt.Sprintf("s%d", i)}, Record{}).Instance.ID == "new" {
					taken++
				}
			}
			if got, want := float64(taken)/n, c.share("new"); math.Abs(got-want) > 0.3*want {
				t.Errorf("at %d %% it takes %.4f of the new sessions, want %.4f", c.pace.Percents["new"], got, want)
			}
			for m := int(c.now / time.Second); m < int(c.now/time.Second)+60; m++ {
				moved[m] += s.Ring().Movement(next.Ring()).Moved
			}
		}
		if s = next; c.pace.Percents["new"] == 100 {
			break
		}
	}
	for _, part := range moved {
		if part > 0.10*1.1 { // the ring's own unevenness
			t.Errorf("%.3f of the key space moved within a minute", part)
		}
	}
	if c.now > 90*time.Second {
		t.Errorf("whole after %v", c.now)
	}
}

// Joins wait for each other: a small pool takes minutes to double, everybody of the
// new ones gets something before anybody gets much, and all are whole in the end.
func TestJoinsQueue(t *testing.T) {
	t.Parallel()
	c := newClimbers(t, 3, DefaultRampPolicy()).join("a", "b", "c").step(time.Second)
	c.is("a", 10).is("b", 10).is("c", 10) // 3 × 3 % at most
	c.seconds(30).is("a", 10).is("c", 10)
	if c.pace.Next != 61*time.Second {
		t.Errorf("the next step is told for %v", c.pace.Next)
	}
	for c.pace.Percents["c"] < 100 || c.pace.Percents["a"] < 100 || c.pace.Percents["b"] < 100 {
		c.seconds(1)
		if c.now > 10*time.Minute {
			t.Fatalf("after %v: %v", c.now, c.pace.Percents)
		}
		if a, b := c.pace.Percents["a"], c.pace.Percents["c"]; a-b > 10 || b-a > 10 {
			t.Fatalf("a has %d %%, c %d %%", a, b)
		}
	}
	if c.now < 4*time.Minute {
		t.Errorf("half of the key space moved in %v", c.now)
	}
}

// More weight is a join of the difference; less is given at once.
func TestWeightsChange(t *testing.T) {
	t.Parallel()
	c := newClimbers(t, 20, DefaultRampPolicy())
	c.member("old0").Weight = 200
	c.step(time.Second).is("old0", 60).seconds(5).is("old0", 60).seconds(1).is("old0", 70).seconds(60).is("old0", 100)
	c.member("old0").Weight = 50
	c.step(time.Second).is("old0", 100)
	c.member("old0").Weight = 0
	c.step(time.Second)
	c.member("old0").Weight = 100
	c.seconds(60)
	c.is("old0", 100)
	c.member("old0").Weight = MaxWeight // less than a percent of that is in force
	c.step(time.Second)
	if p := c.pace.Percents["old0"]; p != RampQueued && p > 3 {
		t.Errorf("a hundred times the weight is in force to %d %% at once", p)
	}
}

// The next holder goes on from what is published, and what was gained stays gained:
// also under a holder that comes and goes.
func TestRampIsTakenOver(t *testing.T) {
	t.Parallel()
	c := newClimbers(t, 2, DefaultRampPolicy()).join("new").seconds(20)
	gained, at := c.member("new").Gained, c.pace.Percents["new"]
	if gained < 40_000 || gained > 100_000 || at < 10 || at > 30 {
		t.Fatalf("gained %d millionths, at %d %%", gained, at)
	}
	c.join("next")
	for range 2 {
		c.ramp, c.now = NewRamp(DefaultRampPolicy()), 0
		if c.step(0); c.member("new").Gained != gained {
			t.Fatalf("gained %d millionths, after a change of holder %d", gained, c.member("new").Gained)
		}
	}
	c.seconds(59).is("new", at).is("next", RampQueued).seconds(10).is("next", 10)
	c.seconds(1800).is("new", 100)
	if got := c.member("new").Gained; got != 0 {
		t.Errorf("long after its last step it still says that it gained %d millionths", got)
	}
}

func TestPaceCanBeSet(t *testing.T) {
	t.Parallel()
	free := DefaultRampPolicy()
	free.MaxChurn = 0
	newClimbers(t, 1, free).join("a", "b", "c", "d").step(time.Second).is("d", 10).seconds(54).is("d", 100)
	free.Over = 0
	newClimbers(t, 1, free).join("a", "b").step(time.Second).is("a", 100).is("b", 100)
	atOnce := DefaultRampPolicy()
	atOnce.Over = 0
	newClimbers(t, 20, atOnce).join("a").step(time.Second).is("a", 100)
	atOnce.Steps = 1
	newClimbers(t, 20, atOnce).join("a").step(time.Second).is("a", 100)
	tight := DefaultRampPolicy()
	tight.MaxChurn = 1
	tiny := newClimbers(t, 1, tight).join("a")
	tiny.member("a").Weight = MaxWeight // one percent of it is as much as the other has
	tiny.step(time.Second).is("a", 1).seconds(59).is("a", 1).seconds(1).is("a", 2)
	for name, spoil := range map[string]func(*RampPolicy){
		"negative time":    func(p *RampPolicy) { p.Over = -1 },
		"absurd time":      func(p *RampPolicy) { p.Opening = math.MaxInt64 },
		"no start":         func(p *RampPolicy) { p.StartPercent = 0 },
		"no steps":         func(p *RampPolicy) { p.Steps = 0 },
		"more than it all": func(p *RampPolicy) { p.MaxChurn = 101 },
	} {
		p := DefaultRampPolicy()
		if spoil(&p); p.Validate() == nil {
			t.Errorf("%s: was accepted", name)
		}
	}
	if err := DefaultRampPolicy().Validate(); err != nil {
		t.Error(err)
	}
}

// Who waits to join is let in when nobody else may take a session.
func TestAQueueIsNoReasonToRefuse(t *testing.T) {
	t.Parallel()
	list := readyFleet(3)
	list[2].RampPercent = RampQueued
	s := pool(t, list)
	if s.Eligible("i2") || s.Ring().Points("i2") != 0 {
		t.Error("one that waits takes sessions")
	}
	for i := range 200 {
		key := fmt.Sprintf("k%d", i)
		if d := Decide(s, Request{Key: key}, bind(&list[2])); d.Instance.ID != "i2" || d.Reason != ReasonBound {
			t.Fatalf("a session bound to it: %+v", d)
		}
		if d := Decide(s, Request{Key: key}, Record{}); d.Instance.ID == "i2" {
			t.Fatalf("a new one: %+v", d)
		}
	}
	list[0].State, list[1].Breaker = Down, BreakerOpen
	next := after(t, s, list)
	if d := Decide(next, Request{Key: "k"}, Record{}); d.Instance == nil || d.Instance.ID != "i2" {
		t.Errorf("with nobody else: %+v", d)
	}
	list[1].Breaker = BreakerClosed
	if after(t, next, list).Eligible("i2") {
		t.Error("with another again it is let in")
	}
}

// R06: a new endpoint got no traffic until something else changed. Its readiness
// alone makes it take its share, of a ring that had it already.
func TestR06ReadinessAloneBringsSessions(t *testing.T) {
	t.Parallel()
	list := readyFleet(3)
	list[2].State = Warming
	ramp := NewRamp(DefaultRampPolicy())
	step := func(now time.Duration) {
		var members []RampMember
		for i := range list {
			members = append(members, RampMember{
				Boot: Boot{list[i].ID, list[i].Incarnation}, Weight: list[i].Weight, Percent: list[i].RampPercent, State: list[i].State,
			})
		}
		for id, percent := range ramp.Step(now, members).Percents {
			list = with(list, id, func(in *Instance) { in.RampPercent = percent })
		}
	}
	step(0)
	s := pool(t, list)
	if s.Eligible("i2") {
		t.Fatal("one that warms up takes sessions")
	}
	list = with(list, "i2", state(Ready))
	step(time.Second)
	next, taken := after(t, s, list), 0
	for i := range 5000 {
		if Decide(next, Request{Key: fmt.Sprint(i)}, Record{}).Instance.ID == "i2" {
			taken++
		}
	}
	if taken == 0 || next.Version() != s.Version()+1 || next.Ring() != s.Ring() {
		t.Errorf("%d of 5000 new sessions, version %d after %d", taken, next.Version(), s.Version())
	}
}
