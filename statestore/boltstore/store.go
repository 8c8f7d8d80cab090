package boltstore

import (
	"context"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"berth/statestore"
	"berth/statestore/internal/roster"
)

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
	notes   notes
	fleet   roster.Cache

	warnings []string // of Open, for people
}

var _ statestore.Store = (*Store)(nil)

// Describe says what the store is.
func (s *Store) Describe(ctx context.Context) (statestore.Description, error) {
	err := s.read(ctx, func(*reader) error { return nil })
	if err != nil {
		return statestore.Description{}, err
	}
	return statestore.Description{Backend: "bolt", Durability: statestore.LevelFsynced, Partitions: 1, Warnings: s.warnings}, nil
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
