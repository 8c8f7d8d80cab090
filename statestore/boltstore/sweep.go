package boltstore

import (
	"bytes"
	"context"
	"fmt"

	"berth/statestore"
)

// Bounds of one transaction of a sweep: sessions looked at, and turns deleted,
// which are what costs time.
const (
	sweepPage  = 128
	sweepTurns = 4096
)

// Sweep ends sessions whose time is over, and forgets tombstones and tasks whose
// time is. There are no staged writes here: a write is one transaction. It
// reports the sessions that it ended.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	ended := 0
	for ended < limit {
		due, err := s.due(ctx, min(sweepPage, limit-ended))
		if err != nil {
			return ended, fmt.Errorf("sweep: %w", err)
		}
		if len(due) == 0 {
			break
		}
		var n int
		err = s.write(ctx, func(w *writer) (err error) {
			n, err = w.sweep(due)
			return err
		})
		if err != nil {
			return ended, fmt.Errorf("sweep: %w", err)
		}
		ended += n
	}
	return ended, s.sweepTasks(ctx, limit)
}

// due is up to n entries of the due index whose time has come.
func (s *Store) due(ctx context.Context, n int) (keys [][]byte, err error) {
	err = s.read(ctx, func(r *reader) error {
		return r.each(bDue, nil, func(k, _ []byte) (bool, error) {
			if len(k) != 8+len(statestore.SessionDigest{}) {
				return false, fmt.Errorf("due index: %w", ErrDamaged)
			}
			if len(keys) == n || dueAt(k) > r.now {
				return false, nil
			}
			keys = append(keys, bytes.Clone(k))
			return true, nil
		})
	})
	return keys, err
}

// sweep looks at the sessions of the due entries and leaves none of the entries
// it looked at: each is over now, or filed for later.
func (w *writer) sweep(due [][]byte) (ended int, err error) {
	turns := uint64(0)
	for _, entry := range due {
		if turns > sweepTurns {
			break
		}
		d := statestore.SessionDigest(entry[8:])
		found, err := w.slot(d)
		if err != nil {
			return ended, err
		}
		if w.expired(found) {
			ended++
			turns += found.Record.Turns
		}
		p, err := w.place(d)
		if err != nil {
			return ended, err
		}
		if p.due == dueAt(entry) {
			p.unfile()
		}
		w.delete(bDue, entry)
		p.save()
	}
	return ended, nil
}

// sweepTasks forgets up to limit tasks that belong to no job, once their time is
// over; the tasks of a job are forgotten with it.
func (s *Store) sweepTasks(ctx context.Context, limit int) error {
	due := false
	err := s.read(ctx, func(r *reader) error {
		k, _ := r.tx.Bucket(bTaskDue).Cursor().First()
		due = k != nil && dueAt(k) <= r.now
		return nil
	})
	if err != nil || !due {
		return err
	}
	return s.write(ctx, func(w *writer) error {
		var over [][]byte
		err := w.each(bTaskDue, nil, func(k, _ []byte) (bool, error) {
			if len(over) == limit || dueAt(k) > w.now {
				return false, nil
			}
			over = append(over, bytes.Clone(k))
			return true, nil
		})
		for _, k := range over {
			w.delete(bTaskDue, k)
			if err := w.dropTask(k[8:]); err != nil {
				return err
			}
		}
		return err
	})
}
