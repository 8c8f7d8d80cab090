package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"berth/statestore"
	"berth/statestore/internal/frame"
)

// cut says where the log is cut for a write that keeps its first turns, as
// lua/append.lua takes it.
type cut struct {
	mark
	entries int    // of the directory that stay
	chunk   uint64 // what stays of the last one's chunk and ending, 0 when they stay whole
	pieces  int    // of the open tail that stay whole
	part    uint64 // what stays of the next piece
	since   uint64 // bytes of pieces after the last entry
}

func (c cut) pack(born, rewritten uint64) []byte {
	b := appendUint(nil, born, 6)
	b = appendUint(b, rewritten, 6)
	b = appendUint(b, c.at, 6)
	b = appendUint(b, uint64(c.entries), 4) //nolint:gosec // a count
	b = appendUint(b, uint64(c.pieces), 4)  //nolint:gosec // a count
	b = appendUint(b, c.part, 4)
	b = appendUint(b, c.since, 4)
	b = appendUint(b, c.chunk, 4)
	b = appendUint(b, c.bytes, 6)
	return appendUint(b, c.tokens, 8)
}

// locate finds where the k-th turn begins. It reads one part of the log at most.
// nil is an answer too: the function then says why there is nothing to cut.
func (s *Store) locate(ctx context.Context, c call, k uint64) ([]byte, error) {
	got, err := s.fetch(ctx, c)
	if err != nil || !got.Exists || k >= got.Turns {
		return nil, err
	}
	i := got.before(k)
	sp := got.span(i)
	sp.past, sp.names = i+1, sp.names[:min(len(sp.names), 1)]
	if got.parts[i].chunk == "" {
		sp.names = nil
	}
	_, sp.to = got.end(i)
	chunks, pieces, err := s.readSpan(ctx, c, &got, sp)
	if errors.Is(err, statestore.ErrChanged) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	at, err := walk(slices.Concat(chunks, []string{got.parts[i].ending}, pieces), got.parts[i], k)
	if err != nil {
		return nil, err
	}
	return got.cut(i, at, pieces).pack(got.born, got.Rewritten), nil
}

// walk goes from the first turn of a part to the k-th.
func walk(texts []string, p part, k uint64) (mark, error) {
	at, from := p.next, p.from
	for ; at.turn < k; at.turn++ {
		// The head of a frame may be cut by pieces.
		var head []byte
		for at.at >= from && len(texts) > 0 && at.at-from >= uint64(len(texts[0])) {
			from += uint64(len(texts[0]))
			texts = texts[1:]
		}
		for i, skip := 0, at.at-from; i < len(texts) && len(head) < headBytes; i++ {
			head = append(head, texts[i][skip:min(uint64(len(texts[i])), skip+headBytes)]...)
			skip = 0
		}
		info, err := frame.Measure(head)
		if err != nil {
			return mark{}, fmt.Errorf("turn %d: %w: %w", at.turn, err, ErrDamaged)
		}
		at.at, at.bytes, at.tokens = at.at+info.Size, at.bytes+info.Bytes, at.tokens+info.Tokens
	}
	return at, nil
}

// cut is the cut at a mark in the i-th part, whose pieces are given.
func (got *contents) cut(i int, at mark, pieces []string) cut {
	p := got.parts[i]
	c := cut{mark: at, entries: i + 1, pieces: p.pieces}
	if got.entries < len(got.parts) {
		c.entries = i // the first part has no entry
	}
	switch inside := at.at - p.from; {
	case inside == 0 && c.entries > 0:
		c.entries-- // nothing of the part stays
	case inside < p.size:
		c.chunk = inside
	default:
		c.since = inside - p.size
		for c.part = c.since; len(pieces) > 0 && c.part >= uint64(len(pieces[0])); pieces = pieces[1:] {
			c.part -= uint64(len(pieces[0]))
			c.pieces++
		}
	}
	return c
}
