package boltstore

import (
	"bytes"
	"encoding/json"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"berth/statestore"
)

// reader is a transaction at one moment of the store's clock.
type reader struct {
	tx  *bolt.Tx
	now statestore.Millis
}

// get is valid until the transaction ends or writes.
func (r *reader) get(bucket, key []byte) []byte { return r.tx.Bucket(bucket).Get(key) }

// getJSON reports whether there is such a value.
func (r *reader) getJSON(bucket, key []byte, into any) (bool, error) {
	b := r.get(bucket, key)
	if b == nil {
		return false, nil
	}
	return true, decodeJSON(bucket, b, into)
}

func decodeJSON(bucket, b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w: %w", bucket, err, ErrDamaged)
	}
	return nil
}

// each calls fn with every entry under a prefix, in order, until it returns false.
func (r *reader) each(bucket, prefix []byte, fn func(key, value []byte) (bool, error)) error {
	c := r.tx.Bucket(bucket).Cursor()
	for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		more, err := fn(k, v)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// writer is a reader that may change. The first error of a change stays in err
// and undoes the transaction.
type writer struct {
	reader
	full    bool // a moment ago there was no room for more turns
	changed bool
	freed   bool // turns were deleted
	err     error
	events  []statestore.Event
}

func (w *writer) put(bucket, key, value []byte) {
	w.changed = true
	if err := w.tx.Bucket(bucket).Put(key, value); err != nil && w.err == nil {
		w.err = fmt.Errorf("put into %s: %w", bucket, err)
	}
}

func (w *writer) delete(bucket, key []byte) {
	w.changed = true
	if err := w.tx.Bucket(bucket).Delete(key); err != nil && w.err == nil {
		w.err = fmt.Errorf("delete from %s: %w", bucket, err)
	}
}

func (w *writer) putJSON(bucket, key []byte, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		if w.err == nil {
			w.err = fmt.Errorf("encode into %s: %w", bucket, err)
		}
		return
	}
	w.put(bucket, key, b)
}

// deletePrefix deletes what is under the prefix. Keys are collected first: a
// cursor does not survive deletions in its bucket.
func (w *writer) deletePrefix(bucket, prefix []byte) {
	var keys [][]byte
	c := w.tx.Bucket(bucket).Cursor()
	for k, _ := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	for _, k := range keys {
		w.delete(bucket, k)
	}
}

// add moves a counter and answers its new value; at 0 it leaves no entry.
func (w *writer) add(bucket, key []byte, delta int64) uint64 {
	v := fromBE64(w.get(bucket, key)) + uint64(delta) //nolint:gosec // two's complement subtracts
	if v == 0 {
		w.delete(bucket, key)
	} else {
		w.put(bucket, key, be64(v))
	}
	return v
}

func (w *writer) emit(e statestore.Event) { w.events = append(w.events, e) }
