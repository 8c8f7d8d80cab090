package boltstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"

	"berth/statestore"
)

// blocked is a store whose committer stands still inside a write, so that all
// writes that come meanwhile share the next transaction.
type blocked struct {
	*Store
	release chan struct{}
	ended   chan error
}

func block(t *testing.T, s *Store) *blocked {
	t.Helper()
	b := &blocked{Store: s, release: make(chan struct{}), ended: make(chan error, 1)}
	inside := make(chan struct{})
	go func() {
		b.ended <- s.write(context.WithoutCancel(t.Context()), func(*writer) error {
			close(inside)
			<-b.release
			return nil
		})
	}()
	<-inside
	return b
}

// queued waits until n writes wait.
func (b *blocked) queued(n int) {
	for {
		b.commits.mu.Lock()
		waiting := len(b.commits.queue)
		b.commits.mu.Unlock()
		if waiting >= n {
			return
		}
		runtime.Gosched()
	}
}

func (b *blocked) unblock(t *testing.T) {
	t.Helper()
	close(b.release)
	if err := <-b.ended; err != nil {
		t.Fatal(err)
	}
}

// together runs the writes in one transaction and returns their errors.
func together(t *testing.T, s *Store, fns ...func(*writer) error) []error {
	t.Helper()
	b := block(t, s)
	errs := make([]error, len(fns))
	var wg sync.WaitGroup
	for i, fn := range fns {
		wg.Go(func() { errs[i] = s.write(t.Context(), fn) })
		b.queued(i + 1)
	}
	b.unblock(t)
	wg.Wait()
	return errs
}

func putMeta(key string) func(*writer) error {
	return func(w *writer) error {
		w.put(bMeta, []byte(key), []byte("stored"))
		return nil
	}
}

