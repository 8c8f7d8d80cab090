package simulate

import (
	"strconv"
	"time"

	"berth/routing"
)

// heartbeatEvery is a worker's default.
const heartbeatEvery = 2 * time.Second

// health is what the holder of the health lease knows of one boot.
type health struct {
	circuit *routing.Circuit
	breaker routing.Breaker
	trial   bool // granted and not used
	verdict routing.Health
	beats   uint64
	percent int // of the weight in force
}

func newHealth(sc *Scenario, now time.Duration, newcomer bool) health {
	h := health{percent: 100, circuit: routing.NewCircuit(sc.Policy.Breaker, routing.BreakerStatus{}, now)}
	if newcomer {
		h.percent = routing.RampQueued
	}
	return h
}

func (in *instance) bootID() routing.Boot {
	return routing.Boot{ID: in.id, Incarnation: strconv.Itoa(int(in.boot))}
}

// heard counts how a request ended. Policies without Berth have no breaker.
func (e *engine) heard(in *instance, o routing.Outcome) {
	if e.pol.binds() {
		in.health.circuit.Observe(e.clock(), o)
		e.watch.Observe(in.bootID(), o)
	}
}

// clock is the time of the state machines, which never goes below 0.
func (e *engine) clock() time.Duration { return e.now + e.sc.Warmup }

// observe lets the holder of the health lease see a second, and reports whether
// that changes the snapshot. To other policies everything is known at once.
func (e *engine) observe() (changed bool) {
	if !e.pol.binds() {
		for _, in := range e.fleet {
			if !in.alive && in.state == routing.Ready {
				in.state, changed = routing.Down, true
			}
		}
		return changed
	}
	changed = e.judge()
	for _, in := range e.fleet {
		if in.state != routing.Drained {
			changed = e.breaker(in) || changed
		}
	}
	e.rampDirty = e.rampDirty || changed // who takes new sessions again has to be let in first
	return e.raise() || changed
}

// judge is a round of the watch.
func (e *engine) judge() (changed bool) {
	var fleet []routing.Sighting
	for _, in := range e.fleet {
		if in.state == routing.Drained {
			continue
		}
		if in.alive && e.clock()%heartbeatEvery == 0 {
			in.health.beats++
		}
		fleet = append(fleet, routing.Sighting{Boot: in.bootID(), Beats: in.health.beats, Stored: in.health.verdict})
	}
	for boot, verdict := range e.watch.Round(e.clock(), e.clock(), fleet).Verdicts {
		in := e.fleet[e.index[boot.ID]]
		in.health.verdict = verdict
		switch {
		case verdict == routing.HealthDown:
			in.state = routing.Down
		case in.state == routing.Draining || in.state == routing.Cordoned: // also while suspect
		case verdict == routing.HealthSuspect:
			in.state = routing.Suspect
		case in.state == routing.Suspect || in.state == routing.Down:
			in.state = routing.Ready
		}
		changed = true
	}
	return changed
}

// breaker shows an instance's report to its circuit, and takes the trial it may
// grant.
func (e *engine) breaker(in *instance) (changed bool) {
	h := &in.health
	if in.alive && e.clock()%heartbeatEvery == 0 {
		h.circuit.Report(e.clock(), routing.Report{Running: in.running, MaxRunning: in.room})
	}
	before := h.breaker
	h.breaker = h.circuit.Status(e.clock()).State
	if h.breaker != routing.BreakerTrial {
		h.trial = false
	} else if _, granted := h.circuit.Grant(e.clock(), "simulation"); granted {
		h.trial, e.anyTrial = true, true
	}
	return h.breaker != before
}

// raise is a step of the ramp.
func (e *engine) raise() (changed bool) {
	if e.clock() < e.rampNext && !e.rampDirty {
		return false
	}
	var members []routing.RampMember
	for _, in := range e.fleet {
		if in.state != routing.Drained {
			members = append(members, routing.RampMember{
				Boot: in.bootID(), Weight: in.weight, Percent: in.health.percent, State: in.state,
			})
		}
	}
	pace := e.ramp.Step(e.clock(), members)
	for id, percent := range pace.Percents {
		if in := e.fleet[e.index[id]]; in.health.percent != percent {
			in.health.percent, changed = percent, true
		}
	}
	if e.rampNext = pace.Next; pace.Next == 0 {
		e.rampNext = 1 << 62
	}
	e.rampDirty = false
	return changed
}

// trials are the instances whose one trial may be used by the next request.
func (e *engine) trials() []string {
	e.trying = e.trying[:0]
	if !e.anyTrial {
		return nil
	}
	for _, in := range e.fleet {
		if in.health.trial {
			e.trying = append(e.trying, in.id)
		}
	}
	e.anyTrial = len(e.trying) > 0
	return e.trying
}
