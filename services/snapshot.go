package services

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"berth/routing"
	"berth/statestore"
)

type snapshotInput struct {
	Pool     string `query:"pool"`
	Sessions string `query:"sessions" enum:"hash" doc:"also the stored sessions, their ids hashed, a page at a time"`
	Cursor   string `query:"cursor"`
	Limit    int    `query:"limit" minimum:"1" maximum:"10000" default:"10000"`
}

type snapshotOutput struct {
	Body struct {
		Pool            string             `json:"pool"`
		SnapshotVersion uint64             `json:"snapshot_version"`
		Policy          PoolPolicy         `json:"policy"`
		Instances       []snapshotInstance `json:"instances"`
		Sessions        []snapshotSession  `json:"sessions,omitempty"`
		Cursor          string             `json:"cursor,omitempty" doc:"for the next call; absent at the end"`
	}
}

type snapshotInstance struct {
	ID          string `json:"id"`
	State       string `json:"state" doc:"as decisions see it"`
	Breaker     string `json:"breaker"`
	Weight      int    `json:"weight"`
	RampPercent int    `json:"ramp_percent" doc:"part of the weight in force"`
	Zone        string `json:"zone,omitempty"`
	Running     int    `json:"running"`
	Waiting     int    `json:"waiting"`
	MaxRunning  int    `json:"max_running,omitempty"`
}

type snapshotSession struct {
	Session    string         `json:"session" doc:"keyed hash of the id: equal for equal sessions while this process runs"`
	Ring       string         `json:"ring" doc:"the ring's 64-bit hash of the affinity key, hexadecimal"`
	Owner      string         `json:"owner,omitempty"`
	Live       bool           `json:"live" doc:"bound, and the affinity holds"`
	Turns      uint64         `json:"turns"`
	Tokens     uint64         `json:"tokens"`
	AgeMS      int64          `json:"age_ms"`
	IdleMS     int64          `json:"idle_ms"`
	BoundMS    int64          `json:"bound_ms"`
	AffinityMS int64          `json:"affinity_ms"`
	Moved      *snapshotMoved `json:"moved,omitempty" doc:"by a job, if that was its newest change of owner"`
}

type snapshotMoved struct {
	From  string `json:"from"`
	AgeMS int64  `json:"age_ms"`
}

// getSnapshot shows a pool as decisions see it, for whoever wants to reason
// about it elsewhere: a simulation, a dashboard.
func (s *Server) getSnapshot(ctx context.Context, in *snapshotInput) (*snapshotOutput, error) {
	name := cmp.Or(in.Pool, statestore.DefaultName)
	pool, err := s.poolFor(ctx, name)
	if err != nil {
		return nil, err
	}
	out := new(snapshotOutput)
	b := &out.Body
	b.Pool, b.SnapshotVersion, b.Policy, b.Instances = name, pool.snapshot.Version(), pool.policy.PoolPolicy, []snapshotInstance{}
	stored := s.fleet.now().instances
	for i := range pool.snapshot.Instances() {
		b.Instances = append(b.Instances, newSnapshotInstance(i, stored[i.ID]))
	}
	if in.Sessions == "" {
		return out, nil
	}
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	tenant, err := listedTenant(ctx, p)
	if err != nil {
		return nil, err
	}
	views, cursor, err := s.store.List(ctx, statestore.SessionQuery{Tenant: tenant, Pool: name, Cursor: in.Cursor, Limit: in.Limit})
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	b.Cursor = cursor
	for i := range views {
		b.Sessions = append(b.Sessions, s.snapshotSession(&views[i]))
	}
	return out, nil
}

func newSnapshotInstance(in *routing.Instance, stored *statestore.Instance) snapshotInstance {
	doc := snapshotInstance{
		ID: in.ID, State: in.State.String(), Breaker: in.Breaker.String(), Weight: in.Weight, RampPercent: percentInForce(in),
		Zone: in.Zone, Running: in.Load.Running, Waiting: in.Load.Waiting,
	}
	if stored != nil {
		doc.MaxRunning = cmp.Or(stored.LastBeat.MaxRunning, stored.MaxRunning)
	}
	return doc
}

func (s *Server) snapshotSession(v *statestore.View) snapshotSession {
	doc := snapshotSession{
		Session: s.tag(v.Key.Digest()), Ring: fmt.Sprintf("%016x", ringHash(v)), Owner: v.Owner.Instance, Live: v.Live(),
		Turns: v.Turns, Tokens: v.Tokens, AgeMS: v.Now.Sub(v.Created).Milliseconds(), IdleMS: v.Idle().Milliseconds(),
		BoundMS: v.BindingAge().Milliseconds(), AffinityMS: v.AffinityLeft().Milliseconds(),
	}
	if n := len(v.Changes); n > 1 && v.Changes[n-1].Reason == statestore.ChangeMoved {
		doc.Moved = &snapshotMoved{From: v.Changes[n-2].Instance, AgeMS: v.Now.Sub(v.Changes[n-1].At).Milliseconds()}
	}
	return doc
}

// ringHash is what the ring made of the session's affinity key.
func ringHash(v *statestore.View) uint64 {
	if v.AffinityKey == (statestore.AffinityKey{}) {
		return xxhash.Sum64String(v.Key.ID)
	}
	return binary.BigEndian.Uint64(v.AffinityKey[:8])
}

// InForce is the policy as decisions follow it, and the idle time after which a
// binding lapses.
func (p *PoolPolicy) InForce() (routing.Policy, time.Duration, error) {
	doc, err := json.Marshal(p)
	if err != nil {
		return routing.Policy{}, 0, fmt.Errorf("render the policy: %w", err)
	}
	parsed, err := parsePolicy(doc)
	if err != nil {
		return routing.Policy{}, 0, err
	}
	return parsed.routing, parsed.lifetimes.Affinity, nil
}
