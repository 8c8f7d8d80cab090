package services

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"go.yaml.in/yaml/v3"

	"berth/statestore"
)

// LoadPolicies reads a file of pool policies, YAML or JSON:
//
//	pools:
//	  default: {affinity_idle_ms: 600000, ramp: {over_ms: 30000}}
//
// Unknown members, values out of range and policies that contradict themselves are
// refused with the pool's name.
func LoadPolicies(path string) (map[string]PoolPolicy, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	var file struct {
		Pools map[string]map[string]any `yaml:"pools"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("policies %s: %w", path, err)
	}
	if len(file.Pools) == 0 {
		return nil, fmt.Errorf("policies %s: no pools", path)
	}
	out := make(map[string]PoolPolicy, len(file.Pools))
	for _, name := range slices.Sorted(maps.Keys(file.Pools)) {
		p, err := readPolicy(name, file.Pools[name])
		if err != nil {
			return nil, fmt.Errorf("policies %s: pool %s: %w", path, name, err)
		}
		out[name] = p
	}
	return out, nil
}

// readPolicy checks one pool of a file.
func readPolicy(name string, members map[string]any) (p PoolPolicy, err error) {
	if err := statestore.ValidateName("pool", name); err != nil {
		return p, err
	}
	doc, err := json.Marshal(members)
	if err != nil {
		return p, fmt.Errorf("members: %w", err)
	}
	var value any
	if err := errors.Join(json.Unmarshal(doc, &value), json.Unmarshal(doc, &p)); err != nil {
		return p, err
	}
	// The rules of the call that puts one policy.
	if errs := huma.NewModelValidator().Validate(reflect.TypeFor[PoolPolicy](), value); len(errs) > 0 {
		return p, errors.Join(errs...)
	}
	_, err = parsePolicy(doc)
	var refused *Problem
	if errors.As(err, &refused) {
		err = errors.New(refused.Detail)
	}
	return p, err
}

// applyPolicies stores the policies that the process was started with: for pools
// that have none, or enforced over whatever is stored.
func (s *Server) applyPolicies(ctx context.Context) error {
	stored := s.fleet.now().view.Policies
	for _, name := range slices.Sorted(maps.Keys(s.options.Policies)) {
		doc, err := json.Marshal(s.options.Policies[name])
		if err != nil {
			return fmt.Errorf("render the policy of pool %s: %w", name, err)
		}
		have, there := stored[name]
		if there && (!s.options.EnforcePolicies || bytes.Equal(have.Doc, doc)) {
			continue
		}
		put, err := s.store.PutPolicy(ctx, name, doc)
		if err != nil {
			return fmt.Errorf("put the policy of pool %s: %w", name, err)
		}
		s.log.Info("policy applied", "pool", name, "version", put.Version)
	}
	return nil
}

// enforced refuses to change what a file decides.
func (s *Server) enforced(pool string) error {
	if _, there := s.options.Policies[pool]; there && s.options.EnforcePolicies {
		return newProblem("policy_enforced", "the policy of this pool comes from the file that this process was started with")
	}
	return nil
}
