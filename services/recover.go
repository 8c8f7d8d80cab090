package services

import (
	"context"
	"errors"
	"fmt"

	"github.com/danielgtaylor/huma/v2"

	"berth/statestore"
	"berth/statestore/handle"
)

type recoverInput struct {
	Accept string `header:"Accept" hidden:"true"`
	Body   struct {
		Session     string    `json:"session" minLength:"1" doc:"session id, 1 to 256 bytes of UTF-8 without control characters"`
		Handle      string    `json:"handle,omitempty" doc:"the newest one held; a claim of a session that a live instance owns needs one of /route that names the caller"`
		Instance    string    `json:"instance,omitempty" doc:"who asks; mode read may leave it out"`
		Incarnation string    `json:"incarnation,omitempty" doc:"of the instance, from its registration"`
		Mode        string    `json:"mode,omitempty" enum:"claim,prewarm,read" doc:"default: claim"`
		Have        *haveBody `json:"have,omitempty" doc:"what the caller's own copy holds"`
		Turns       string    `json:"turns,omitempty" enum:"all,none" doc:"default: all"`
		AcceptLost  bool      `json:"accept_lost,omitempty" doc:"go on although the store holds less than was promised"`
	}
}

type haveBody struct {
	Handle string `json:"handle" doc:"that the caller's own copy has"`
	Turns  uint64 `json:"turns" doc:"how many turns the copy holds"`
}

// recovery is one recover call on its way.
type recovery struct {
	key       statestore.SessionKey
	digest    statestore.SessionDigest
	by        statestore.Owner
	instance  *statestore.Instance // nil for a reader that is none
	mode      string
	presented *statestore.Presented
	have      *statestore.Floor
	haveTurns uint64
	route     bool // the handle may claim
	policy    *poolPolicy
}

// recoverSession answers everything that another instance needs to go on with a
// session: in mode claim it becomes the owner first.
func (s *Server) recoverSession(ctx context.Context, in *recoverInput) (*huma.StreamResponse, error) {
	rc, err := s.readRecovery(ctx, in)
	if err != nil {
		return nil, err
	}
	var lost *statestore.Loss
	var level statestore.Durability
	if rc.mode == "claim" {
		claimed, err := s.claim(ctx, rc, in.Body.AcceptLost)
		if err != nil {
			return nil, err
		}
		lost, level = claimed.Lost, claimed.Durability
	}
	reading, err := s.store.Load(ctx, rc.key, 0)
	if err != nil {
		return nil, fmt.Errorf("load session %s: %w", s.tag(rc.digest), err)
	}
	if lost == nil && !(rc.mode == "claim" && in.Body.AcceptLost) {
		if err := reading.Check(rc.presented, rc.have); err != nil {
			s.metrics.losses.refused(rc.digest, err, rc.presented, rc.have)
			return nil, err
		}
	}
	if rc.mode == "claim" && reading.Exists && reading.Owner != rc.by {
		return nil, &statestore.StaleHandleError{Owner: reading.Owner, Epoch: reading.Epoch}
	}
	doc, err := s.recoveryDocument(rc, &reading, lost, level)
	if err != nil {
		return nil, err
	}
	s.metrics.recovered(rc.mode, doc.Plan)
	if reading.Exists && (rc.instance == nil || reading.Owner != rc.by) {
		s.audit(caller(ctx), "read content", "session", s.tag(rc.digest))
	}
	if in.Body.Turns == "none" {
		reading.Turns = nil
	} else if doc.Base > 0 {
		// The first look was for the record; the turns are wanted from the base.
		again, err := s.store.Load(ctx, rc.key, doc.Base)
		if err != nil {
			return nil, fmt.Errorf("load session %s: %w", s.tag(rc.digest), err)
		}
		if again.Epoch != reading.Epoch || again.Version != reading.Version {
			return nil, statestore.ErrChanged
		}
		reading.Turns = again.Turns
	}
	return s.stream(wantsLines(in.Accept), doc, &reading, nil), nil
}

