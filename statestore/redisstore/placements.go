package redisstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/statestore"
	"berth/statestore/internal/frame"
)

// PutPlacements replaces what one boot of an instance said of its KV cache. It
// renews nothing: what a cache holds does not keep a conversation alive.
func (s *Store) PutPlacements(ctx context.Context, key statestore.SessionKey, by statestore.Owner, descriptors []byte) error {
	if err := key.Validate(); err != nil {
		return err
	}
	if err := checkOwner(by); err != nil {
		return err
	}
	if emptySet(descriptors) {
		descriptors = nil
	}
	c := s.newCall(key)
	// What alone is too large need not travel.
	if n := len(descriptors); n > statestore.MaxPlacementBytes {
		v, err := s.Lookup(ctx, key)
		if err == nil && v.Exists {
			err = &statestore.TooLargeError{What: "kv", Limit: statestore.MaxPlacementBytes, Size: uint64(n)}
		} else if err == nil {
			err = fmt.Errorf("session: %w", statestore.ErrNotFound)
		}
		return err
	}
	args := c.args(packOwner(by), bytes.Clone(descriptors), statestore.MaxPlacementBytes)
	a, _, err := s.change(ctx, statestore.Requirement{}, placeFn, c.keys, args)
	if err != nil {
		return err
	}
	if a.text(0) == "too_large" {
		return &statestore.TooLargeError{What: "kv", Limit: a.uint(1), Size: a.uint(2)}
	}
	return a.refusal()
}

// emptySet reports whether the descriptors are an empty JSON array, or nothing.
func emptySet(descriptors []byte) bool {
	var items []json.RawMessage
	return len(descriptors) == 0 || json.Unmarshal(descriptors, &items) == nil && len(items) == 0
}

// decodePlacements reads owner → time and descriptors, in the order of owners.
func decodePlacements(values map[string]string, now statestore.Millis) ([]statestore.PlacementSet, error) {
	var sets []statestore.PlacementSet
	for _, owner := range slices.Sorted(maps.Keys(values)) {
		f := &fields{s: values[owner]}
		at := statestore.Millis(f.uint(8)) //nolint:gosec // a time
		if f.bad {
			return nil, fmt.Errorf("placement: %w", ErrDamaged)
		}
		sets = append(sets, statestore.PlacementSet{By: ownerOf(owner), Descriptors: []byte(f.s), Age: now.Sub(at)})
	}
	return sets, nil
}

// parkedWrite is a parked append with its place in the row, and where its frames
// are.
type parkedWrite struct {
	statestore.Parked
	seq    uint64
	chunks []string // names in the log key
	rest   string   // what follows the chunks
}

// readParked reads the parked writes of a session, first come first.
func (s *Store) readParked(ctx context.Context, c call, values map[string]string, now statestore.Millis) ([]statestore.Parked, error) {
	writes := make([]*parkedWrite, 0, len(values))
	for _, v := range values {
		p, err := decodeParked(v, now)
		if err != nil {
			return nil, err
		}
		writes = append(writes, p)
	}
	slices.SortFunc(writes, func(a, b *parkedWrite) int { return cmp.Compare(a.seq, b.seq) })
	var parked []statestore.Parked
	for _, p := range writes {
		stream, err := s.readFrames(ctx, c, p)
		if errors.Is(err, statestore.ErrChanged) {
			continue // adopted, or ended with its session, meanwhile
		}
		if err == nil {
			p.Turns, err = decodeTurns(stream)
		}
		if err != nil {
			return nil, fmt.Errorf("parked write: %w", err)
		}
		parked = append(parked, p.Parked)
	}
	return parked, nil
}

// readFrames reads the frames of a parked write.
func (s *Store) readFrames(ctx context.Context, c call, p *parkedWrite) (string, error) {
	var pieces []string
	for names := range slices.Chunk(p.chunks, pageBytes/largeChunk) {
		texts, err := s.readChunks(ctx, c, names)
		if err != nil {
			return "", err
		}
		pieces = append(pieces, texts...)
	}
	return strings.Join(append(pieces, p.rest), ""), nil
}

// decodeParked reads what park in lua/log.lua packs.
func decodeParked(v string, now statestore.Millis) (*parkedWrite, error) {
	f := &fields{s: v}
	f.take(1)
	p := &parkedWrite{seq: f.uint(4)}
	p.Age = now.Sub(f.millis())
	p.Floor = f.floor()
	if base := f.uint(6); base > 0 {
		base--
		p.Base = &base
	}
	p.By, p.Op = f.owner(), f.text(2)
	if meta := f.text(4); meta != "" {
		p.Meta = []byte(meta)
	}
	tag, chunks := f.take(8), f.int(4)
	for i := 0; i < chunks && !f.bad; i++ {
		p.chunks = append(p.chunks, chunkName([]byte(tag), i))
	}
	p.rest, f.s = f.s, ""
	return p, f.end("parked write")
}

func decodeTurns(stream string) (turns []statestore.Turn, err error) {
	for rest := bytesOf(stream); len(rest) > 0; {
		t, n, err := frame.Next(rest)
		if err != nil {
			return nil, fmt.Errorf("turn %d: %w: %w", len(turns), err, ErrDamaged)
		}
		turns = append(turns, t)
		rest = rest[n:]
	}
	return turns, nil
}
