package routing

import (
	"fmt"
	"slices"
	"time"
)

// BreakerPolicy is what an operator sets for the circuit breakers of a pool.
type BreakerPolicy struct {
	Failures int           // so many within Window open it; 0 is never
	Window   time.Duration // also how long a load report is believed
	Open     time.Duration // until the first trial
	MaxOpen  time.Duration // the time open doubles up to this while it opens again and again
	Trial    time.Duration // a trial whose outcome nobody reports frees its slot after this

	Reports          int // so many saturated reports in a row open it; 0 is never
	SaturatedPercent int // of what the instance can hold: saturated from here on
	CalmPercent      int // and until it falls below this
}

// DefaultBreakerPolicy is the policy of a pool that nobody configured.
func DefaultBreakerPolicy() BreakerPolicy {
	return BreakerPolicy{
		Failures: 5, Window: 30 * time.Second, Open: 15 * time.Second, MaxOpen: 2 * time.Minute, Trial: 30 * time.Second,
		Reports: 3, SaturatedPercent: 95, CalmPercent: 80,
	}
}

// Validate reports the first member of the policy that makes no sense.
func (p BreakerPolicy) Validate() error {
	const most = 1000
	switch {
	case p.Failures < 0 || p.Failures > most || p.Reports < 0 || p.Reports > most:
		return fmt.Errorf("breaker: %d failures, %d reports: want 0 to %d", p.Failures, p.Reports, most)
	case !someTime(p.Window, p.Open, p.MaxOpen, p.Trial):
		return fmt.Errorf("breaker: window %v, open %v, at most %v, trial %v: want some time, up to %v",
			p.Window, p.Open, p.MaxOpen, p.Trial, longestTime)
	case p.MaxOpen < p.Open:
		return fmt.Errorf("breaker: open for at most %v: want at least %v, as long as at first", p.MaxOpen, p.Open)
	case p.CalmPercent < 1 || p.SaturatedPercent < p.CalmPercent || p.SaturatedPercent > 100:
		return fmt.Errorf("breaker: saturated at %d %%, calm below %d %%: want 1 to 100, and calm not above saturated",
			p.SaturatedPercent, p.CalmPercent)
	}
	return nil
}

// UseTrialWithin is how long a replica may keep a trial that it was granted:
// half the time after which the slot is free again, so that the trial has ended,
// or nearly, when another is granted.
func (p BreakerPolicy) UseTrialWithin() time.Duration { return p.Trial / 2 }

// Report is what one heartbeat says of how full an instance is. What it does not
// know is 0.
type Report struct {
	Running, MaxRunning int     // requests
	KVUsage             float64 // of the KV cache, 0 to 1
}

// Fullness is the part of what the instance can hold that it holds, by the
// scarcer of requests and KV cache.
func (r Report) Fullness() float64 {
	full := 0.0
	if r.KVUsage > full { // not so for NaN
		full = r.KVUsage
	}
	if r.MaxRunning > 0 {
		full = max(full, float64(r.Running)/float64(r.MaxRunning))
	}
	return full
}

// Trial is the one request that a half open breaker lets through.
type Trial struct {
	Number  uint64 // of the last trial granted; one that was used once is used up
	Grantee string // the replica that may send it; empty while nobody may
}

// BreakerStatus is all of a breaker that others need to know: replicas to decide,
// and the next holder of the health lease to go on.
type BreakerStatus struct {
	State    Breaker
	Trial    Trial
	Openings int // in a row: 0 once it stayed closed for long
}

// Circuit is the circuit breaker of one boot of an instance, kept by the holder
// of the health lease. It goes
//
//	closed ── failures ──▶ open ── time ──▶ trial ── ok ──▶ closed
//	  │                     ▲                 │
//	  │                     └──── failure ────┘   (for twice the time)
//	  └── reports ──▶ saturated ── time, and a calm report ──▶ closed
//
// In trial it grants one replica one request at a time; a grant without an
// outcome ends by itself, and so no sequence of losses locks an instance out. What
// says nothing of the instance (4xx) or speaks of load (429, 503, timeouts) moves
// nothing. Saturation needs no trial: the next reports tell whether it is over.
//
// Times are the caller's monotonic clock, and never go back.
type Circuit struct {
	policy BreakerPolicy
	status BreakerStatus

	until  time.Duration   // open and saturated: at least; trial: until the granted slot is free again
	tried  bool            // a trial was granted since it is half open
	closed time.Duration   // since when, if closed
	failed []time.Duration // failures that count, oldest first

	full  int  // saturated reports in a row
	hot   bool // there were enough of them, and none was calm since
	heard time.Duration
}

