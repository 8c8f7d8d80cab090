package routing

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ProbePolicy is how the instances of a pool are probed.
type ProbePolicy struct {
	On            bool // all of the pool; otherwise only those whose registration asks
	Path          string
	Every         time.Duration
	JitterPercent int // by so much each wait is shorter or longer, at random
	Timeout       time.Duration
	Fall, Rise    int // failed probes in a row until it is sick, good ones until it is well
}

// DefaultProbePolicy is the policy of a pool that nobody configured.
func DefaultProbePolicy() ProbePolicy {
	return ProbePolicy{
		Path: "/health", Every: 5 * time.Second, JitterPercent: 10, Timeout: 2 * time.Second, Fall: 3, Rise: 2,
	}
}

// Validate reports the first member of the policy that makes no sense.
func (p ProbePolicy) Validate() error {
	const most = 100
	switch {
	case !strings.HasPrefix(p.Path, "/") || strings.ContainsFunc(p.Path, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return errors.New("probe: path: want one that begins with / and has no spaces or control characters")
	case !someTime(p.Every, p.Timeout):
		return fmt.Errorf("probe: every %v, timeout %v: want some time, up to %v", p.Every, p.Timeout, longestTime)
	case p.JitterPercent < 0 || p.JitterPercent > 100:
		return fmt.Errorf("probe: jitter of %d %%: want 0 to 100", p.JitterPercent)
	case p.Fall < 1 || p.Fall > most || p.Rise < 1 || p.Rise > most:
		return fmt.Errorf("probe: fall %d, rise %d: want 1 to %d", p.Fall, p.Rise, most)
	}
	return nil
}

// Wait is the time to the next probe, for any random number.
func (p ProbePolicy) Wait(random uint64) time.Duration {
	spread := p.Every / 100 * time.Duration(p.JitterPercent)
	if spread == 0 {
		return p.Every
	}
	return p.Every - spread + time.Duration(random%uint64(2*spread+1))
}

// Probe is how a probe ended.
type Probe uint8

// Ends of a probe. The zero value is none.
const (
	NoProbe Probe = iota
	ProbePassed
	ProbeFailed   // refused, or answered that it is not well
	ProbeTimedOut // which may be the prober's fault
)

// ProbeOfStatus is the end of a probe that was answered.
func ProbeOfStatus(status int) Probe {
	if status >= 200 && status < 300 {
		return ProbePassed
	}
	return ProbeFailed
}