func stored(t *testing.T, s *Store, key string) (found bool) {
	t.Helper()
	if err := s.read(t.Context(), func(r *reader) error {
		found = r.get(bMeta, []byte(key)) != nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestWaitingWritesShareATransaction(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	ids := map[int]bool{}
	fns := make([]func(*writer) error, 20)
	for i := range fns {
		fns[i] = func(w *writer) error {
			ids[w.tx.ID()] = true
			return putMeta(strconv.Itoa(i))(w)
		}
	}
	for i, err := range together(t, s, fns...) {
		if err != nil || !stored(t, s, strconv.Itoa(i)) {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if len(ids) != 1 {
		t.Errorf("20 waiting writes took %d transactions", len(ids))
	}
}

func TestRefusalsHarmNoNeighbour(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	refusal := &statestore.VersionConflictError{Version: 7}
	spoiled := errors.New("found out too late")
	errs := together(t, s,
		putMeta("first"),
		func(*writer) error { return refusal },
		func(w *writer) error { // refuses after it has changed something
			w.put(bMeta, []byte("half"), []byte("done"))
			return spoiled
		},
		putMeta("last"),
	)
	for i, want := range []error{nil, refusal, spoiled, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("write %d: got %v, want %v", i, errs[i], want)
		}
	}
	if !stored(t, s, "first") || !stored(t, s, "last") {
		t.Error("a neighbour was lost")
	}
	if stored(t, s, "half") {
		t.Error("the spoiled write left something")
	}
}

func TestRefusalCostsNoCommit(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	says(t, s, "a", "op1", []byte("x"))
	txid := func() (id int) {
		_ = s.commits.view(func(tx *bolt.Tx) error { id = tx.ID(); return nil })
		return id
	}
	before := txid()
	a := statestore.Append{Key: keyOf("a"), By: i2, Op: "op1", Turns: bytesTurn([]byte("y")), Handle: present(t, s, "a"), Lifetimes: lives}
	if _, err := s.Append(t.Context(), a); err == nil {
		t.Fatal("the op was reused")
	}
	a.By, a.Turns = i1, bytesTurn([]byte("x"))
	if r, err := s.Append(t.Context(), a); err != nil || !r.Duplicate {
		t.Fatalf("repeated: %+v, %v", r, err)
	}
	if after := txid(); after != before {
		t.Errorf("a refusal and a repetition were committed as transactions %d to %d", before+1, after)
	}
}

func TestCancelledBeforeItsTurnIsNotWritten(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	b := block(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.write(ctx, putMeta("late")) }()
	b.queued(1)
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	b.unblock(t)
	if err := s.write(t.Context(), putMeta("next")); err != nil || stored(t, s, "late") {
		t.Errorf("the write came after its cancellation (%v)", err)
	}
}

func TestCancelledInItsTurnIsUnknown(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	inside, release, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		result <- s.write(ctx, func(w *writer) error {
			close(inside)
			<-release
			return putMeta("late")(w)
		})
	}()
	<-inside
	cancel()
	var unknown *statestore.OutcomeUnknownError
	if err := <-result; !errors.As(err, &unknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(release)
	if err := s.write(t.Context(), putMeta("next")); err != nil || !stored(t, s, "late") {
		t.Errorf("what may have been stored was not (%v)", err)
	}
}

// A store without room refuses what would grow it, says so, and goes on with
// everything else, also in the same transaction.
func TestFullStoreStillServes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	s := openAt(t, path, Options{MaxBytes: 4 << 20})
	for i := 0; ; i++ {
		id := "session " + strconv.Itoa(i)
		_, err := s.Append(t.Context(), statestore.Append{
			Key: keyOf(id), By: i1, Op: "op", Turns: bytesTurn(noiseOf(200 << 10)), Handle: present(t, s, id), Lifetimes: lives,
		})
		if errors.Is(err, statestore.ErrFull) {
			break
		}
		if err != nil || i > 100 {
			t.Fatalf("append %d: %v", i, err)
		}
	}
	big := func() error {
		_, err := s.Append(t.Context(), statestore.Append{
			Key: keyOf("big"), By: i1, Op: "op", Turns: bytesTurn(noiseOf(1 << 20)), Lifetimes: lives,
		})
		return err
	}
	b := block(t, s)
	results := make([]error, 2)
	var wg sync.WaitGroup
	wg.Go(func() { results[0] = big() })
	b.queued(1)
	wg.Go(func() {
		_, results[1] = s.Delete(t.Context(), statestore.Delete{Key: keyOf("session 0"), Lifetimes: lives})
	})
	b.queued(2)
	b.unblock(t)
	wg.Wait()
	if !errors.Is(results[0], statestore.ErrFull) || results[1] != nil {
		t.Errorf("the large append: %v, the delete beside it: %v", results[0], results[1])
	}
	if v, err := s.Lookup(t.Context(), keyOf("big")); err != nil || v.Exists {
		t.Errorf("of a refused append there is %+v, %v", v, err)
	}
	for i := 1; i < 8; i++ {
		if _, err := s.Delete(t.Context(), statestore.Delete{Key: keyOf("session " + strconv.Itoa(i)), Lifetimes: lives}); err != nil {
			t.Fatal(err)
		}
	}
	says(t, s, "after deletes there is room", "op", noiseOf(200<<10))
	checkFile(t, s)
}

func TestFullIsRecognised(t *testing.T) {
	t.Parallel()
	cases := map[error]bool{
		&wrapped{syscall.ENOSPC}: true, &wrapped{syscall.EDQUOT}: true,
		fmt.Errorf("file resize error: %s", syscall.ENOSPC): true, // as bbolt words it
		&wrapped{syscall.EIO}:                               false, errors.New("something else"): false,
	}
	for err, want := range cases {
		if full(err) != want {
			t.Errorf("%v: full is %v", err, !want)
		}
	}
}

type wrapped struct{ err error }

func (w *wrapped) Error() string { return "write: " + w.err.Error() }
func (w *wrapped) Unwrap() error { return w.err }

// bbolt panics where a page makes no sense. That must end no process, and nobody
// may touch the file again.
func TestPanicBecomesDamage(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	errs := together(t, s, putMeta("beside"), func(*writer) error { panic("page 7: invalid page type") })
	for _, err := range errs {
		if !errors.Is(err, ErrDamaged) || !errors.Is(err, statestore.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := s.Lookup(t.Context(), keyOf("a")); !errors.Is(err, ErrDamaged) {
		t.Errorf("afterwards a read: %v", err)
	}
	if err := s.write(t.Context(), putMeta("after")); !errors.Is(err, ErrDamaged) {
		t.Errorf("afterwards a write: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
