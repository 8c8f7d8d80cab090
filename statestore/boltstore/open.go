package boltstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"berth/statestore"
)

// lockWait is how long Open waits for another process to let go of the file: long
// enough for one that is just ending.
const lockWait = 500 * time.Millisecond

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
	// Open creates a file that is not there; one that is there and empty was made by
	// somebody else, or had its bytes taken.
	info, err := os.Stat(path)
	empty := err == nil && info.Size() == 0
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
	c, f := newClock(readingOf(opts.Clock), floor), newFeed()
	return &Store{db: db, clock: c, feed: f, commits: newCommitter(db, c, f), warnings: warnings(path, empty)}, nil
}

// warnings are what whoever starts the store ought to know.
func warnings(path string, empty bool) []string {
	if !empty {
		return nil
	}
	return []string{path + " was there with 0 bytes, and is a new store: if it held sessions, stop and put a copy back"}
}

// openFile opens the database. The list of free pages is rebuilt at the start
// rather than written with every commit: after many sessions ended it is long,
// and a commit would pay for it.
func openFile(path string, opts Options) (*bolt.DB, error) {
	if err := verify(path); err != nil {
		return nil, err
	}
	return openBolt(path, &bolt.Options{
		Timeout:        lockWait,
		NoFreelistSync: true,
		FreelistType:   bolt.FreelistMapType,
		MaxSize:        opts.MaxBytes,
		NoStatistics:   true,
	})
}

// openBolt words bbolt's errors, and its panics, for people.
func openBolt(path string, opts *bolt.Options) (db *bolt.DB, err error) {
	defer asDamage(&err)
	db, err = bolt.Open(path, 0o600, opts)
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, statestore.ErrInUse
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return nil, fmt.Errorf("%w: %w", err, ErrDamaged)
	}
	return db, err
}

// verify visits every page of an existing file. bbolt does so as well when it
// collects the free pages, but in a goroutine of its own, where a page that makes
// no sense ends the process.
func verify(path string) (err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && info.Size() == 0:
		return nil
	case err != nil:
		return err
	}
	db, err := openBolt(path, &bolt.Options{Timeout: lockWait, ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // only read
	defer asDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return db.View(func(tx *bolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("it has %d of %d bytes: %w", info.Size(), tx.Size(), ErrDamaged)
		}
		return tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
			c := b.Cursor()
			for k, _ := c.First(); k != nil; k, _ = c.Next() { //nolint:revive // visiting is what counts
			}
			return nil
		})
	})
}

// asDamage makes an error of a panic, which is how bbolt meets a page that makes
// no sense.
func asDamage(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w (%v)", ErrDamaged, p)
	}
}

// prepare makes the buckets of a new file, refuses a file of another kind, and
// returns the last moment that the store's clock is known to have shown.
func prepare(db *bolt.DB) (floor statestore.Millis, err error) {
	defer asDamage(&err)
	err = db.Update(func(tx *bolt.Tx) error {
		if meta := tx.Bucket(bMeta); meta != nil {
			if v := fromBE64(meta.Get(kFormat)); v != format {
				return fmt.Errorf("its format is %d, and this program knows only %d", v, format)
			}
			floor = statestore.Millis(fromBE64(meta.Get(kClock))) //nolint:gosec // as it was written
			return makeBuckets(tx)
		}
		if k, _ := tx.Cursor().First(); k != nil {
			return errors.New("it is another program's bbolt file")
		}
		if err := makeBuckets(tx); err != nil {
			return err
		}
		return tx.Bucket(bMeta).Put(kFormat, be64(format))
	})
	return floor, err
}

// makeBuckets makes those that are not there: a file of before lacks the later ones.
func makeBuckets(tx *bolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return fmt.Errorf("create bucket %s: %w", name, err)
		}
	}
	return nil
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
