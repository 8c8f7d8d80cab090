package services

import (
	"context"
	"fmt"

	"berth/statestore"
)

type deletePoolInput struct {
	Pool string `path:"pool"`
}

// deletePool ends a pool and its policy. The store refuses it as long as the pool is
// in use; without instances nobody is bound there meanwhile. What is not there any
// more is deleted: the answer to the first call may have been lost.
func (s *Server) deletePool(ctx context.Context, in *deletePoolInput) (*struct{}, error) {
	p, err := s.poolChanger(ctx, in.Pool)
	if err != nil {
		return nil, err
	}
	if err := s.nobodyIn(ctx, in.Pool); err != nil {
		return nil, err
	}
	err = s.changePolicies(ctx, func(ctx context.Context, _ map[string]statestore.Policy) error {
		return s.unmarked(ctx, in.Pool, func() error {
			if err := s.store.DeletePool(ctx, in.Pool); err != nil {
				return fmt.Errorf("delete pool %s: %w", in.Pool, err)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	s.audit(p, "delete pool", "pool", in.Pool)
	s.seeFleet(ctx)
	return nil, nil
}

// nobodyIn refuses a pool with instances, or with sessions that are still bound to
// instances that left.
func (s *Server) nobodyIn(ctx context.Context, pool string) error {
	if err := s.freshFleet(ctx); err != nil {
		return err
	}
	var used statestore.PoolInUseError
	for _, in := range s.fleet.now().instances {
		if in.Pool == pool {
			used.Instances++
		}
	}
	if used.Instances > 0 {
		return &used
	}
	counts, err := s.store.CountSessions(ctx)
	if err != nil {
		return fmt.Errorf("count sessions: %w", err)
	}
	bound := 0
	for name := range counts {
		if name.Pool != pool {
			continue
		}
		for v, err := range s.store.SessionsOf(ctx, pool, name.Instance) {
			if err != nil {
				return fmt.Errorf("read the sessions of instance %s: %w", name.Instance, err)
			}
			if v.Live() {
				bound++
			}
		}
	}
	if bound > 0 {
		refusal := newProblem("has_sessions", fmt.Sprintf("%d sessions are bound to instances that left the pool", bound))
		refusal.Sessions = &bound
		return refusal
	}
	return nil
}
