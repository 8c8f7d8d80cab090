package services

import (
	"sync"
	"time"

	"berth/routing"
	"berth/statestore"
)

// trials are the requests that half open breakers let through: one at a time, by
// the one process that the holder of the health lease granted it to. The grant is
// part of the snapshot; that it was used is known here.
type trials struct {
	process string
	mu      sync.Mutex
	granted map[statestore.Owner]*trial
}

type trial struct {
	number uint64
	until  time.Time // not to be used after: the slot is given to another soon
	used   bool
}

// trialsKept is how long a grant is remembered after its time: longer than any
// snapshot that holds it.
const trialsKept = time.Hour

func newTrials(process string) *trials {
	return &trials{process: process, granted: map[statestore.Owner]*trial{}}
}

// open lists the instances of a pool for which this process holds an unused grant.
// It is called for every request, and costs nothing while no breaker is half open.
func (t *trials) open(p *pool) []string {
	if len(p.halfOpen) == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids []string
	for _, in := range p.halfOpen {
		if g := t.grant(in, p.policy); g != nil && !g.used && time.Now().Before(g.until) {
			ids = append(ids, in.ID)
		}
	}
	return ids
}

// grant is what this process was granted of an instance, nil for nothing.
func (t *trials) grant(in *statestore.Instance, policy *poolPolicy) *trial {
	if in.TrialTo != t.process {
		return nil
	}
	g := t.granted[in.Owner()]
	if g == nil || g.number != in.Trial {
		for who, old := range t.granted {
			if time.Since(old.until) > trialsKept {
				delete(t.granted, who)
			}
		}
		g = &trial{number: in.Trial, until: time.Now().Add(policy.routing.Breaker.UseTrialWithin())}
		t.granted[in.Owner()] = g
	}
	return g
}

// take uses up the grant of an instance, and reports whether it was still there.
func (t *trials) take(p *pool, id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, in := range p.halfOpen {
		if in.ID != id {
			continue
		}
		if g := t.grant(in, p.policy); g != nil && !g.used {
			g.used = true
			return true
		}
	}
	return false
}

// decide is routing.Decide with the trials that this process may make.
func (s *Server) decide(p *pool, req routing.Request, rec routing.Record) routing.Decision {
	req.Trials = s.trials.open(p)
	d := routing.Decide(p.snapshot, req, rec)
	if !d.Trial || s.trials.take(p, d.Instance.ID) {
		return d
	}
	req.Trials = nil // another request was faster
	return routing.Decide(p.snapshot, req, rec)
}