// readRecovery decodes and checks everything that needs no session.
func (s *Server) readRecovery(ctx context.Context, in *recoverInput) (*recovery, error) {
	p := caller(ctx)
	if !p.reads() {
		return nil, newProblem("forbidden", "reading a conversation needs the role worker or the scope content")
	}
	b := &in.Body
	rc := &recovery{mode: b.Mode}
	if rc.mode == "" {
		rc.mode = "claim"
	}
	var err error
	if err := statestore.ValidateSessionID(b.Session); err != nil {
		return nil, badID("body.session", err)
	}
	if rc.key, err = s.keyFor(ctx, b.Session); err != nil {
		return nil, err
	}
	rc.digest, rc.policy = rc.key.Digest(), s.policyOf(rc.key.Pool)
	if b.Instance != "" || rc.mode != "read" {
		if rc.by, err = s.speakerIn(ctx, b.Instance, b.Incarnation); err != nil {
			return nil, err
		}
		if rc.instance, err = s.instanceIn(ctx, rc.by, rc.key.Pool); err != nil {
			return nil, err
		}
	}
	if b.Handle != "" {
		h, err := s.handles.Verify(b.Handle, rc.digest, s.fleet.storeWall())
		if err != nil {
			return nil, err
		}
		presented := h.Presented(rc.by.Instance)
		rc.presented, rc.route = &presented, h.Purpose == handle.Route
	}
	if b.Have != nil {
		h, err := s.handles.Verify(b.Have.Handle, rc.digest, s.fleet.storeWall())
		if err != nil {
			return nil, err
		}
		rc.have, rc.haveTurns = &h.Floor, b.Have.Turns
	}
	return rc, nil
}

// claim makes the caller the owner. An owner that the fleet lost is named to the
// store, which lets the claim pass only while the session still belongs to it.
func (s *Server) claim(ctx context.Context, rc *recovery, acceptLost bool) (statestore.Claimed, error) {
	c := statestore.Claim{
		Key: rc.key, By: rc.by, Handle: rc.presented, Have: rc.have, AcceptLost: acceptLost,
		Lifetimes: rc.policy.lifetimes, Require: rc.policy.require,
	}
	claimed, err := s.store.Claim(ctx, c)
	var stale *statestore.StaleHandleError
	if errors.As(err, &stale) && s.lost(ctx, stale.Owner) {
		c.Gone = stale.Owner
		claimed, err = s.store.Claim(ctx, c)
	}
	if errors.As(err, &stale) {
		err = s.claimRefused(rc, stale)
	}
	if err != nil {
		s.metrics.losses.refused(rc.digest, err, rc.presented, rc.have)
		return claimed, fmt.Errorf("claim session %s: %w", s.tag(rc.digest), err)
	}
	if claimed.Lost != nil {
		s.metrics.losses.accepted(rc.digest)
	}
	if claimed.Changed {
		s.bindings.forget(rc.digest)
		s.metrics.claimed(&claimed, s.fleet.now())
	}
	return claimed, nil
}

// claimRefused says why a session was not claimed where its epoch is not the reason.
func (s *Server) claimRefused(rc *recovery, stale *statestore.StaleHandleError) error {
	detail := "an instance that is not known to be down owns the session: a claim needs a handle of /route that names the caller"
	switch {
	case rc.presented == nil:
	case rc.presented.Epoch != stale.Epoch:
		return stale
	case !rc.route:
		return &handle.Error{Why: handle.WrongPurpose}
	default:
		detail = "the handle names another instance than the caller: a claim needs a handle of /route that names the caller"
	}
	p := newProblem("stale_handle", detail)
	p.Owner, p.cause = s.ownerRef(stale.Owner, stale.Epoch), stale
	return p
}

// lost reports whether the fleet lost an owner. Another process may just have
// registered it, or removed it: only a registry read from here on can tell.
func (s *Server) lost(ctx context.Context, o statestore.Owner) bool {
	return !o.IsZero() && s.fleet.refresh(ctx) == nil && s.fleet.now().gone(o)
}

