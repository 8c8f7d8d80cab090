package redisstore

import (
	"context"

	"berth/statestore"
	"berth/statestore/internal/rules"
)

// PutPolicy replaces the policy of a pool.
func (s *Store) PutPolicy(ctx context.Context, pool string, doc []byte) (p statestore.Policy, err error) {
	if err := statestore.ValidateName("pool", pool); err != nil {
		return p, err
	}
	err = s.transact(ctx, []cell{{tPolicies, pool}}, func(t *tx) error {
		p = statestore.Policy{}
		if _, err := t.getJSON(tPolicies, pool, &p); err != nil {
			return err
		}
		p = statestore.Policy{Version: p.Version + 1, Doc: doc}
		t.membersChanged("")
		return t.setJSON(tPolicies, pool, &p)
	})
	return p, err
}

// DeletePool removes a pool that nobody uses.
func (s *Store) DeletePool(ctx context.Context, pool string) error {
	if err := statestore.ValidateName("pool", pool); err != nil {
		return err
	}
	// The counter moves with every instance: if one comes until the commit, all of it is
	// judged again. A job that comes then could have come after it.
	cells := []cell{{tPolicies, pool}, {tCounters, "members"}, {tInstances, "*"}, {tJobs, "*"}}
	return s.transact(ctx, cells, func(t *tx) error {
		if err := t.poolUnused(pool); err != nil {
			return err
		}
		if t.get(tPolicies, pool) == "" {
			return nil
		}
		t.drop(tPolicies, pool)
		t.membersChanged("")
		return nil
	})
}

// poolUnused refuses a pool with instances, or with jobs that have not ended.
func (t *tx) poolUnused(pool string) error {
	instances := 0
	for _, text := range t.whole[tInstances] {
		var in struct {
			Pool string `json:"pool"`
		}
		if err := decodeJSON(tInstances, text, &in); err != nil {
			return err
		}
		if in.Pool == pool {
			instances++
		}
	}
	jobs, err := t.jobs()
	if err != nil {
		return err
	}
	return rules.PoolUnused(pool, instances, jobs)
}

// foundPool lets a pool be there from its first instance on. Whoever deletes it
// meanwhile undoes the registration, which is made again.
func (t *tx) foundPool(pool string) error {
	if t.get(tPolicies, pool) != "" {
		return nil
	}
	return t.setJSON(tPolicies, pool, statestore.Policy{})
}
