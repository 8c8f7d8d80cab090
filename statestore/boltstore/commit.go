package boltstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"berth/statestore"
)

// maxBatch bounds how many writes share a transaction, and so how much is undone
// when its commit fails.
const maxBatch = 512

// fullFor is how long a commit that found no room speaks for those after it.
// bbolt reads its whole file after a failed commit, so that trying is not cheap.
const fullFor = time.Second

// committer gives waiting writes one transaction and one fsync. It collects while
// a commit is under way and never waits for more: alone, a write costs one
// commit; with others, they share the next. bbolt's own Batch waits 10 ms for
// company, and runs a whole batch again for every function that fails.
type committer struct {
	db    *bolt.DB
	clock *clock
	feed  *feed

	mu     sync.Mutex
	queue  []*write
	closed bool
	wake   chan struct{} // holds one token while the queue may have work
	done   chan struct{} // closed when nothing is written any more

	// fullAt is when a commit last found no room; zero once there may be some.
	// Only the committing goroutine knows it.
	fullAt time.Time

	// broken is set once bbolt has panicked: its locks may be held for ever, so
	// that nobody may call it again.
	broken atomic.Pointer[error]
}

// write is one pending change.
type write struct {
	fn    func(*writer) error
	state atomic.Int32
	err   error
	done  chan struct{}
}

// States of a write. Who moves it from pending decides about it.
const (
	pending = iota
	started
	withdrawn
)

func newCommitter(db *bolt.DB, c *clock, f *feed) *committer {
	m := &committer{db: db, clock: c, feed: f, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go m.run()
	return m
}

// do runs fn in a transaction and returns when it is on disk. fn may run more
// than once, never at the same time as another. An error of fn is returned; if fn
// changed something before, that is undone. When ctx ends before fn began nothing
// happens; when it ends later the outcome is unknown.
func (m *committer) do(ctx context.Context, fn func(*writer) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &write{fn: fn, done: make(chan struct{})}
	if err := m.enqueue(w); err != nil {
		return err
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	if w.state.CompareAndSwap(pending, withdrawn) {
		return ctx.Err()
	}
	select {
	case <-w.done:
		return w.err
	default:
		return &statestore.OutcomeUnknownError{Err: ctx.Err()}
	}
}

func (m *committer) enqueue(w *write) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	m.queue = append(m.queue, w)
	m.signal()
	return nil
}

func (m *committer) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// close waits until every accepted write has its answer.
func (m *committer) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.signal()
	<-m.done
}

func (m *committer) run() {
	defer close(m.done)
	debug.SetPanicOnFault(true) // of this goroutine
	for range m.wake {
		for batch := m.next(); len(batch) > 0; batch = m.next() {
			m.commit(batch)
		}
		if m.finished() {
			return
		}
	}
}

// next takes the writes that run together; none when the queue is empty.
func (m *committer) next() []*write {
	m.mu.Lock()
	defer m.mu.Unlock()
	var batch []*write
	taken := 0
	for _, w := range m.queue {
		if len(batch) == maxBatch {
			break
		}
		taken++
		if w.state.CompareAndSwap(pending, started) {
			batch = append(batch, w)
		}
	}
	m.queue = slices.Delete(m.queue, 0, taken)
	return batch
}

func (m *committer) finished() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed && len(m.queue) == 0
}

// commit answers every write of the batch.
func (m *committer) commit(batch []*write) {
	for len(batch) > 0 {
		run := &batchRun{m: m, batch: batch}
		err := run.update()
		switch {
		case run.spoiled != nil:
			// Undone as a whole; the others run again without it.
			run.spoiled.answer(run.spoiled.err)
			batch = without(batch, run.spoiled)
			continue
		case err == nil:
			m.feed.publish(run.events)
			if run.freed {
				m.fullAt = time.Time{}
			}
		case errors.Is(err, statestore.ErrFull):
			m.fullAt = time.Now()
			if len(batch) > 1 {
				// A large write must not refuse the small ones beside it.
				for _, w := range batch {
					m.commit([]*write{w})
				}
				return
			}
		default:
			if errors.As(err, new(*statestore.OutcomeUnknownError)) {
				m.feed.publish([]statestore.Event{{Kind: statestore.EventGap}})
			}
		}
		for _, w := range batch {
			w.answer(cmp.Or(err, w.err))
		}
		return
	}
}

