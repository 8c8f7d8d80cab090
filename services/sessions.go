package services

import (
	"context"
	"errors"
	"fmt"

	"github.com/danielgtaylor/huma/v2"

	"berth/statestore"
	"berth/statestore/handle"
)

type loadInput struct {
	ID     string `path:"id" doc:"percent-encoded, or - with the id in X-Session-ID"`
	From   uint64 `query:"from" doc:"the first turn wanted, from 0"`
	Accept string `header:"Accept" hidden:"true"`
}

// SessionDocument is a record as the API shows it.
type SessionDocument struct {
	Session    string    `json:"session"`
	Tenant     string    `json:"tenant"`
	Pool       string    `json:"pool"`
	Owner      *OwnerRef `json:"owner,omitempty"`
	Epoch      uint64    `json:"epoch"`
	Version    uint64    `json:"version"`
	Count      uint64    `json:"count" doc:"turns stored"`
	Tokens     uint64    `json:"tokens"`
	Bytes      uint64    `json:"bytes"`
	Digest     string    `json:"digest"`
	Live       bool      `json:"live" doc:"bound, and the affinity holds"`
	AgeMS      int64     `json:"age_ms"`
	IdleMS     int64     `json:"idle_ms"`
	BoundMS    int64     `json:"bound_ms"`
	AffinityMS int64     `json:"affinity_ms"`
	ExpiresMS  int64     `json:"expires_ms"`
}

func (s *Server) sessionDocument(v *statestore.View) *SessionDocument {
	return &SessionDocument{
		Session: v.Key.ID, Tenant: v.Key.Tenant, Pool: v.Key.Pool, Owner: s.ownerRef(v.Owner, v.Epoch),
		Epoch: v.Epoch, Version: v.Version, Count: v.Turns, Tokens: v.Tokens, Bytes: v.Bytes,
		Digest: fmt.Sprintf("%x", v.Digest), Live: v.Live(),
		AgeMS: v.Now.Sub(v.Created).Milliseconds(), IdleMS: v.Idle().Milliseconds(), BoundMS: v.BindingAge().Milliseconds(),
		AffinityMS: v.AffinityLeft().Milliseconds(), ExpiresMS: v.Expires.Sub(v.Now).Milliseconds(),
	}
}

