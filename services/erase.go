package services

import (
	"context"
	"time"

	"berth/migrations"
	"berth/statestore"
)

type eraseInput struct {
	Key          string  `query:"key" required:"true" minLength:"1" maxLength:"1024" doc:"affinity key: what the sessions were begun with"`
	Pool         string  `query:"pool" doc:"absent: every pool"`
	DeadlineMS   int64   `query:"deadline_ms" minimum:"1" maximum:"604800000" default:"600000" doc:"time until the job ends"`
	SessionsPerS float64 `query:"sessions_per_s" minimum:"0" doc:"sessions a second; 0: no bound"`
}

// eraseSessions begins a job that ends the sessions of a key. Unlike a list it is
// about one tenant, also for those who may see all: the keys of two tenants have
// nothing to do with each other.
func (s *Server) eraseSessions(ctx context.Context, in *eraseInput) (*startedOutput, error) {
	p, err := require(ctx, RoleOperator)
	if err != nil {
		return nil, err
	}
	tenant, err := p.tenant(request(ctx).Header.Get(hdrTenant))
	if err != nil {
		return nil, err
	}
	if in.Pool, err = p.listedPool(in.Pool); err != nil {
		return nil, err
	}
	spec := migrations.EraseSpec{
		Tenant: tenant, Pool: in.Pool, Key: affinityKey(in.Key), SessionsPerS: in.SessionsPerS,
		Deadline: time.Duration(in.DeadlineMS) * time.Millisecond,
	}
	_, _, err = s.list(ctx, &statestore.SessionQuery{Tenant: tenant, Pool: in.Pool, AffinityKey: spec.Key, Limit: 1})
	if err != nil {
		return nil, err
	}
	job, existed, err := s.jobs.CreateErase(ctx, spec)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was to be created
	}
	s.audit(p, "erase", "job", job.ID, "existed", existed)
	return s.started(ctx, p, job.ID, existed)
}

// erase ends a session for a job, at the epoch at which the job saw it.
func (s *Server) erase(ctx context.Context, seen *statestore.View) (existed bool, err error) {
	policy := s.policyOf(seen.Key.Pool)
	ended, _, err := s.end(ctx, statestore.Delete{
		Key: seen.Key, Handle: &statestore.Presented{Floor: seen.Floor()}, Lifetimes: policy.lifetimes, Require: policy.require,
	})
	return ended.Existed, err
}
