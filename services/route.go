package services

import (
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"time"

	"berth/routing"
	"berth/statestore"
	"berth/statestore/handle"
)

// Words that say why a route was answered without all it should know.
const (
	degradedStore  = "store_unavailable"
	degradedBudget = "miss_budget"
	degradedPanic  = "panic"
)

// routed is the answer to a route.
type routed struct {
	decision routing.Decision
	snapshot *routing.Snapshot
	floor    statestore.Floor
	session  bool // it was asked for one
	isNew    bool // nothing to load
	degraded string
	valid    time.Duration
	handle   string
}

// route answers where a request should go. It is the hot path: a plain handler
// that answers every method and sub-path, so that nginx, Envoy and forward-auth
// proxies call it as they are. It writes nothing to the store.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	id := r.Header.Get(hdrRequestID)
	if !validRequestID(id) {
		id = newRequestID()
	}
	out, q, err := s.answerRoute(r, id)
	if err != nil {
		s.refuseRoute(w, q, id, s.problem(err))
		return
	}
	s.metrics.routed(out, time.Since(started))
	writeRouted(w, id, &out)
}

// answerRoute decides.
func (s *Server) answerRoute(r *http.Request, id string) (routed, routeQuery, error) {
	values, err := query(r)
	q := routeQuery{always2xx: asks2xx(values)}
	if err != nil {
		return routed{}, q, err
	}
	if err := s.checkHeaders(r); err != nil {
		return routed{}, q, err
	}
	p, err := s.tokens.identify(r)
	if err != nil {
		return routed{}, q, err
	}
	if err := s.parseRoute(&q, values, r.Header, p); err != nil {
		return routed{}, q, err
	}
	s.metrics.reported(q.reports)
	image := s.fleet.now()
	pool := image.pools[q.pool]
	if pool == nil {
		if !image.loaded {
			return routed{}, q, newProblem("store_unavailable", "this process has not seen the fleet yet")
		}
		return routed{}, q, newProblem("unknown_pool", "no pool has this name")
	}
	s.takeReports(&q, image)
	out := routed{snapshot: pool.snapshot, session: q.session != ""}
	if !out.session {
		out.decision = s.decide(pool, routing.Request{
			RequestID: id, Exclude: q.exclude, Subset: q.subset, Fallbacks: q.fallbacks,
		}, routing.Record{})
		return out, q, nobody(&out)
	}
	err = s.routeSession(r.Context(), &q, image, pool, &out)
	return out, q, err
}

// takeReports takes in what a gateway says of the instances that it excludes.
func (s *Server) takeReports(q *routeQuery, image *fleetImage) {
	if len(q.reports) == 0 {
		return
	}
	var session *statestore.SessionDigest
	if q.session != "" {
		digest := q.key().Digest()
		session = &digest
	}
	for _, r := range q.reports {
		if in := image.instances[r.instance]; in != nil && in.Pool == q.pool {
			s.reported(in, outcomeOf(string(r.result)), session)
		}
	}
}

// nobody refuses a decision without an instance.
func nobody(out *routed) error {
	if out.decision.Instance != nil {
		if out.decision.Reason == routing.ReasonPanic {
			out.degraded = degradedPanic
		}
		return nil
	}
	if out.decision.Shed {
		return newProblem("busy", "all instances are over their bound")
	}
	return newProblem("not_eligible", "no instance of the pool may take this request")
}

// routeSession decides for a session and signs what the caller may know of it.
func (s *Server) routeSession(ctx context.Context, q *routeQuery, image *fleetImage, pool *pool, out *routed) error {
	key := q.key()
	digest := key.Digest()
	held, err := s.heldHandle(q, digest)
	if err != nil {
		return err
	}
	b, second, err := s.bindingFor(ctx, key, digest, q, held)
	req := routing.Request{Key: q.ringKey(), Exclude: q.exclude, Subset: q.subset, Fallbacks: q.fallbacks}
	purpose := handle.Route
	if err != nil {
		if out.degraded, err = degradedWord(err); err != nil {
			return err
		}
		purpose = handle.Degraded
		out.decision, out.floor = degradedDecision(pool.snapshot, req, b)
		out.floor, second = unverified(out.floor, held)
	} else {
		if q.affinity != "" {
			req.Hinted, req.Session = pool.hints, binary.BigEndian.Uint64(digest[:])
		}
		out.decision = s.decideSession(image, pool, digest, req, b.record())
		if req.Hinted != nil {
			req.Hinted.Count(&req, &out.decision)
		}
		out.floor, out.isNew = b.floor, b.floor.Version == 0
		out.valid = max(0, s.options.HintValid-time.Since(b.read))
		if out.isNew {
			out.decision.Jump, out.decision.Previous = false, ""
		}
	}
	if err := nobody(out); err != nil {
		return err
	}
	plain := purpose == handle.Route && second == nil && q.affinity == "" && q.fallbacks == 0
	if !plain {
		out.handle = s.signRoute(out, purpose, digest, second, q, pool)
		return nil
	}
	last := b.signed.Load()
	if last == nil || last.instance != out.decision.Instance.ID || time.Now().After(last.until) {
		last = &signedHandle{
			instance: out.decision.Instance.ID, until: time.Now().Add(reuse(pool.policy.lifetimes.Retention)),
			text: s.signRoute(out, purpose, digest, nil, q, pool),
		}
		b.signed.Store(last)
	}
	out.handle = last.text
	return nil
}

