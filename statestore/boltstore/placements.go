package boltstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"berth/statestore"
)

// PutPlacements replaces what one instance said of its KV cache. It renews
// nothing: what a cache holds does not keep a conversation alive.
func (s *Store) PutPlacements(ctx context.Context, key statestore.SessionKey, by statestore.Owner, descriptors []byte) error {
	if err := checkOwner(by); err != nil {
		return err
	}
	return s.judge(ctx, key, func(p *place) error {
		if p.Record == nil {
			return fmt.Errorf("session: %w", statestore.ErrNotFound)
		}
		entry := placementKey(p.digest, by)
		if emptySet(descriptors) {
			if p.w.get(bPlacements, entry) != nil {
				p.w.delete(bPlacements, entry)
			}
			return nil
		}
		size := len(descriptors)
		err := p.w.each(bPlacements, p.digest[:], func(k, v []byte) (bool, error) {
			if !bytes.Equal(k, entry) {
				size += len(v) - placementHead
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		if size > statestore.MaxPlacementBytes {
			return &statestore.TooLargeError{What: "kv", Limit: statestore.MaxPlacementBytes, Size: uint64(size)}
		}
		p.w.put(bPlacements, entry, append(be64(uint64(p.w.now)), descriptors...)) //nolint:gosec // past 1970
		return nil
	})
}

// placementHead is the time before the descriptors of an entry.
const placementHead = 8

// emptySet reports whether the descriptors are an empty JSON array, or nothing.
func emptySet(descriptors []byte) bool {
	var items []json.RawMessage
	return len(descriptors) == 0 || json.Unmarshal(descriptors, &items) == nil && len(items) == 0
}

func (r *reader) placements(d statestore.SessionDigest) ([]statestore.PlacementSet, error) {
	var sets []statestore.PlacementSet
	err := r.each(bPlacements, d[:], func(k, v []byte) (bool, error) {
		instance, incarnation, ok := bytes.Cut(k[len(d):], []byte{0})
		if !ok || len(v) < placementHead {
			return false, fmt.Errorf("placement: %w", ErrDamaged)
		}
		sets = append(sets, statestore.PlacementSet{
			By:          statestore.Owner{Instance: string(instance), Incarnation: string(incarnation)},
			Descriptors: bytes.Clone(v[placementHead:]),
			Age:         r.now.Sub(dueAt(v)),
		})
		return true, nil
	})
	return sets, err
}
