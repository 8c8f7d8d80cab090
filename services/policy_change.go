package services

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/statestore"
	"berth/statestore/line"
)

// changePolicies calls change with what is stored, while nobody else changes policies,
// in any process: no model may come to mean two pools.
func (s *Server) changePolicies(
	ctx context.Context, change func(ctx context.Context, stored map[string]statestore.Policy) error,
) error {
	turn, err := line.Join(ctx, s.store, "policies", s.options.Process)
	if err != nil {
		return err
	}
	return turn.Do(ctx, func(ctx context.Context) error {
		view, err := s.store.FleetView(ctx)
		if err != nil {
			return fmt.Errorf("read the policies: %w", err)
		}
		return change(ctx, view.Policies)
	})
}

// meant finds the first of a pool's models that another pool lists.
func meant(pool string, models []string, policies map[string]statestore.Policy) (model, other string) {
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		if name == pool {
			continue
		}
		var listed struct{ Models []string }
		if json.Unmarshal(policies[name].Doc, &listed) != nil {
			continue // it is not in force
		}
		for _, m := range models {
			if slices.Contains(listed.Models, m) {
				return m, name
			}
		}
	}
	return "", ""
}

// alreadyMeans says of a model that it would mean two pools.
func alreadyMeans(model, pool string) string {
	return fmt.Sprintf("%q already means pool %s", model, pool)
}

// A pool whose policy a file decides is marked so for every process that shares the
// store: the mark is a lease that all who enforce a file hold together and renew, so
// that it ends by itself some time after the last of them did. A call that changes
// the policy holds it meanwhile instead.
const (
	markLease = 30 * time.Second
	markEvery = markLease / 3
	enforcers = "policy file"
)

func markOf(pool string) string { return "policy/" + pool }

// unmarked calls change on behalf of a caller, unless the pool is marked.
func (s *Server) unmarked(ctx context.Context, pool string, change func() error) error {
	mark, err := s.store.AcquireLease(ctx, markOf(pool), "call/"+s.options.Process, line.Lease)
	var held *statestore.LeaseHeldError
	switch {
	case errors.As(err, &held) && held.Holder == enforcers:
		return errEnforced()
	case errors.As(err, &held):
		return fmt.Errorf("%s changes the policy of pool %s: %w", held.Holder, pool, statestore.ErrUnavailable)
	case err != nil:
		return fmt.Errorf("look whether a file decides the policy of pool %s: %w", pool, err)
	}
	err = change()
	var refused *statestore.PoolInUseError
	if err == nil || errors.As(err, &refused) { // else it may still land, and the mark ends by itself
		_ = s.store.ReleaseLease(ctx, mark)
	}
	return err
}

func errEnforced() *Problem {
	return newProblem("policy_enforced", fmt.Sprintf(
		"the policy of this pool comes from a file that a process was started with; calls may change it %v after the last such process ended", markLease))
}

// enforced refuses to change what this process's file decides.
func (s *Server) enforced(pool string) error {
	if _, there := s.options.Policies[pool]; there && s.options.EnforcePolicies {
		return errEnforced()
	}
	return nil
}

// applyPolicies stores the policies that the process was started with: for pools
// that have none, or enforced over whatever is stored.
func (s *Server) applyPolicies(ctx context.Context) error {
	about, err := s.store.Describe(ctx)
	if err != nil {
		return fmt.Errorf("describe the store: %w", err)
	}
	return s.changePolicies(ctx, func(ctx context.Context, stored map[string]statestore.Policy) error {
		next, err := s.policiesAfter(stored, about.Backend)
		if err != nil {
			return err
		}
		if s.options.EnforcePolicies {
			if _, err := s.mark(ctx); err != nil {
				return err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(next)) {
			put, err := s.store.PutPolicy(ctx, name, next[name].Doc)
			if err != nil {
				return fmt.Errorf("put the policy of pool %s: %w", name, err)
			}
			s.log.Info("policy applied", "pool", name, "version", put.Version)
		}
		return nil
	})
}

// policiesAfter are those of the process's policies that have to be stored.
func (s *Server) policiesAfter(stored map[string]statestore.Policy, backend string) (map[string]statestore.Policy, error) {
	next, after := map[string]statestore.Policy{}, maps.Clone(stored)
	for name, p := range s.options.Policies {
		doc, err := json.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("render the policy of pool %s: %w", name, err)
		}
		have := stored[name]
		if have.Version > 0 && (!s.options.EnforcePolicies || bytes.Equal(have.Doc, doc)) {
			continue
		}
		next[name] = statestore.Policy{Doc: doc}
	}
	if after == nil {
		after = map[string]statestore.Policy{}
	}
	maps.Copy(after, next)
	for _, name := range slices.Sorted(maps.Keys(next)) {
		p := s.options.Policies[name]
		if wrong := p.wrong(backend); len(wrong) > 0 {
			return nil, fmt.Errorf("policy of pool %s: %s: %s", name, wrong[0].Location, wrong[0].Message)
		}
		if model, other := meant(name, p.Models, after); other != "" {
			return nil, fmt.Errorf("policy of pool %s: models: %s", name, alreadyMeans(model, other))
		}
	}
	return next, nil
}

// mark marks the pools of the file, or renews their marks, and reports whether one was
// not marked all the while.
func (s *Server) mark(ctx context.Context) (lapsed bool, err error) {
	for _, pool := range slices.Sorted(maps.Keys(s.options.Policies)) {
		lease, err := s.store.AcquireLease(ctx, markOf(pool), enforcers, markLease)
		var held *statestore.LeaseHeldError
		switch {
		case errors.As(err, &held):
			lease.Token = 0 // a call puts the policy, or died doing so
		case err != nil:
			return lapsed, fmt.Errorf("mark that a file decides the policy of pool %s: %w", pool, err)
		}
		lapsed = lapsed || lease.Token == 0 || lease.Token != s.marks[pool]
		s.marks[pool] = lease.Token
	}
	return lapsed, nil
}

// enforce keeps the marks until ctx ends, and puts the file's policies in force again
// when others could have changed them.
func (s *Server) enforce(ctx context.Context) error {
	if !s.options.EnforcePolicies {
		return nil
	}
	for pause(ctx, markEvery) {
		lapsed, err := s.mark(ctx)
		if err == nil && lapsed {
			err = s.applyPolicies(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("policies not enforced", "error", err)
		}
	}
	return nil
}
