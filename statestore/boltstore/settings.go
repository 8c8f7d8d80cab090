package boltstore

import (
	"context"
	"crypto/rand"
	"fmt"

	"berth/statestore"
	"berth/statestore/internal/rules"
)

// PutPolicy replaces the policy of a pool.
func (s *Store) PutPolicy(ctx context.Context, pool string, doc []byte) (statestore.Policy, error) {
	if err := statestore.ValidateName("pool", pool); err != nil {
		return statestore.Policy{}, err
	}
	var p statestore.Policy
	err := s.write(ctx, func(w *writer) error {
		p = statestore.Policy{}
		if _, err := w.getJSON(bPolicies, []byte(pool), &p); err != nil {
			return err
		}
		p = statestore.Policy{Version: p.Version + 1, Doc: doc}
		w.putJSON(bPolicies, []byte(pool), &p)
		w.membersChanged("")
		return nil
	})
	return p, err
}

// DeletePool removes a pool that nobody uses.
func (s *Store) DeletePool(ctx context.Context, pool string) error {
	if err := statestore.ValidateName("pool", pool); err != nil {
		return err
	}
	return s.write(ctx, func(w *writer) error {
		if err := w.poolUnused(pool); err != nil {
			return err
		}
		if w.get(bPolicies, []byte(pool)) == nil {
			return nil
		}
		w.delete(bPolicies, []byte(pool))
		w.membersChanged("")
		return nil
	})
}

// poolUnused refuses a pool with instances, or with jobs that have not ended.
func (r *reader) poolUnused(pool string) error {
	instances := 0
	err := r.each(bInstances, nil, func(_, b []byte) (bool, error) {
		var in struct {
			Pool string `json:"pool"`
		}
		err := decodeJSON(bInstances, b, &in)
		if in.Pool == pool {
			instances++
		}
		return true, err
	})
	if err != nil {
		return err
	}
	jobs, err := r.jobs()
	if err != nil {
		return err
	}
	return rules.PoolUnused(pool, instances, jobs)
}

// foundPool lets a pool be there from its first instance on.
func (w *writer) foundPool(pool string) {
	if w.get(bPolicies, []byte(pool)) == nil {
		w.putJSON(bPolicies, []byte(pool), statestore.Policy{})
	}
}

// SigningKeys reads the keys that sign handles, and creates the first.
func (s *Store) SigningKeys(ctx context.Context) ([]statestore.SigningKey, error) {
	var keys []statestore.SigningKey
	read := func(r *reader) (err error) {
		keys, err = r.signingKeys()
		return err
	}
	if err := s.read(ctx, read); err != nil || len(keys) > 0 {
		return keys, err
	}
	err := s.write(ctx, func(w *writer) error {
		if err := read(&w.reader); err != nil || len(keys) > 0 {
			return err
		}
		k := statestore.SigningKey{Secret: make([]byte, 32)}
		rand.Read(k.ID[:])  //nolint:errcheck // never fails
		rand.Read(k.Secret) //nolint:errcheck // never fails
		w.putJSON(bKeys, be64(1), &k)
		keys = []statestore.SigningKey{k}
		return nil
	})
	return keys, err
}

// signingKeys is newest first; the bucket is oldest first.
func (r *reader) signingKeys() ([]statestore.SigningKey, error) {
	var keys []statestore.SigningKey
	c := r.tx.Bucket(bKeys).Cursor()
	for k, b := c.Last(); k != nil; k, b = c.Prev() {
		var key statestore.SigningKey
		if err := decodeJSON(bKeys, b, &key); err != nil {
			return nil, err
		}
		if len(key.Secret) == 0 {
			return nil, fmt.Errorf("signing key without a secret: %w", ErrDamaged)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
