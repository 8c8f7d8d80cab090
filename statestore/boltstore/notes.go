package boltstore

import (
	"bytes"
	"context"
	"sync"
	"time"

	"berth/statestore"
)

// notes are kept in memory: the one process that has the file open is the only one
// that there is to tell.
type notes struct {
	mu        sync.Mutex
	byProcess map[string]note
}

type note struct {
	text  []byte
	until statestore.Millis
}

// PutNote replaces the note of a process.
func (s *Store) PutNote(ctx context.Context, process string, text []byte, ttl time.Duration) error {
	if err := statestore.CheckNote(process, text); err != nil {
		return err
	}
	return s.read(ctx, func(r *reader) error {
		s.notes.mu.Lock()
		defer s.notes.mu.Unlock()
		if s.notes.byProcess == nil {
			s.notes.byProcess = map[string]note{}
		}
		if len(text) == 0 {
			delete(s.notes.byProcess, process)
			return nil
		}
		s.notes.byProcess[process] = note{text: bytes.Clone(text), until: r.now.Add(ttl)}
		return nil
	})
}

// Notes reads the notes whose time is not over.
func (s *Store) Notes(ctx context.Context) (out map[string][]byte, err error) {
	err = s.read(ctx, func(r *reader) error {
		s.notes.mu.Lock()
		defer s.notes.mu.Unlock()
		out = make(map[string][]byte, len(s.notes.byProcess))
		for process, n := range s.notes.byProcess {
			if r.now >= n.until {
				delete(s.notes.byProcess, process)
				continue
			}
			out[process] = bytes.Clone(n.text)
		}
		return nil
	})
	return out, err
}
