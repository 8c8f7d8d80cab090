package routing

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// circuit is a breaker whose time a test lets pass.
type circuit struct {
	*Circuit
	t   testing.TB
	now time.Duration
}

func newCircuit(t testing.TB) *circuit {
	return &circuit{NewCircuit(DefaultBreakerPolicy(), BreakerStatus{}, 0), t, 0}
}

func (c *circuit) wait(d time.Duration) *circuit { c.now += d; return c }

// sees feeds an outcome some times.
func (c *circuit) sees(o Outcome, times int) *circuit {
	for range times {
		c.Observe(c.now, o)
	}
	return c
}

// reports feeds load reports two seconds apart, by how full the instance is.
func (c *circuit) reports(full ...float64) *circuit {
	for _, f := range full {
		c.wait(2*time.Second).Report(c.now, Report{KVUsage: f})
	}
	return c
}

func (c *circuit) grants(want bool) *circuit {
	c.t.Helper()
	if trial, ok := c.Grant(c.now, "replica"); ok != want || ok && trial.Grantee != "replica" {
		c.t.Fatalf("at %v: granted %v (%+v), want %v", c.now, ok, trial, want)
	}
	return c
}

func (c *circuit) is(want Breaker) *circuit {
	c.t.Helper()
	if got := c.Status(c.now).State; got != want {
		c.t.Fatalf("at %v: %v, want %v", c.now, got, want)
	}
	return c
}

// R33: client errors and load opened the breaker, and a 400 closed a half open one.
func TestR33OnlyFailuresOpen(t *testing.T) {
	t.Parallel()
	for _, o := range []Outcome{OutcomeClient, OutcomeBusy, OutcomeTimeout, OutcomeUnknown, OutcomeOK} {
		newCircuit(t).sees(o, 50).is(BreakerClosed)
	}
	for _, o := range []Outcome{OutcomeServer, OutcomeConnect, OutcomeReset} {
		newCircuit(t).sees(o, 4).is(BreakerClosed).sees(o, 1).is(BreakerOpen)
	}
	for _, o := range []Outcome{OutcomeClient, OutcomeBusy, OutcomeTimeout} {
		newCircuit(t).sees(OutcomeServer, 5).wait(15*time.Second).grants(true).
			sees(o, 1).is(BreakerTrial).grants(false).sees(OutcomeOK, 1).is(BreakerClosed)
	}
}

// R34: half open never closed, and all open at a cold start stayed so.
func TestR34ExactlyOneTrial(t *testing.T) {
	t.Parallel()
	half := func() *circuit {
		return newCircuit(t).sees(OutcomeServer, 5).grants(false).wait(15*time.Second - 1).is(BreakerOpen).grants(false).
			wait(1).is(BreakerTrial)
	}
	half().grants(true).grants(false).sees(OutcomeOK, 1).is(BreakerClosed).grants(false)
	half().grants(true).sees(OutcomeReset, 1).is(BreakerOpen).wait(15 * time.Second).is(BreakerOpen).
		wait(15 * time.Second).is(BreakerTrial).grants(true) // twice as long as before
	lost := half().grants(true).wait(30*time.Second - 1).grants(false).wait(1).is(BreakerTrial)
	first := lost.Status(lost.now).Trial.Number
	if second := lost.grants(true).Status(lost.now).Trial; second.Number != first+1 {
		t.Errorf("trial %d follows %d: replicas would take it for used", second.Number, first)
	}
	lost.grants(false).sees(OutcomeOK, 1).is(BreakerClosed)
	// What began before the trial tells nothing of it.
	half().sees(OutcomeOK, 3).sees(OutcomeServer, 3).is(BreakerTrial).grants(true)
	// Losing every trial, an instance still gets one after the other, for ever.
	c := half()
	for range 1000 {
		c.grants(true).wait(30 * time.Second)
	}
	c.grants(true).sees(OutcomeOK, 1).is(BreakerClosed)
}

func TestFailuresCountWithinTheirWindow(t *testing.T) {
	t.Parallel()
	c := newCircuit(t)
	for range 100 {
		c.wait(30*time.Second/4).sees(OutcomeServer, 1).is(BreakerClosed) // four within any 30 s
	}
	c.sees(OutcomeServer, 1).is(BreakerOpen)
}