// NewCircuit makes the breaker of an instance, or takes over what the last holder
// of the lease published. A time that it was in the middle of begins again.
func NewCircuit(policy BreakerPolicy, from BreakerStatus, now time.Duration) *Circuit {
	c := &Circuit{policy: policy, status: from, closed: now, heard: now}
	switch from.State {
	case BreakerOpen:
		c.status.Openings = max(1, from.Openings)
		c.until = now + c.openFor()
	case BreakerSaturated:
		c.until, c.hot = now+policy.Open, true
	case BreakerTrial:
		c.until, c.tried = now+policy.Trial, from.Trial.Grantee != ""
	}
	return c
}

// SetPolicy puts another policy in force; what has begun goes on.
func (c *Circuit) SetPolicy(p BreakerPolicy) { c.policy = p }

// Status is what to publish.
func (c *Circuit) Status(now time.Duration) BreakerStatus {
	c.pass(now)
	return c.status
}

// Observe counts an outcome. While half open any outcome counts that comes once a
// trial is out, for reports do not say which request was the trial. A write of the
// instance that was accepted is an OK too: behind gateways that report nothing but
// failures it is the only one there is.
func (c *Circuit) Observe(now time.Duration, o Outcome) {
	c.pass(now)
	switch {
	case c.status.State == BreakerTrial && c.tried && o == OutcomeOK:
		c.close(now)
	case c.status.State == BreakerTrial && c.tried && o.Failed():
		c.open(now)
	case c.status.State == BreakerClosed || c.status.State == BreakerSaturated:
		if o.Failed() && c.fails(now) {
			c.open(now)
		}
	}
}

// fails counts a failure and reports whether it is one too many.
func (c *Circuit) fails(now time.Duration) bool {
	if c.policy.Failures == 0 {
		return false
	}
	c.failed = slices.DeleteFunc(c.failed, func(at time.Duration) bool { return now-at >= c.policy.Window })
	c.failed = append(c.failed, now)
	return len(c.failed) >= c.policy.Failures
}

// Report counts what a heartbeat says.
func (c *Circuit) Report(now time.Duration, r Report) {
	c.pass(now)
	c.heard = now
	full := r.Fullness()
	if c.policy.Reports > 0 && full >= float64(c.policy.SaturatedPercent)/100 {
		c.full = min(c.full+1, c.policy.Reports)
		c.hot = c.hot || c.full == c.policy.Reports
	} else {
		c.full = 0
		c.hot = c.hot && full >= float64(c.policy.CalmPercent)/100
	}
	c.pass(now)
}

// Grant gives the trial to a replica; false while there is none to give.
func (c *Circuit) Grant(now time.Duration, replica string) (Trial, bool) {
	c.pass(now)
	if c.status.State != BreakerTrial || c.status.Trial.Grantee != "" || replica == "" {
		return Trial{}, false
	}
	c.status.Trial = Trial{Number: c.status.Trial.Number + 1, Grantee: replica}
	c.until, c.tried = now+c.policy.Trial, true
	return c.status.Trial, true
}

// pass does what time alone does.
func (c *Circuit) pass(now time.Duration) {
	if now-c.heard >= c.policy.Window {
		c.hot, c.full = false, 0
	}
	switch c.status.State {
	case BreakerOpen:
		if now >= c.until {
			c.status.State, c.tried = BreakerTrial, false
		}
	case BreakerTrial:
		if now >= c.until {
			c.status.Trial.Grantee = ""
		}
	case BreakerSaturated:
		if now >= c.until && !c.hot {
			c.status.State, c.closed = BreakerClosed, now
		}
	case BreakerClosed:
		if c.status.Openings > 0 && now-c.closed >= c.policy.Window+c.openFor() {
			c.status.Openings = 0
		}
		if c.hot {
			c.status.State, c.until = BreakerSaturated, now+c.policy.Open
		}
	}
}

func (c *Circuit) open(now time.Duration) {
	c.status.State, c.status.Trial.Grantee = BreakerOpen, ""
	c.status.Openings++
	c.until, c.failed = now+c.openFor(), nil
}

func (c *Circuit) close(now time.Duration) {
	c.status.State, c.status.Trial.Grantee, c.closed = BreakerClosed, "", now
	c.pass(now) // it may be saturated all the same
}

// openFor is how long an opening lasts: twice the one before, up to the most.
func (c *Circuit) openFor() time.Duration {
	d := c.policy.Open
	for n := 1; n < c.status.Openings && d < c.policy.MaxOpen; n++ {
		d *= 2
	}
	return min(d, c.policy.MaxOpen)
}
