package boltstore_test

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"berth/statestore"
	"berth/statestore/boltstore"
	"berth/statestore/storetest"
)

// wall is a clock that only the test moves.
type wall struct {
	mu  sync.Mutex
	now time.Time
}

func (w *wall) read() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *wall) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// bench is the stores that a test opened, with where they are and their clock.
type bench struct {
	mu    sync.Mutex
	files map[statestore.Store]file
}

type file struct {
	path string
	wall *wall
}

func (b *bench) open(t testing.TB) statestore.Store {
	return b.openFile(t, file{
		path: filepath.Join(t.TempDir(), "store"),
		wall: &wall{now: time.Now().Round(0)},
	})
}

func (b *bench) openFile(t testing.TB, f file) statestore.Store {
	t.Helper()
	s, err := boltstore.Open(t.Context(), f.path, boltstore.Options{Clock: f.wall.read})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.files == nil {
		b.files = map[statestore.Store]file{}
	}
	b.files[s] = f
	return s
}

func (b *bench) file(s statestore.Store) file {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.files[s]
}

func (b *bench) reopen(t testing.TB, s statestore.Store) statestore.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return b.openFile(t, b.file(s))
}

// snapshot copies the file of a store, and puts the copy in its place again.
func (b *bench) snapshot(t testing.TB, s statestore.Store) (restore func() statestore.Store) {
	t.Helper()
	f := b.file(s)
	kept := filepath.Join(t.TempDir(), "kept")
	copyFile(t, f.path, kept)
	current := s
	return func() statestore.Store {
		t.Helper()
		if err := current.Close(); err != nil {
			t.Fatal(err)
		}
		copyFile(t, kept, f.path)
		current = b.openFile(t, f)
		return current
	}
}

// copyFile copies a store's file. Nobody writes meanwhile.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	b := &bench{}
	storetest.Run(t, storetest.Backend{
		Open:     b.open,
		Advance:  func(_ testing.TB, s statestore.Store, d time.Duration) { b.file(s).wall.advance(d) },
		Snapshot: b.snapshot,
		Reopen:   b.reopen,
	})
}
