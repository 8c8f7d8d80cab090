package services

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"berth/statestore"
	"berth/statestore/handle"
)

// writeInput is what appends and replaces come as, beside their body.
type writeInput struct {
	ID          string `path:"id" doc:"percent-encoded, or - with the id in X-Session-ID"`
	ContentType string `header:"Content-Type" hidden:"true"`
	Op          string `header:"Idempotency-Key" doc:"raw turns: the op"`
	Handle      string `header:"X-Berth-Handle" doc:"raw turns: the newest handle"`
	Instance    string `header:"X-Berth-Instance" doc:"raw turns: who writes"`
	Incarnation string `header:"X-Berth-Incarnation" doc:"raw turns: of the instance"`
}

type writeOutput struct {
	CacheControl string `header:"Cache-Control"`
	Body         receiptBody
}

type receiptBody struct {
	Version    uint64     `json:"version" doc:"that this op made"`
	Epoch      uint64     `json:"epoch"`
	Turns      uint64     `json:"turns"`
	Bytes      uint64     `json:"bytes"`
	Durability Durability `json:"durability"`
	Handle     string     `json:"handle" doc:"the newest; present it with the next write"`
	AffinityMS int64      `json:"affinity_ms" doc:"time until the binding lapses"`
	Duplicate  bool       `json:"duplicate,omitempty" doc:"the op was known"`
	Moved      *OwnerRef  `json:"moved,omitempty" doc:"the session was moved there; this late write was taken"`
}

// Durability is what a write reached.
type Durability struct {
	Level    string `json:"level" enum:"unknown,memory,fsynced,replicated"`
	Replicas *int   `json:"replicas,omitempty"`
	Of       *int   `json:"of,omitempty"`
}

func durability(d statestore.Durability) Durability {
	out := Durability{Level: d.Level.String()}
	if d.Level == statestore.LevelReplicated {
		out.Replicas, out.Of = &d.Replicas, &d.Of
	}
	return out
}

func (s *Server) appendTurns(ctx context.Context, in *writeInput) (*writeOutput, error) {
	w, err := s.readWrite(ctx, in)
	if err != nil {
		return nil, err
	}
	if len(w.turns) == 0 {
		return nil, invalid("body.turns", "needs at least one turn")
	}
	w.adds = len(w.turns)
	receipt, err := s.store.Append(ctx, statestore.Append{
		Key: w.key, By: w.by, Handle: w.presented, Op: w.body.Op, At: w.at, Base: w.body.Base, Recreate: w.body.Recreate,
		Turns: w.turns, Meta: w.meta, Lifetimes: w.policy.lifetimes, Require: w.policy.require,
	})
	if err != nil {
		err = fmt.Errorf("append to session %s: %w", s.tag(w.digest), err)
	}
	return s.wrote(ctx, w, receipt, err)
}

func (s *Server) replaceSession(ctx context.Context, in *writeInput) (*writeOutput, error) {
	w, err := s.readWrite(ctx, in)
	if err != nil {
		return nil, err
	}
	if w.body.Turns == nil {
		return nil, invalid("body.turns", "is the whole context, if need be an empty list")
	}
	if w.body.Base != nil || w.body.At != "" {
		return nil, invalid("body", "a replace takes neither base nor at")
	}
	receipt, err := s.store.Replace(ctx, statestore.Replace{
		Key: w.key, By: w.by, Handle: w.presented, Op: w.body.Op, Recreate: w.body.Recreate,
		Turns: w.turns, Meta: w.meta, Lifetimes: w.policy.lifetimes, Require: w.policy.require,
	})
	if err != nil {
		err = fmt.Errorf("replace session %s: %w", s.tag(w.digest), err)
	}
	return s.wrote(ctx, w, receipt, err)
}

// write is a decoded and checked write.
type write struct {
	key       statestore.SessionKey
	digest    statestore.SessionDigest
	by        statestore.Owner
	body      writeBody
	turns     []statestore.Turn
	adds      int // turns: all of an append, none of a replace
	meta      []byte
	kv        []byte
	at        statestore.At
	presented statestore.Presented
	handle    handle.Handle
	policy    *poolPolicy
}

// readWrite decodes a write and checks everything that needs no store.
func (s *Server) readWrite(ctx context.Context, in *writeInput) (*write, error) {
	if _, err := require(ctx, RoleWorker); err != nil {
		return nil, err // before a large body is read
	}
	if err := checkWriteQuery(queryOf(ctx)); err != nil {
		return nil, err
	}
	body, err := s.readContext(ctx)
	if err != nil {
		return nil, err
	}
	w := new(write)
	if err := w.decode(in, body); err != nil {
		return nil, err
	}
	if w.by, err = s.speakerIn(ctx, w.body.Instance, w.body.Incarnation); err != nil {
		return nil, err
	}
	if w.key, err = s.sessionKey(ctx, in.ID); err != nil {
		return nil, err
	}
	if err := statestore.ValidateOp(w.body.Op); err != nil {
		return nil, inBody("op", err)
	}
	if err := w.check(); err != nil {
		return nil, err
	}
	w.digest, w.policy = w.key.Digest(), s.policyOf(w.key.Pool)
	if w.handle, err = s.handles.Verify(w.body.Handle, w.digest, s.fleet.storeWall()); err != nil {
		return nil, err
	}
	if w.handle.Purpose == handle.Prewarm {
		return nil, &handle.Error{Why: handle.WrongPurpose}
	}
	w.presented = w.handle.Presented(w.by.Instance)
	if w.handle.Floor.Version == 0 {
		// It may create the session, and nobody is bound who is not registered.
		if _, err := s.instanceIn(ctx, w.by, w.key.Pool); err != nil {
			return nil, err
		}
	}
	return w, s.readKV(w)
}