func (w *write) answer(err error) {
	w.err = err
	close(w.done)
}

func without(batch []*write, out *write) []*write {
	rest := make([]*write, 0, len(batch)-1)
	for _, w := range batch {
		if w != out {
			rest = append(rest, w)
		}
	}
	return rest
}

// batchRun is one try to commit a batch.
type batchRun struct {
	m       *committer
	batch   []*write
	events  []statestore.Event
	spoiled *write // failed after it had changed something
	freed   bool   // turns were deleted
	txid    int
}

// errNoChange rolls a transaction back that would write what is there already.
var errNoChange = errors.New("nothing changed")

// update runs the batch in one transaction. Its error holds for every write in
// it; nil leaves each with its own.
func (b *batchRun) update() (err error) {
	if broken := b.m.broken.Load(); broken != nil {
		return *broken
	}
	defer b.m.guard(&err)
	err = b.m.db.Update(b.judge)
	switch {
	case err == nil, errors.Is(err, errNoChange):
		return nil
	case b.spoiled != nil:
		return err
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return errClosed
	}
	return b.failed(err)
}

func (b *batchRun) judge(tx *bolt.Tx) error {
	b.txid = tx.ID()
	changed, full := false, time.Since(b.m.fullAt) < fullFor
	for _, w := range b.batch {
		t := &writer{reader: reader{tx: tx, now: b.m.clock.now()}, full: full}
		w.err = w.fn(t)
		if w.err == nil {
			w.err = t.err
		}
		if t.changed && w.err != nil {
			b.spoiled = w
			return w.err
		}
		changed, b.freed = changed || t.changed, b.freed || t.freed
		b.events = append(b.events, t.events...)
	}
	if !changed {
		return errNoChange
	}
	return tx.Bucket(bMeta).Put(kClock, be64(uint64(b.m.clock.now()))) //nolint:gosec // the clock is past 1970
}

// failed says what became of a commit that returned err. A reader that starts
// from the transaction of that commit proves that its last page was written,
// though perhaps not synced.
func (b *batchRun) failed(err error) error {
	tx, beginErr := b.m.db.Begin(false)
	if beginErr != nil {
		return &statestore.OutcomeUnknownError{Err: errors.Join(err, beginErr)}
	}
	visible := tx.ID() >= b.txid
	_ = tx.Rollback() // a reader has nothing to lose
	switch {
	case visible:
		return &statestore.OutcomeUnknownError{Err: err}
	case full(err):
		return fmt.Errorf("commit: %w: %w", err, statestore.ErrFull)
	}
	return fmt.Errorf("commit: %w: %w", err, statestore.ErrUnavailable)
}

// full reports whether err says that there is no room. bbolt keeps only the text
// of some causes.
func full(err error) bool {
	if errors.Is(err, berrors.ErrMaxSizeReached) {
		return true
	}
	for _, no := range [...]syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, no) || strings.Contains(err.Error(), no.Error()) {
			return true
		}
	}
	return false
}

// guard turns a panic of bbolt, which is how it meets a page that makes no
// sense, and a fault in the mapped file into an error that stays.
func (m *committer) guard(err *error) {
	p := recover()
	if p == nil {
		return
	}
	broken := fmt.Errorf("%w (%v): %w", ErrDamaged, p, statestore.ErrUnavailable)
	m.broken.CompareAndSwap(nil, &broken)
	*err = *m.broken.Load()
}

// view runs fn in a read transaction.
func (m *committer) view(fn func(*bolt.Tx) error) (err error) {
	if broken := m.broken.Load(); broken != nil {
		return *broken
	}
	defer m.guard(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	err = m.db.View(fn)
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return errClosed
	}
	return err
}
