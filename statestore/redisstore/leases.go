package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/statestore"
)

// lease is the stored form of a lease. It stays after its end: the next token must
// be higher.
type lease struct {
	Holder  string            `json:"holder"`
	Token   uint64            `json:"token"`
	Renewed statestore.Millis `json:"renewed,omitempty"`
	Until   statestore.Millis `json:"until"`
}

// AcquireLease takes or renews a lease.
func (s *Store) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (statestore.Lease, error) {
	if err := checkID("lease", name); err != nil {
		return statestore.Lease{}, err
	}
	if holder == "" {
		return statestore.Lease{}, fmt.Errorf("a lease must have a holder: %w", statestore.ErrInvalid)
	}
	var l lease
	var held error
	err := s.transact(ctx, []cell{{tLeases, name}}, func(t *tx) error {
		l, held = lease{}, nil
		if _, err := t.getJSON(tLeases, name, &l); err != nil {
			return err
		}
		running := t.now < l.Until
		if running && l.Holder != holder {
			held = &statestore.LeaseHeldError{Name: name, Holder: l.Holder, Token: l.Token}
			if l.Renewed <= t.now {
				return held
			}
			// The clock went back. Whoever holds the lease renews it within ttl if it lives.
			l.Renewed, l.Until = t.now, t.now.Add(ttl)
			return t.setJSON(tLeases, name, &l)
		}
		if !running {
			l.Token++
		}
		l.Holder, l.Renewed, l.Until = holder, t.now, t.now.Add(ttl)
		return t.setJSON(tLeases, name, &l)
	})
	if err == nil {
		err = held
	}
	if err != nil {
		return statestore.Lease{}, err
	}
	return statestore.Lease{Name: name, Holder: holder, Token: l.Token}, nil
}

// ReleaseLease ends a lease, if it is still this holding.
func (s *Store) ReleaseLease(ctx context.Context, held statestore.Lease) error {
	return s.transact(ctx, []cell{{tLeases, held.Name}}, func(t *tx) error {
		var l lease
		if _, err := t.getJSON(tLeases, held.Name, &l); err != nil {
			return err
		}
		if l.Holder != held.Holder || l.Token != held.Token || l.Until == 0 {
			return nil
		}
		l.Until = 0
		return t.setJSON(tLeases, held.Name, &l)
	})
}

// checkID wants an id that may stand in a key, before a NUL.
func checkID(what, id string) error {
	if id == "" || len(id) > statestore.MaxSessionID || strings.ContainsRune(id, 0) {
		return fmt.Errorf("id of a %s must have 1 to %d bytes and no NUL: %w", what, statestore.MaxSessionID, statestore.ErrInvalid)
	}
	return nil
}

// number reads a counter; absent is 0.
func number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

// firstKey is the place of the first signing key; newer ones have higher numbers.
const firstKey = "0000000001"

// SigningKeys reads the keys that sign handles, and creates the first.
func (s *Store) SigningKeys(ctx context.Context) (keys []statestore.SigningKey, err error) {
	err = s.transact(ctx, []cell{{tKeys, firstKey}, {tKeys, "*"}}, func(t *tx) error {
		if keys, err = t.signingKeys(); err != nil || len(keys) > 0 {
			return err
		}
		k := statestore.SigningKey{Secret: make([]byte, 32)}
		rand.Read(k.ID[:])  //nolint:errcheck // never fails
		rand.Read(k.Secret) //nolint:errcheck // never fails
		keys = []statestore.SigningKey{k}
		return t.setJSON(tKeys, firstKey, &k)
	})
	return keys, err
}

// signingKeys is newest first.
func (t *tx) signingKeys() ([]statestore.SigningKey, error) {
	var keys []statestore.SigningKey
	for _, place := range slices.Backward(slices.Sorted(maps.Keys(t.whole[tKeys]))) {
		var k statestore.SigningKey
		if err := decodeJSON(tKeys, t.whole[tKeys][place], &k); err != nil {
			return nil, err
		}
		if len(k.Secret) == 0 {
			return nil, fmt.Errorf("signing key without a secret: %w", ErrDamaged)
		}
		keys = append(keys, k)
	}
	return keys, nil
}