// RecoveryDocument is the answer without its turns.
type RecoveryDocument struct {
	Epoch      uint64            `json:"epoch" doc:"of the binding: fencing token of its owner"`
	Version    uint64            `json:"version" doc:"accepted writes"`
	New        bool              `json:"new,omitempty" doc:"nothing is stored: there is nothing to load"`
	Base       uint64            `json:"base" doc:"keep this many of your turns, drop the rest, then come these"`
	Count      uint64            `json:"count" doc:"turns stored, with those below base"`
	Digest     string            `json:"digest,omitempty" doc:"equal digests mean equal histories of writes"`
	KV         []JudgedPlacement `json:"kv" doc:"where KV of the session lies, each with a verdict for the caller"`
	Plan       string            `json:"plan" enum:"kv,kv_prefix,recompute" doc:"the best that the placements allow the caller"`
	Handle     string            `json:"handle" doc:"present it with the next write"`
	AffinityMS int64             `json:"affinity_ms" doc:"time until the binding lapses"`
	Durability *Durability       `json:"durability,omitempty" doc:"of the claim"`
	Lost       *lostBody         `json:"lost,omitempty" doc:"what the store has lost, where accept_lost accepted it"`
	Parked     []parkedBody      `json:"parked,omitempty" doc:"refused appends that wait for the owner, oldest first: append each under its op to adopt it"`

	meta []byte // kept apart: it travels as the bytes that came
}

type lostBody struct {
	Have Have `json:"have" doc:"what the store holds"`
	Want Want `json:"want" doc:"what was promised"`
}

func (s *Server) recoveryDocument(
	rc *recovery, reading *statestore.Reading, lost *statestore.Loss, level statestore.Durability,
) (*RecoveryDocument, error) {
	floor := reading.Floor()
	doc := &RecoveryDocument{
		Epoch: floor.Epoch, Version: floor.Version, New: floor.Version == 0, Plan: planRecompute, KV: []JudgedPlacement{},
		AffinityMS: reading.AffinityLeft().Milliseconds(), Count: reading.Record.Turns,
	}
	if lost != nil {
		doc.Lost = &lostBody{Have: Have{lost.HaveVersion, lost.HaveTurns}, Want: Want{lost.WantVersion}}
	}
	if level.Level != statestore.LevelUnknown {
		d := durability(level)
		doc.Durability = &d
	}
	key := statestore.AffinityKey{}
	if rc.presented != nil {
		key = rc.presented.AffinityKey
	}
	if reading.Exists {
		key = reading.AffinityKey
		if t := reading.Tail; t != nil && t.Owner == rc.by {
			floor.Epoch = t.Epoch // what the tail may still append with
		}
		if err := s.describeRecord(doc, rc, reading); err != nil {
			return nil, err
		}
	}
	doc.Handle = s.signRecovered(rc, floor, key)
	return doc, nil
}

// describeRecord fills in what only a stored session has.
func (s *Server) describeRecord(doc *RecoveryDocument, rc *recovery, reading *statestore.Reading) error {
	doc.Digest, doc.meta = fmt.Sprintf("%x", reading.Digest), reading.Meta
	if rc.have != nil {
		doc.Base = reading.Base(*rc.have, rc.haveTurns)
	}
	who := asker{}
	if rc.instance != nil {
		who = asker{instance: rc.instance.ID, compat: rc.instance.Compat}
	}
	var err error
	if doc.KV, doc.Plan, err = judgePlacements(&reading.Record, reading.Placements, s.fleet.now(), who); err != nil {
		return err
	}
	if reading.Owner == rc.by || rc.mode == "read" {
		doc.Parked = parkedBodies(reading.Parked)
	}
	return nil
}

func (s *Server) signRecovered(rc *recovery, floor statestore.Floor, key statestore.AffinityKey) string {
	if rc.mode == "prewarm" {
		h := handle.Handle{
			Purpose: handle.Prewarm, Session: rc.digest, Floor: floor,
			Expires: s.fleet.storeWall().Add(rc.policy.lifetimes.Retention),
		}
		h.Name(rc.by.Instance)
		return s.handles.Sign(&h)
	}
	return s.signSave(rc.digest, floor, rc.by.Instance, key, rc.policy)
}
