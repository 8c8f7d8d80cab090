package services

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"berth/routing"
	"berth/statestore"
)

// unserved remembers for a while which instances did not serve a session's requests,
// as gateways told this process, so that its next hint names another. A session stays
// with who holds a live binding of it: there a hint elsewhere is dearer than one
// failure, and breakers, health and the gateway's own exclude say when to leave.
//
// It changes hints and nothing else: not who may write, and not what is stored. What
// other processes were told is not known here.
type unserved struct {
	mu sync.Mutex // of who adds
	by *otter.Cache[statestore.SessionDigest, []failure]
}

// failure is one boot's, which counts until a moment.
type failure struct {
	boot  statestore.Owner
	until time.Time
}

// Bounds of what is remembered: sessions, and instances of each. The oldest go first.
const (
	unservedSessions  = 16_384
	unservedInstances = 8
)

func newUnserved() (*unserved, error) {
	by, err := otter.New(&otter.Options[statestore.SessionDigest, []failure]{MaximumSize: unservedSessions})
	if err != nil {
		return nil, fmt.Errorf("make the memory of failures: %w", err)
	}
	return &unserved{by: by}, nil
}

// add remembers that a boot did not serve the session. The list is replaced, for it
// may be read meanwhile.
func (u *unserved) add(d statestore.SessionDigest, boot statestore.Owner, keep time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	old, _ := u.by.GetIfPresent(d)
	next := make([]failure, 0, len(old)+1)
	for _, f := range old {
		if f.boot != boot && now.Before(f.until) {
			next = append(next, f)
		}
	}
	next = append(next, failure{boot: boot, until: now.Add(keep)})
	u.by.Set(d, next[max(0, len(next)-unservedInstances):])
}

// of lists the instances that the session's next hint should pass by.
func (u *unserved) of(d statestore.SessionDigest, image *fleetImage, rec *routing.Record) (ids []string) {
	list, ok := u.by.GetIfPresent(d)
	if !ok {
		return nil
	}
	now := time.Now()
	for _, f := range list {
		holds := !rec.Lapsed && rec.Owner == f.boot.Instance && rec.Incarnation == f.boot.Incarnation
		in := image.instances[f.boot.Instance]
		if !holds && now.Before(f.until) && in != nil && in.Owner() == f.boot {
			ids = append(ids, f.boot.Instance)
		}
	}
	return ids
}

// reported takes in how a request to an instance ended; d is the session's digest,
// nil for none.
func (s *Server) reported(in *statestore.Instance, o routing.Outcome, d *statestore.SessionDigest) {
	s.tallies.outcome(in.Owner(), o)
	if d != nil && (o.Failed() || o.Loaded()) {
		s.unserved.add(*d, in.Owner(), s.policyOf(in.Pool).routing.Breaker.Window)
	}
}

// decideSession is decide for a session that may have met failures: it passes by who
// failed, unless nobody else can take the session. As a fallback who failed comes last.
func (s *Server) decideSession(
	image *fleetImage, pool *pool, d statestore.SessionDigest, req routing.Request, rec routing.Record,
) routing.Decision {
	failed := s.unserved.of(d, image, &rec)
	if len(failed) == 0 {
		return s.decide(pool, req, rec)
	}
	other := req
	other.Exclude = slices.Concat(req.Exclude, failed)
	to := s.decide(pool, other, rec)
	if to.Instance == nil || to.Reason == routing.ReasonPanic {
		return s.decide(pool, req, rec)
	}
	if missing := req.Fallbacks - len(to.Fallbacks); missing > 0 {
		to.Fallbacks = append(to.Fallbacks, lastResorts(pool, &req, &rec, &to, missing)...)
	}
	return to
}

// lastResorts are up to so many instances that a decision without the failures would
// name and this one does not.
func lastResorts(pool *pool, req *routing.Request, rec *routing.Record, to *routing.Decision, missing int) (list []*routing.Instance) {
	all := routing.Decide(pool.snapshot, *req, *rec)
	for _, in := range append([]*routing.Instance{all.Instance}, all.Fallbacks...) {
		named := in == nil || in == to.Instance || slices.Contains(to.Fallbacks, in)
		if !named && in.Breaker == routing.BreakerClosed && len(list) < missing {
			list = append(list, in)
		}
	}
	return list
}
