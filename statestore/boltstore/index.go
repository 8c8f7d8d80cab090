package boltstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"iter"

	"berth/statestore"
)

// indexPage is how many entries of an index one transaction looks at.
const indexPage = 256

// SessionsOf yields the sessions that any boot of the instance owns.
func (s *Store) SessionsOf(ctx context.Context, pool, instance string) iter.Seq2[statestore.View, error] {
	prefix := prefixed(pool, instance)
	return func(yield func(statestore.View, error) bool) {
		for at := prefix; at != nil; {
			var page []statestore.View
			err := s.read(ctx, func(r *reader) (err error) {
				page, at, err = r.ownedPage(prefix, at)
				return err
			})
			if err != nil {
				yield(statestore.View{}, fmt.Errorf("sessions of %s: %w", instance, err))
				return
			}
			for _, v := range page {
				if !yield(v, nil) {
					return
				}
			}
		}
	}
}

// ownedPage reads sessions from the index at a key, and answers the key to go on
// at; nil at the end.
func (r *reader) ownedPage(prefix, at []byte) (page []statestore.View, next []byte, err error) {
	seen := 0
	c := r.tx.Bucket(bOwned).Cursor()
	for k, _ := c.Seek(at); k != nil && bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		if seen++; seen > indexPage {
			return page, bytes.Clone(k), nil
		}
		if len(k) != len(prefix)+len(statestore.SessionDigest{}) {
			return nil, nil, fmt.Errorf("instance index: %w", ErrDamaged)
		}
		sl, err := r.slot(statestore.SessionDigest(k[len(prefix):]))
		if err != nil {
			return nil, nil, err
		}
		if sl.Record != nil && !r.expired(sl) {
			page = append(page, r.viewOf(sl))
		}
	}
	return page, nil, nil
}

// CountSessions reads the counters that every change of owner moves. Sessions
// that belong to nobody are not counted; those that expired are, until they are
// swept.
func (s *Store) CountSessions(ctx context.Context) (map[statestore.InstanceName]int, error) {
	counts := map[statestore.InstanceName]int{}
	err := s.read(ctx, func(r *reader) error {
		return r.each(bCounts, nil, func(k, v []byte) (bool, error) {
			pool, instance, _ := bytes.Cut(k, []byte{0})
			counts[statestore.InstanceName{Pool: string(pool), Instance: string(instance)}] = int(fromBE64(v)) //nolint:gosec // a count
			return true, nil
		})
	})
	return counts, err
}

// List yields sessions in the order of their digests; the cursor is the last
// digest that was looked at.
func (s *Store) List(ctx context.Context, q statestore.SessionQuery) ([]statestore.View, string, error) {
	at, err := hex.DecodeString(q.Cursor)
	if err != nil || (len(at) != 0 && len(at) != len(statestore.SessionDigest{})) {
		return nil, "", fmt.Errorf("cursor: %w", statestore.ErrInvalid)
	}
	if q.Limit <= 0 {
		return nil, "", fmt.Errorf("limit %d: %w", q.Limit, statestore.ErrInvalid)
	}
	var found []statestore.View
	for {
		var more bool
		err := s.read(ctx, func(r *reader) (err error) {
			found, at, more, err = r.listPage(q, at, found)
			return err
		})
		switch {
		case err != nil:
			return nil, "", fmt.Errorf("list sessions: %w", err)
		case !more:
			return found, "", nil
		case len(found) == q.Limit:
			return found, hex.EncodeToString(at), nil
		}
	}
}

// listPage looks at sessions after the digest at, and adds those that match. It
// stops after a page or with the limit, and says whether more are left.
func (r *reader) listPage(q statestore.SessionQuery, at []byte, found []statestore.View) ([]statestore.View, []byte, bool, error) {
	c := r.tx.Bucket(bSessions).Cursor()
	k, v := c.Seek(at)
	if len(at) > 0 && bytes.Equal(k, at) {
		k, v = c.Next()
	}
	for seen := 0; k != nil; k, v = c.Next() {
		if seen == indexPage || len(found) == q.Limit {
			return found, at, true, nil
		}
		seen++
		at = bytes.Clone(k)
		sl, err := decodeSlot(v)
		if err != nil {
			return nil, nil, false, err
		}
		if sl.Record != nil && !r.expired(sl) && matches(q, sl.Record) {
			found = append(found, r.viewOf(sl))
		}
	}
	return found, nil, false, nil
}

func matches(q statestore.SessionQuery, r *statestore.Record) bool {
	return (q.Tenant == "" || q.Tenant == r.Key.Tenant) &&
		(q.Pool == "" || q.Pool == r.Key.Pool) &&
		(q.Instance == "" || q.Instance == r.Owner.Instance) &&
		(q.AffinityKey == statestore.AffinityKey{} || q.AffinityKey == r.AffinityKey)
}