// checkWriteQuery refuses query parameters that no write reads: who asks for ?at=end, say
// with raw bytes, would be taken for one who does not.
func checkWriteQuery(q parameters) error {
	for name := range q.all() {
		if name != "pool" && name != "model" {
			return invalid("query."+name[:min(len(name), maxQuoted)],
				"is no parameter of a write; at, base and all else stand in a JSON body, where raw bytes come as base64")
		}
	}
	return nil
}

// check refuses what is too large or out of its range.
func (w *write) check() error {
	for _, t := range w.turns {
		if n := uint64(len(t.Value)); n > statestore.MaxTurnBytes {
			return &statestore.TooLargeError{What: "turn", Limit: statestore.MaxTurnBytes, Size: n}
		}
	}
	w.meta = nullAsAbsent(w.body.Meta)
	if n := uint64(len(w.meta)); n > statestore.MaxMetaBytes {
		return &statestore.TooLargeError{What: "meta", Limit: statestore.MaxMetaBytes, Size: n}
	}
	switch w.body.At {
	case "", "version":
	case "end":
		w.at = statestore.AtEnd
		if w.body.Base != nil {
			return invalid("body.at", "base needs at: version")
		}
	default:
		return invalid("body.at", "must be version or end")
	}
	return nil
}

// readKV checks the placements that come with a write, before anything is stored.
func (s *Server) readKV(w *write) error {
	if len(w.body.KV) == 0 {
		return nil
	}
	list, err := readPlacements(w.body.KV)
	if err != nil {
		return err
	}
	by := s.fleet.now().instances[w.by.Instance]
	if by != nil && by.Incarnation != w.by.Incarnation {
		by = nil
	}
	w.kv, err = checkPlacements(list, by, "body.kv")
	return err
}

func nullAsAbsent(raw json.RawMessage) []byte {
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return raw
}

// wrote answers a write, after what depends on its success.
func (s *Server) wrote(ctx context.Context, w *write, r statestore.Receipt, err error) (*writeOutput, error) {
	var weak *statestore.NotDurableError
	if errors.As(err, &weak) && w.policy.accept {
		r, err = weak.Receipt, nil
		r.Durability = weak.Reached
	}
	if err != nil {
		return nil, s.writeRefused(w, err)
	}
	s.metrics.appended(r, w.adds)
	s.metrics.losses.wrote(w.digest, statestore.DigestOp(w.body.Op), w.presented.Floor)
	s.bindings.wrote(w.digest, r, w.by)
	s.tallies.wrote(w.by)
	if w.kv != nil {
		if err := s.store.PutPlacements(ctx, w.key, w.by, w.kv); err != nil {
			// The turns are stored; a hint about their cache is not worth a refusal.
			s.log.Warn("placements not stored", "session", s.tag(w.digest), "error", err)
		}
	}
	s.countUsage(w)
	out := &writeOutput{CacheControl: "no-store", Body: receiptBody{
		Version: r.Version, Epoch: r.Epoch, Turns: r.Turns, Bytes: r.Bytes,
		Durability: durability(r.Durability), AffinityMS: r.Affinity.Milliseconds(), Duplicate: r.Duplicate,
		Handle: s.signSave(w.digest, r.Floor, w.by.Instance, w.handle.AffinityKey, w.policy),
	}}
	if r.Moved {
		out.Body.Moved = s.ownerRef(r.Owner, r.Epoch)
	}
	return out, nil
}

// writeRefused adds to a refusal what only this call knows.
func (s *Server) writeRefused(w *write, err error) error {
	s.metrics.losses.refused(w.digest, err, &w.presented, nil)
	p := s.problem(err)
	switch p.Code {
	case "outcome_unknown", "not_durable", "store_unavailable":
		p.Op = w.body.Op
	case "not_owner", "stale_handle":
		s.bindings.forget(w.digest)
		var other *statestore.NotOwnerError
		if errors.As(err, &other) && other.Owner == w.by {
			p.Detail = fmt.Sprintf("the caller owns the session, but at epoch %d, which is not that of the handle: "+
				"the session has gone on; repeat the op with the newest handle", other.Epoch)
		}
	}
	return p
}

// signSave is the handle that a write answers.
func (s *Server) signSave(
	d statestore.SessionDigest, f statestore.Floor, instance string, key statestore.AffinityKey, policy *poolPolicy,
) string {
	h := handle.Handle{
		Purpose: handle.Save, Session: d, Floor: f, AffinityKey: key,
		Expires: s.fleet.storeWall().Add(policy.lifetimes.Retention),
	}
	h.Name(instance)
	return s.handles.Sign(&h)
}

func (s *Server) countUsage(w *write) {
	if len(w.body.Usage) == 0 {
		return
	}
	var usage map[string]any
	if json.Unmarshal(w.body.Usage, &usage) != nil {
		return // not an object: nothing to count
	}
	in := s.fleet.now().instances[w.by.Instance]
	s.metrics.usage(in, usage)
}

// ownerRef says where an owner is; nil for nobody.
func (s *Server) ownerRef(o statestore.Owner, epoch uint64) *OwnerRef {
	if o.IsZero() {
		return nil
	}
	ref := &OwnerRef{Instance: o.Instance, Epoch: epoch}
	if in := s.fleet.now().instances[o.Instance]; in != nil {
		ref.Address = in.Address
	}
	return ref
}
