package redisstore

import (
	"context"
	"encoding/binary"
	"time"

	"berth/statestore"
)

// PutNote replaces the note of a process.
func (s *Store) PutNote(ctx context.Context, process string, text []byte, ttl time.Duration) error {
	if err := statestore.CheckNote(process, text); err != nil {
		return err
	}
	return s.transact(ctx, nil, func(t *tx) error {
		t.harmless = true
		if len(text) == 0 {
			t.drop(tNotes, process)
			return nil
		}
		until := uint64(t.now.Add(ttl)) //nolint:gosec // a time of this millennium
		t.set(tNotes, process, string(append(binary.BigEndian.AppendUint64(nil, until), text...)))
		return nil
	})
}

// Notes reads the notes whose time is not over, and removes those of processes that
// ended without a word.
func (s *Store) Notes(ctx context.Context) (out map[string][]byte, err error) {
	err = s.transact(ctx, []cell{{tNotes, "*"}}, func(t *tx) error {
		t.harmless = true
		out = make(map[string][]byte, len(t.whole[tNotes]))
		for process, stored := range t.whole[tNotes] {
			f := &fields{s: stored}
			until := statestore.Millis(f.uint(8)) //nolint:gosec // as it was written
			if f.bad || t.now >= until.Add(forgottenNote) {
				t.drop(tNotes, process)
			}
			if !f.bad && t.now < until {
				out[process] = []byte(f.s)
			}
		}
		return nil
	})
	return out, err
}

// forgottenNote is how long after its end a note is removed: late enough that no
// process which is only slow has just replaced it.
const forgottenNote = 10 * time.Minute
