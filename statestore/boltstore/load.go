package boltstore

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"berth/statestore"
	"berth/statestore/internal/frame"
)

// A page of a load ends with the first of these.
const (
	pageBytes = 512 << 10 // of values, counting the one that passes it
	pageTurns = 1024
)

// Lookup reads a record.
func (s *Store) Lookup(ctx context.Context, key statestore.SessionKey) (statestore.View, error) {
	got, err := s.reading(ctx, key, (*reader).viewReading)
	return got.View, err
}

// Load reads a record with what belongs to it, and its turns lazily.
func (s *Store) Load(ctx context.Context, key statestore.SessionKey, from uint64) (statestore.Reading, error) {
	got, err := s.reading(ctx, key, (*reader).fullReading)
	if err != nil {
		return statestore.Reading{}, err
	}
	if !got.Exists {
		got.Turns = func(func(statestore.NumberedTurn, error) bool) {}
		return got, nil
	}
	l := &load{store: s, digest: key.Digest(), next: from, end: got.Record.Turns,
		version: got.Version, life: got.Before.Epoch}
	got.Turns = l.turns(ctx)
	return got, nil
}

// reading reads a session by fn. One whose time is over is ended first, so that
// all callers are told the same epoch of its tombstone.
func (s *Store) reading(ctx context.Context, key statestore.SessionKey,
	fn func(*reader, statestore.SessionDigest, *slot) (statestore.Reading, error),
) (got statestore.Reading, err error) {
	if err := key.Validate(); err != nil {
		return got, err
	}
	digest, over := key.Digest(), false
	err = s.read(ctx, func(r *reader) error {
		sl, err := r.slot(digest)
		if err != nil {
			return err
		}
		if over = r.expired(sl); over {
			return nil
		}
		got, err = fn(r, digest, sl)
		return err
	})
	if err != nil || !over {
		return got, err
	}
	err = s.judge(ctx, key, func(p *place) (err error) {
		got, err = fn(&p.w.reader, digest, p.slot)
		return err
	})
	return got, err
}

func (r *reader) viewReading(_ statestore.SessionDigest, s *slot) (statestore.Reading, error) {
	return statestore.Reading{View: r.viewOf(s)}, nil
}

func (r *reader) fullReading(d statestore.SessionDigest, s *slot) (got statestore.Reading, err error) {
	got.View = r.viewOf(s)
	if !got.Exists {
		return got, nil
	}
	got.Meta = bytes.Clone(r.get(bContexts, d[:]))
	if got.Placements, err = r.placements(d); err != nil {
		return got, err
	}
	if s.parked > 0 {
		got.Parked, err = r.parked(d)
	}
	return got, err
}

// parked reads the parked writes of a session, first come first.
func (r *reader) parked(d statestore.SessionDigest) ([]statestore.Parked, error) {
	var writes []*parkedWrite
	err := r.each(bParked, d[:], func(_, v []byte) (bool, error) {
		p, err := decodeParked(v)
		if err != nil {
			return false, err
		}
		p.Age = r.now.Sub(p.at)
		writes = append(writes, p)
		return true, nil
	})
	slices.SortFunc(writes, func(a, b *parkedWrite) int { return int(a.seq) - int(b.seq) }) //nolint:gosec // small
	parked := make([]statestore.Parked, len(writes))
	for i, p := range writes {
		parked[i] = p.Parked
	}
	return parked, err
}

// load is a reading of turns under way.
type load struct {
	store         *Store
	digest        statestore.SessionDigest
	next, end     uint64
	version, life uint64 // of the record, and the epoch it was created over, at the start
}

func (l *load) turns(ctx context.Context) iter.Seq2[statestore.NumberedTurn, error] {
	return func(yield func(statestore.NumberedTurn, error) bool) {
		for l.next < l.end {
			page, err := l.page(ctx)
			for _, t := range page {
				if !yield(statestore.NumberedTurn{N: l.next, Turn: t}, nil) {
					return
				}
				l.next++
			}
			if err != nil {
				yield(statestore.NumberedTurn{}, err)
				return
			}
		}
	}
}

// page reads the next turns in one transaction, or reports that they are no
// longer those that the load began with. Turns before an error are good.
func (l *load) page(ctx context.Context) (turns []statestore.Turn, err error) {
	err = l.store.read(ctx, func(r *reader) error {
		s, err := r.slot(l.digest)
		if err != nil {
			return err
		}
		if s.Record == nil || r.expired(s) || s.Record.Before.Epoch != l.life || s.Record.Rewritten > l.version {
			return statestore.ErrChanged
		}
		c := r.tx.Bucket(bTurns).Cursor()
		k, v := c.Seek(turnKey(l.digest, l.next))
		size := 0
		for n := l.next; n < l.end && len(turns) < pageTurns && size < pageBytes; n++ {
			if !bytes.Equal(k, turnKey(l.digest, n)) {
				return fmt.Errorf("turn %d is missing: %w", n, ErrDamaged)
			}
			t, _, err := frame.Next(v)
			if err != nil {
				return fmt.Errorf("turn %d: %w: %w", n, err, ErrDamaged)
			}
			turns = append(turns, t)
			size += len(t.Value)
			k, v = c.Next()
		}
		return nil
	})
	return turns, err
}