// An instance that fails again and again is tried less and less often, up to a
// limit, until it stayed well for as long as it was out.
func TestFlappingDoublesTheTimeOpen(t *testing.T) {
	t.Parallel()
	c := newCircuit(t).sees(OutcomeServer, 5)
	for _, open := range []time.Duration{15, 30, 60, 120, 120, 120} {
		c.wait(open*time.Second-1).is(BreakerOpen).wait(1).is(BreakerTrial).grants(true).sees(OutcomeServer, 1)
	}
	c.wait(120*time.Second).grants(true).sees(OutcomeOK, 1).is(BreakerClosed)
	c.wait(time.Minute).sees(OutcomeServer, 5).wait(120*time.Second-1).is(BreakerOpen).wait(1).grants(true).sees(OutcomeOK, 1)
	c.wait(150*time.Second).is(BreakerClosed).sees(OutcomeServer, 5).wait(15 * time.Second).is(BreakerTrial)
}

// Three saturated reports in a row open it for load; it closes below 80 %, after
// 15 s, without a trial.
func TestSaturationOpens(t *testing.T) {
	t.Parallel()
	newCircuit(t).reports(0.95, 0.95).is(BreakerClosed).reports(0.95).is(BreakerSaturated).grants(false)
	newCircuit(t).reports(1, 1, 0.94, 1, 1).is(BreakerClosed)
	newCircuit(t).reports(1, 1, 1, 0.1).is(BreakerSaturated).wait(13 * time.Second).is(BreakerClosed) // since the third
	c := newCircuit(t).reports(1, 1, 1)
	for range 30 {
		c.reports(0.81).is(BreakerSaturated)
	}
	c.reports(0.79).is(BreakerClosed)
	// Who falls silent is not full for ever.
	newCircuit(t).reports(1, 1, 1).wait(30*time.Second - 1).is(BreakerSaturated).wait(1).is(BreakerClosed)
	// Failures outrank it, and a good trial leaves it as full as it is.
	newCircuit(t).reports(1, 1, 1).sees(OutcomeServer, 5).is(BreakerOpen).reports(1, 1, 1, 1, 1, 1, 1, 1).is(BreakerTrial).
		grants(true).sees(OutcomeOK, 1).is(BreakerSaturated).wait(15 * time.Second).reports(0.5).is(BreakerClosed)
	off := DefaultBreakerPolicy()
	off.Reports, off.Failures = 0, 0
	c = newCircuit(t)
	c.SetPolicy(off)
	c.reports(1, 1, 1, 1).sees(OutcomeServer, 100).is(BreakerClosed)
}

func TestFullnessIsTheScarcer(t *testing.T) {
	t.Parallel()
	for report, want := range map[Report]float64{
		{}:                            0,
		{Running: 50}:                 0,
		{Running: 19, MaxRunning: 20}: 0.95,
		{Running: 1, MaxRunning: 20, KVUsage: 0.97}: 0.97,
		{Running: 30, MaxRunning: 20}:               1.5,
		{KVUsage: math.NaN()}:                       0,
		{KVUsage: -1}:                               0,
	} {
		if got := report.Fullness(); got != want {
			t.Errorf("%+v is %v full, want %v", report, got, want)
		}
	}
}

// The next holder of the lease goes on where the last one stopped: nobody is let
// in early, and no trial is granted beside one that is out.
func TestCircuitIsTakenOver(t *testing.T) {
	t.Parallel()
	over := func(c *circuit) *circuit {
		return &circuit{NewCircuit(DefaultBreakerPolicy(), c.Status(c.now), 0), t, 0}
	}
	over(newCircuit(t)).is(BreakerClosed).sees(OutcomeServer, 5).is(BreakerOpen)
	over(newCircuit(t).sees(OutcomeServer, 5)).is(BreakerOpen).wait(15*time.Second - 1).is(BreakerOpen).wait(1).grants(true)
	over(newCircuit(t).reports(1, 1, 1)).is(BreakerSaturated).wait(15 * time.Second).reports(0.5).is(BreakerClosed)
	half := newCircuit(t).sees(OutcomeServer, 5).wait(15 * time.Second)
	over(half).is(BreakerTrial).grants(true)
	out := over(half.grants(true)).is(BreakerTrial).grants(false).wait(30 * time.Second).grants(true)
	if n := out.Status(out.now).Trial.Number; n != 2 {
		t.Errorf("trial %d after the first: replicas would take it for used", n)
	}
	over(half).sees(OutcomeOK, 1).is(BreakerClosed)
}