func (s *Server) loadSession(ctx context.Context, in *loadInput) (*huma.StreamResponse, error) {
	p, err := require(ctx, RoleWorker, RoleOperator, RoleGateway)
	if err != nil {
		return nil, err
	}
	key, err := s.sessionKey(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	reading, err := s.store.Load(ctx, key, in.From)
	if err != nil {
		return nil, fmt.Errorf("load session %s: %w", s.tag(key.Digest()), err)
	}
	if err := present(&reading.View); err != nil {
		return nil, err
	}
	if !p.reads() {
		// An operator sees records and sizes, not what was said.
		reading.Turns, reading.Meta = nil, nil
	} else {
		// Nothing says that the caller is the owner.
		s.audit(p, "read content", "session", s.tag(key.Digest()))
	}
	return s.stream(wantsLines(in.Accept), s.sessionDocument(&reading.View), &reading, s.metrics.loaded), nil
}

// present refuses a session that is not there, and says how it ended.
func present(v *statestore.View) error {
	switch {
	case v.Exists:
		return nil
	case v.Tombstone.Reason != "":
		return &statestore.EndedError{Reason: v.Tombstone.Reason, Epoch: v.Tombstone.Epoch}
	}
	return newProblem("not_found", "there is no such session")
}

type finishInput struct {
	ID   string `path:"id"`
	Body struct {
		Handle      string `json:"handle" doc:"the newest one held"`
		Instance    string `json:"instance" doc:"who owns the session"`
		Incarnation string `json:"incarnation" doc:"of the instance"`
	}
}

type finishOutput struct {
	CacheControl string `header:"Cache-Control"`
	Body         struct {
		Epoch      uint64     `json:"epoch"`
		Durability Durability `json:"durability"`
		Handle     string     `json:"handle"`
	}
}

func (s *Server) finishSession(ctx context.Context, in *finishInput) (*finishOutput, error) {
	by, err := s.speakerIn(ctx, in.Body.Instance, in.Body.Incarnation)
	if err != nil {
		return nil, err
	}
	key, err := s.sessionKey(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	h, err := s.verifyForWrite(in.Body.Handle, key)
	if err != nil {
		return nil, err
	}
	policy, presented := s.policyOf(key.Pool), h.Presented(by.Instance)
	receipt, err := s.store.Finish(ctx, statestore.Finish{
		Key: key, By: by, Handle: presented, Lifetimes: policy.lifetimes, Require: policy.require,
	})
	if err != nil {
		s.metrics.losses.refused(key.Digest(), err, &presented, nil)
		return nil, fmt.Errorf("finish session %s: %w", s.tag(key.Digest()), err)
	}
	s.bindings.forget(key.Digest())
	out := &finishOutput{CacheControl: "no-store"}
	out.Body.Epoch, out.Body.Durability = receipt.Epoch, durability(receipt.Durability)
	out.Body.Handle = s.signSave(key.Digest(), receipt.Floor, by.Instance, h.AffinityKey, policy)
	return out, nil
}

// verifyForWrite reads a handle that may change the session.
func (s *Server) verifyForWrite(text string, key statestore.SessionKey) (handle.Handle, error) {
	h, err := s.handles.Verify(text, key.Digest(), s.fleet.storeWall())
	if err == nil && h.Purpose == handle.Prewarm {
		err = &handle.Error{Why: handle.WrongPurpose}
	}
	return h, err
}

type deleteInput struct {
	ID     string `path:"id"`
	Handle string `header:"X-Berth-Handle" doc:"operators may leave it out"`
}

type deleteOutput struct {
	Body struct {
		Deleted       bool       `json:"deleted"`
		Durability    Durability `json:"durability"`
		ForgetPending int        `json:"forget_pending" doc:"instances that are asked to drop their cached copies"`
	}
}

func (s *Server) deleteSession(ctx context.Context, in *deleteInput) (*deleteOutput, error) {
	p, err := require(ctx, RoleWorker, RoleOperator, RoleGateway)
	if err != nil {
		return nil, err
	}
	key, err := s.sessionKey(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	policy := s.policyOf(key.Pool)
	d := statestore.Delete{Key: key, Lifetimes: policy.lifetimes, Require: policy.require}
	switch {
	case in.Handle != "":
		h, err := s.verifyForWrite(in.Handle, key)
		if err != nil {
			return nil, err
		}
		presented := h.Presented("")
		d.Handle = &presented
	case !p.may(RoleOperator):
		return nil, invalid("header.X-Berth-Handle", "is needed: only operators delete without a handle")
	}
	if p.may(RoleOperator) {
		s.audit(p, "delete", "session", s.tag(key.Digest()))
	}
	ended, asked, err := s.end(ctx, d)
	if err != nil {
		return nil, err
	}
	out := new(deleteOutput)
	out.Body.Deleted, out.Body.Durability, out.Body.ForgetPending = ended.Existed, durability(ended.Durability), asked
	return out, nil
}

// end deletes a session, and returns how many instances are asked to drop copies of
// it. They are asked too if the delete has not yet reached the durability that its
// pool wants: where the session was is not known any more when it is repeated.
func (s *Server) end(ctx context.Context, d statestore.Delete) (statestore.Ended, int, error) {
	ended, err := s.store.Delete(ctx, d)
	var undurable *statestore.NotDurableError
	if err != nil && !errors.As(err, &undurable) {
		s.metrics.losses.refused(d.Key.Digest(), err, d.Handle, nil)
		return ended, 0, fmt.Errorf("delete session %s: %w", s.tag(d.Key.Digest()), err)
	}
	s.bindings.forget(d.Key.Digest())
	asked, failed := s.askToForget(ctx, d.Key, ended)
	if err = errors.Join(err, failed); err != nil {
		return ended, asked, fmt.Errorf("delete session %s: %w", s.tag(d.Key.Digest()), err)
	}
	return ended, asked, nil
}

// askToForget leaves a task for every instance that may hold a copy of a deleted
// session; it stands as long as the tombstone. A later boot of the instance gets
// it too: its slot files are those of the boot that wrote them.
func (s *Server) askToForget(ctx context.Context, key statestore.SessionKey, ended statestore.Ended) (int, error) {
	var tasks []statestore.Task
	if len(ended.Placements) > 0 {
		s.seeFleet(ctx)
	}
	image, asked := s.fleet.now(), map[string]bool{}
	for _, set := range ended.Placements {
		instance := image.instances[set.By.Instance]
		if instance == nil || asked[instance.ID] {
			continue
		}
		asked[instance.ID] = true
		tasks = append(tasks, statestore.Task{
			ID:   fmt.Sprintf("forget-%s-%d-%s", key.Digest(), ended.Epoch, instance.ID),
			Kind: statestore.TaskForget, For: instance.Owner(), Session: key,
		})
	}
	if len(tasks) == 0 {
		return 0, nil
	}
	if err := s.store.PutTasks(ctx, tasks, s.policyOf(key.Pool).lifetimes.Tombstone); err != nil {
		return 0, fmt.Errorf("ask instances to forget session %s: %w", s.tag(key.Digest()), err)
	}
	return len(tasks), nil
}

type placementsInput struct {
	ID   string `path:"id"`
	Body struct {
		Instance    string      `json:"instance"`
		Incarnation string      `json:"incarnation"`
		Placements  []Placement `json:"placements" doc:"kv/1; replaces what this instance said before"`
	}
}

func (s *Server) putPlacements(ctx context.Context, in *placementsInput) (*struct{}, error) {
	by, err := s.speakerIn(ctx, in.Body.Instance, in.Body.Incarnation)
	if err != nil {
		return nil, err
	}
	key, err := s.sessionKey(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	instance, err := s.instanceIn(ctx, by, key.Pool)
	if err != nil {
		return nil, err
	}
	stored, err := checkPlacements(in.Body.Placements, instance, "body.placements")
	if err != nil {
		return nil, err
	}
	if len(in.Body.Placements) == 0 {
		stored = nil
	}
	if err := s.store.PutPlacements(ctx, key, by, stored); err != nil {
		return nil, fmt.Errorf("put placements of session %s: %w", s.tag(key.Digest()), err)
	}
	return nil, nil
}
