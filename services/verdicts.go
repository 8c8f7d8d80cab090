package services

import (
	"berth/routing"
	"berth/statestore"
)

// Verdicts are stored in words, so that neighbouring versions understand each
// other, and judged as the states of package routing.

func routingHealth(h statestore.Health) routing.Health {
	switch h {
	case statestore.Suspect:
		return routing.HealthSuspect
	case statestore.Down:
		return routing.HealthDown
	}
	return routing.Healthy
}

func storedHealth(h routing.Health) statestore.Health {
	switch h {
	case routing.HealthSuspect:
		return statestore.Suspect
	case routing.HealthDown:
		return statestore.Down
	}
	return statestore.Healthy
}

// routingBreaker is closed where a later version wrote a state that this one does
// not know: an instance is not lost for that.
func routingBreaker(b statestore.Breaker) routing.Breaker {
	breaker, err := routing.ParseBreaker(string(b))
	if err != nil {
		return routing.BreakerClosed
	}
	return breaker
}

func storedBreaker(b routing.Breaker) statestore.Breaker {
	if b == routing.BreakerClosed {
		return statestore.BreakerClosed
	}
	return statestore.Breaker(b.String())
}

// breakerStatus is what the last holder of the lease left of a breaker.
func breakerStatus(v *statestore.Verdict) routing.BreakerStatus {
	return routing.BreakerStatus{
		State: routingBreaker(v.Breaker), Openings: v.Openings, Trial: routing.Trial{Number: v.Trial, Grantee: v.TrialTo},
	}
}

// withBreaker is a verdict with the present status of the breaker.
func withBreaker(v statestore.Verdict, s routing.BreakerStatus) statestore.Verdict {
	v.Breaker, v.Openings = storedBreaker(s.State), s.Openings
	v.Trial, v.TrialTo = s.Trial.Number, s.Trial.Grantee
	return v
}

// withPace is a verdict with the part of its weight that an instance has in force,
// and what it gained by that. A gain that shrinks is told with the next step or when
// nothing is left of it: every verdict that differs is a new version of the fleet.
func withPace(v statestore.Verdict, percent, gained int) statestore.Verdict {
	if percent != v.RampPercent || gained > v.Gained || gained == 0 {
		v.Gained = gained
	}
	v.RampPercent = percent
	return v
}