// record is what a decision sees of the binding.
func (b *binding) record() routing.Record {
	return routing.Record{
		Exists: b.exists, Owner: b.owner.Instance, Incarnation: b.owner.Incarnation,
		Lapsed: !b.live(), BoundFor: b.now().Sub(b.boundAt), LastServer: b.lastServer,
	}
}

// degradedDecision decides without the store: a cached binding of any age holds,
// else the ring owner.
func degradedDecision(snap *routing.Snapshot, req routing.Request, b *binding) (routing.Decision, statestore.Floor) {
	if b == nil {
		return routing.Degraded(snap, req), statestore.Floor{}
	}
	rec := b.record()
	rec.Lapsed, rec.BoundFor = false, 0
	return routing.Decide(snap, req, rec), b.floor
}

// unverified joins what is cached with what a held handle says, when nobody can
// hold them against the record: the answered handle carries both, so that neither
// is forgotten should one be off the record's lineage.
func unverified(cached statestore.Floor, held *handle.Handle) (statestore.Floor, *statestore.Floor) {
	if held == nil {
		return cached, nil
	}
	floor, other := cached, held.Floor
	if other.Version > floor.Version {
		floor, other = other, floor
	}
	if held.Second != nil || other.Version == 0 || other == floor {
		return floor, held.Second
	}
	return floor, &other
}

// degradedWord tells errors that a route survives from those it does not.
func degradedWord(err error) (string, error) {
	switch {
	case errors.Is(err, errBudget):
		return degradedBudget, nil
	case errors.Is(err, statestore.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return degradedStore, nil
	}
	return "", err
}

// heldHandle verifies the handle that the gateway holds; one that is not good is
// as none, since the route answers a new one.
func (s *Server) heldHandle(q *routeQuery, d statestore.SessionDigest) (*handle.Handle, error) {
	if q.held == "" {
		return nil, nil
	}
	h, err := s.handles.Verify(q.held, d, s.fleet.storeWall())
	if err != nil {
		s.metrics.refusedHandle(err)
		return nil, nil //nolint:nilerr // see above
	}
	return &h, nil
}

// bindingFor returns what the store, or the cache, knows of the session, and the
// held floor if it is off the record's lineage. With an error, the binding may
// be a cached one of any age.
func (s *Server) bindingFor(
	ctx context.Context, key statestore.SessionKey, d statestore.SessionDigest, q *routeQuery, held *handle.Handle,
) (*binding, *statestore.Floor, error) {
	if len(q.exclude) == 0 {
		if b := s.bindings.cached(d); b != nil && (held == nil || held.Second == nil && held.Floor == b.floor) {
			return b, nil, nil
		}
	}
	res, err := s.bindings.read(ctx, key, d, held != nil)
	if err != nil {
		return s.bindings.stale(d), nil, err
	}
	if held == nil {
		return res.b, nil, nil
	}
	return res.b, offLineage(&res.view, held), nil
}

// offLineage is the floor of a held handle that the record does not continue,
// unless that loss was accepted or belongs to a life before.
func offLineage(v *statestore.View, held *handle.Handle) *statestore.Floor {
	for _, f := range []*statestore.Floor{held.Second, &held.Floor} {
		if f == nil || f.Version == 0 {
			continue
		}
		if !v.Exists {
			if f.Epoch >= v.Tombstone.Epoch {
				return f
			}
			continue
		}
		if f.Epoch >= v.Before.Epoch && !v.Holds(*f) && !v.Forgiven(*f) {
			return f
		}
	}
	return nil
}

func (s *Server) signRoute(
	out *routed, purpose handle.Purpose, d statestore.SessionDigest, second *statestore.Floor, q *routeQuery, pool *pool,
) string {
	h := handle.Handle{
		Purpose: purpose, Session: d, Floor: out.floor, Second: second,
		AffinityKey: affinityKey(q.affinity),
		Expires:     s.fleet.storeWall().Add(pool.policy.lifetimes.Retention),
	}
	h.Name(out.decision.Instance.ID)
	for _, f := range out.decision.Fallbacks {
		h.Name(f.ID)
	}
	return s.handles.Sign(&h)
}

// refuseRoute answers a refusal, as 200 for proxies that turn every other status
// into their own error.
func (s *Server) refuseRoute(w http.ResponseWriter, q routeQuery, id string, p *Problem) {
	s.metrics.refusedRoute(p)
	p.Instance = id
	w.Header().Set(hdrRequestID, id)
	if q.always2xx {
		writeAlways2xx(w, p)
		return
	}
	sendProblem(w, p)
}