func TestBreakerPolicyRefusesNonsense(t *testing.T) {
	t.Parallel()
	if err := DefaultBreakerPolicy().Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*BreakerPolicy){
		"negative failures":     func(p *BreakerPolicy) { p.Failures = -1 },
		"too many reports":      func(p *BreakerPolicy) { p.Reports = 1001 },
		"no window":             func(p *BreakerPolicy) { p.Window = 0 },
		"no time open":          func(p *BreakerPolicy) { p.Open = 0 },
		"open for ages":         func(p *BreakerPolicy) { p.MaxOpen = math.MaxInt64 },
		"at most less":          func(p *BreakerPolicy) { p.MaxOpen = p.Open - 1 },
		"no time for a trial":   func(p *BreakerPolicy) { p.Trial = -1 },
		"calm above saturated":  func(p *BreakerPolicy) { p.CalmPercent = 96 },
		"calm at nothing":       func(p *BreakerPolicy) { p.CalmPercent = 0 },
		"saturated beyond full": func(p *BreakerPolicy) { p.SaturatedPercent = 101 },
		"nothing set":           func(p *BreakerPolicy) { *p = BreakerPolicy{} },
	} {
		p := DefaultBreakerPolicy()
		spoil(&p)
		if p.Validate() == nil {
			t.Errorf("%s: was accepted", name)
		}
	}
}

// Whatever comes in whatever order: at most one trial is out, it opens for cause
// only, and once the instance is well it is closed again within a bounded time.
func TestBreakerProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := DefaultBreakerPolicy()
		policy.Failures, policy.Reports = rapid.IntRange(0, 3).Draw(t, "failures"), rapid.IntRange(0, 3).Draw(t, "reports")
		c, now := NewCircuit(policy, BreakerStatus{}, 0), time.Duration(0)
		var out time.Duration = -1 // since when a trial is out
		var last uint64
		failures := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond
			before := c.Status(now).State
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				o := rapid.SampledFrom([]Outcome{OutcomeOK, OutcomeServer, OutcomeServer, OutcomeConnect, OutcomeBusy, OutcomeClient}).Draw(t, "outcome")
				c.Observe(now, o)
				if o.Failed() {
					failures++
				}
				if before == BreakerTrial && (o == OutcomeOK || o.Failed()) {
					out = -1
				}
			case 1:
				c.Report(now, Report{KVUsage: rapid.Float64Range(0.7, 1).Draw(t, "kv usage")})
			case 2:
				trial, ok := c.Grant(now, fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "replica")))
				if !ok {
					break
				}
				if before != BreakerTrial || out >= 0 && now-out < policy.Trial {
					t.Fatalf("granted at %v while %v, with a trial out since %v", now, before, out)
				}
				if trial.Number <= last {
					t.Fatalf("trial %d after %d", trial.Number, last)
				}
				out, last = now, trial.Number
			case 3:
				c = NewCircuit(policy, c.Status(now), now)
			}
			if st := c.Status(now).State; before == BreakerClosed && st == BreakerOpen && (policy.Failures == 0 || failures < policy.Failures) {
				t.Fatalf("opened after %d failures", failures)
			}
		}
		for end := now + policy.MaxOpen + policy.Trial + time.Minute; c.Status(now).State != BreakerClosed; now += time.Second {
			if now > end {
				t.Fatalf("%+v although it is well", c.Status(now))
			}
			c.Report(now, Report{})
			if _, ok := c.Grant(now, "replica"); ok {
				c.Observe(now, OutcomeOK)
			}
		}
	})
}
