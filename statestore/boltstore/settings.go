package boltstore

import (
	"context"
	"crypto/rand"
	"fmt"

	"berth/statestore"
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
