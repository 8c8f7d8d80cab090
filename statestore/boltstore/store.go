package boltstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"berth/statestore"
)

// lockWait is how long Open waits for another process to let go of the file: long
// enough for one that is just ending.
const lockWait = 500 * time.Millisecond

// errClosed is every answer after Close.
var errClosed = fmt.Errorf("the store is closed: %w", statestore.ErrUnavailable)

// Options of a store. The zero value is what a server wants.
type Options struct {
	// Clock replaces the wall clock; nil is time.Now.
	Clock func() time.Time
	// MaxBytes bounds the file; writes that would grow it further are ErrFull.
	// 0: the disk is the bound.
	MaxBytes int
}

// Store is a statestore.Store in one file.
type Store struct {
	db      *bolt.DB
	clock   *clock
	feed    *feed
	commits *committer
}

var _ statestore.Store = (*Store)(nil)

// Open opens the store in the file at path, which it creates together with its
// directory. A file that another process has open is [statestore.ErrInUse]; one
// that makes no sense is [ErrDamaged].
func Open(ctx context.Context, path string, opts Options) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	s, err := open(path, opts)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return s, nil
}

func open(path string, opts Options) (*Store, error) {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create its directory: %w", err)
	}
	db, err := openFile(path, opts)
	if err != nil {
		return nil, err
	}
	floor, err := prepare(db)
	if err == nil {
		// The name of a new file must outlive a crash as well as its bytes.
		err = syncDir(dir)
	}
	if err != nil {
		_ = db.Close() // the reason to give up is told
		return nil, err
	}
	c, f := newClock(opts.Clock, floor), newFeed()
	return &Store{db: db, clock: c, feed: f, commits: newCommitter(db, c, f)}, nil
}

// openFile opens the database. The list of free pages is rebuilt at the start
// rather than written with every commit: after many sessions ended it is long,
// and a commit would pay for it.
func openFile(path string, opts Options) (db *bolt.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, fmt.Errorf("%w (%v)", ErrDamaged, p)
		}
	}()
	db, err = bolt.Open(path, 0o600, &bolt.Options{
		Timeout:        lockWait,
		NoFreelistSync: true,
		FreelistType:   bolt.FreelistMapType,
		MaxSize:        opts.MaxBytes,
		NoStatistics:   true,
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, statestore.ErrInUse
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return nil, fmt.Errorf("%w: %w", err, ErrDamaged)
	}
	return db, err
}

// prepare makes the buckets of a new file, refuses a file of another kind, and
// returns the last moment that the store's clock is known to have shown.
func prepare(db *bolt.DB) (floor statestore.Millis, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w (%v)", ErrDamaged, p)
		}
	}()
	err = db.Update(func(tx *bolt.Tx) error {
		if meta := tx.Bucket(bMeta); meta != nil {
			if v := fromBE64(meta.Get(kFormat)); v != format {
				return fmt.Errorf("its format is %d, and this program knows only %d", v, format)
			}
			floor = statestore.Millis(fromBE64(meta.Get(kClock))) //nolint:gosec // as it was written
			return nil
		}
		if k, _ := tx.Cursor().First(); k != nil {
			return errors.New("it is another program's bbolt file")
		}
		for _, name := range buckets {
			if _, err := tx.CreateBucket(name); err != nil {
				return fmt.Errorf("create bucket %s: %w", name, err)
			}
		}
		return tx.Bucket(bMeta).Put(kFormat, be64(format))
	})
	return floor, err
}

func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator named it
	if err != nil {
		return fmt.Errorf("open its directory: %w", err)
	}
	defer d.Close() //nolint:errcheck // only read
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync its directory: %w", err)
	}
	return nil
}

// Describe says what the store is.
func (s *Store) Describe(ctx context.Context) (statestore.Description, error) {
	err := s.read(ctx, func(*reader) error { return nil })
	if err != nil {
		return statestore.Description{}, err
	}
	return statestore.Description{Backend: "bolt", Durability: statestore.LevelFsynced, Partitions: 1}, nil
}

// Close answers the writes that were accepted and closes the file. Every later
// call is ErrUnavailable.
func (s *Store) Close() error {
	s.commits.close()
	s.feed.close()
	if s.commits.broken.Load() != nil {
		// bbolt's locks may be held by the transaction that panicked. The file
		// stays locked until the process ends.
		return nil
	}
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// Watch yields changes as they are committed.
func (s *Store) Watch(ctx context.Context) (<-chan statestore.Event, error) { return s.feed.watch(ctx) }

// read runs fn in a read transaction; what it keeps of the transaction must be
// copied.
func (s *Store) read(ctx context.Context, fn func(*reader) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.commits.view(func(tx *bolt.Tx) error { return fn(&reader{tx: tx, now: s.clock.now()}) })
}

// write runs fn in a write transaction, durably; see [committer.do].
func (s *Store) write(ctx context.Context, fn func(*writer) error) error {
	return s.commits.do(ctx, fn)
}
