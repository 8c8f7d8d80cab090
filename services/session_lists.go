package services

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"berth/statestore"
)

type listSessionsInput struct {
	Instance string `query:"instance"`
	Pool     string `query:"pool"`
	Key      string `query:"key" doc:"affinity key"`
	Cursor   string `query:"cursor"`
	Limit    int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type listSessionsOutput struct {
	Body struct {
		Sessions []*SessionDocument `json:"sessions"`
		Cursor   string             `json:"cursor,omitempty" doc:"for the next call; absent at the end"`
	}
}

func (s *Server) listSessions(ctx context.Context, in *listSessionsInput) (*listSessionsOutput, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	tenant, err := listedTenant(ctx, p)
	if err != nil {
		return nil, err
	}
	if in.Pool, err = p.listedPool(in.Pool); err != nil {
		return nil, err
	}
	views, cursor, err := s.list(ctx, &statestore.SessionQuery{
		Tenant: tenant, Pool: in.Pool, Instance: in.Instance, AffinityKey: affinityKey(in.Key), Cursor: in.Cursor, Limit: in.Limit,
	})
	if err != nil {
		return nil, err
	}
	out := new(listSessionsOutput)
	out.Body.Sessions, out.Body.Cursor = []*SessionDocument{}, cursor
	for i := range views {
		out.Body.Sessions = append(out.Body.Sessions, s.sessionDocument(&views[i]))
	}
	return out, nil
}

// listedPool is the pool whose sessions a call is about that may be about all of them,
// which is empty: a bearer of one pool means that one.
func (p *principal) listedPool(want string) (string, error) {
	if want == "" && len(p.pools) == 1 {
		want = p.pools[0]
	}
	return want, p.allowPool(want)
}

// list reads sessions in a pool that exists.
func (s *Server) list(ctx context.Context, q *statestore.SessionQuery) ([]statestore.View, string, error) {
	views, cursor, err := s.store.List(ctx, *q)
	switch {
	case errors.Is(err, statestore.ErrInvalid):
		return nil, "", badID("query.cursor", errors.New("is not one that a list answered"))
	case err != nil:
		return nil, "", fmt.Errorf("list sessions: %w", err)
	case len(views) == 0 && q.Pool != "" && s.fleet.now().pools[q.Pool] == nil:
		// Sessions outlive the last instance of a pool without a policy: only an empty
		// list shows that there never was one.
		if _, err := s.poolFor(ctx, q.Pool); err != nil {
			return nil, "", err
		}
	}
	return views, cursor, nil
}

// listedTenant is the tenant whose sessions a list shows: whoever may see every
// tenant sees all of them, unless it asks for one.
func listedTenant(ctx context.Context, p *principal) (string, error) {
	tenant := request(ctx).Header.Get(hdrTenant)
	if tenant == "" && slices.Contains(p.tenants, "*") {
		return "", nil
	}
	return p.tenant(tenant)
}

type historyInput struct {
	ID string `path:"id"`
}

type historyOutput struct {
	Body struct {
		Owner   *OwnerRef        `json:"owner,omitempty"`
		Changes []changeDocument `json:"changes" doc:"oldest first, the last 16"`
		Lost    *lostSince       `json:"accepted_loss,omitempty"`
	}
}

type changeDocument struct {
	Epoch    uint64 `json:"epoch"`
	Version  uint64 `json:"version" doc:"at which the epoch before ended"`
	Instance string `json:"instance,omitempty" doc:"absent: nobody"`
	Reason   string `json:"reason"`
	AgeMS    int64  `json:"age_ms"`
}

type lostSince struct {
	Epoch uint64 `json:"epoch"`
	Want  uint64 `json:"want"`
}

func (s *Server) sessionHistory(ctx context.Context, in *historyInput) (*historyOutput, error) {
	if _, err := require(ctx, RoleOperator); err != nil {
		return nil, err
	}
	key, err := s.sessionKey(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	v, err := s.store.Lookup(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("look up session %s: %w", s.tag(key.Digest()), err)
	}
	if err := present(&v); err != nil {
		return nil, err
	}
	out := new(historyOutput)
	out.Body.Owner, out.Body.Changes = s.ownerRef(v.Owner, v.Epoch), []changeDocument{}
	for _, c := range v.Changes {
		out.Body.Changes = append(out.Body.Changes, changeDocument{
			Epoch: c.Epoch, Version: c.Version, Instance: c.Instance, Reason: string(c.Reason), AgeMS: v.Now.Sub(c.At).Milliseconds(),
		})
	}
	if v.Lost != nil {
		out.Body.Lost = &lostSince{Epoch: v.Lost.Epoch, Want: v.Lost.Want}
	}
	return out, nil
}
