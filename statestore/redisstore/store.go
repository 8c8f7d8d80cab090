package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"berth/statestore"
	"berth/statestore/internal/roster"
)

// Store is a statestore.Store in Redis.
type Store struct {
	client  redis.UniversalClient
	lanes   *lanes
	backend string
	opts    Options
	keys    keyspace

	fleet    roster.Cache
	promise  promise
	waitsAOF atomic.Bool // every server has WAITAOF and an append-only file

	sweeps atomic.Uint32 // begun

	// skew is added to the clock of every call: tests move it.
	skew *atomic.Int64

	closed chan struct{}
	end    func() // closes closed, once
}

var _ statestore.Store = (*Store)(nil)

// Open connects to the Redis that rawURL names, as parseTarget reads it, and
// checks that it can keep what is promised: version 7.0 or later, no eviction,
// and, where a store exists already, the same number of partitions.
func Open(ctx context.Context, rawURL string, opts Options) (*Store, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open Redis store: %w", err)
	}
	t, err := parseTarget(rawURL)
	if err != nil {
		return nil, fmt.Errorf("open Redis store: %w", err)
	}
	s := &Store{backend: t.backend, opts: opts, skew: new(atomic.Int64), closed: make(chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.closed) })
	t.options.OnConnect = s.connected
	if opts.TLS != nil {
		t.options.TLSConfig = opts.TLS
	}
	s.client = t.client()
	if s.lanes, err = newLanes(context.WithoutCancel(ctx), s.client, s.closed); err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		_ = s.Close() // the reason to give up is told
		return nil, fmt.Errorf("open Redis store at %s: %w", strings.Join(t.options.Addrs, ","), err)
	}
	return s, nil
}

// Close ends what the store has running. Calls that are under way fail.
func (s *Store) Close() error {
	s.end()
	if err := s.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("close Redis store: %w", err)
	}
	return nil
}

// Describe asks the servers again what they give.
func (s *Store) Describe(ctx context.Context) (statestore.Description, error) {
	warnings, err := s.inspect(ctx)
	if err == nil {
		err = s.checkPartitions(ctx)
	}
	if err != nil {
		return statestore.Description{}, fmt.Errorf("describe Redis store: %w", err)
	}
	return statestore.Description{
		Backend: s.backend, Durability: s.level(), Partitions: s.keys.partitions, Warnings: warnings,
	}, nil
}

// level is what every acknowledged write has reached.
func (s *Store) level() statestore.Level {
	if s.promise.fsynced.Load() {
		return statestore.LevelFsynced
	}
	return statestore.LevelMemory
}

// start checks the servers and agrees on the number of partitions.
func (s *Store) start(ctx context.Context) error {
	if _, err := s.inspect(ctx); err != nil {
		return err
	}
	if err := s.ask(ctx, func() error { return s.loadLibrary(ctx) }); err != nil {
		return fmt.Errorf("load the library of functions: %w", err)
	}
	s.keys = newKeyspace(s.opts.Prefix, 0)
	n, err := s.recordPartitions(ctx, cmp.Or(s.opts.Partitions, DefaultPartitions))
	if err != nil {
		return err
	}
	s.keys = newKeyspace(s.opts.Prefix, n)
	if s.opts.Partitions != 0 {
		return agree(n, s.opts.Partitions)
	}
	return nil
}

// recordPartitions writes the number of partitions where none is recorded, and
// reads what is.
func (s *Store) recordPartitions(ctx context.Context, want int) (int, error) {
	meta := s.keys.fleet("store")
	var got string
	err := s.ask(ctx, func() error {
		pipe := s.client.Pipeline()
		pipe.HSetNX(ctx, meta, "partitions", want)
		recorded := pipe.HGet(ctx, meta, "partitions")
		_, err := pipe.Exec(ctx)
		got = recorded.Val()
		return err
	})
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(got)
	if err != nil || n < 1 || n > maxPartitions {
		return 0, fmt.Errorf("number of partitions %q: %w", got, ErrDamaged)
	}
	return n, nil
}

// checkPartitions holds the recorded number against ours. A Redis that was emptied
// under us is told it again, before another process records a number of its own.
func (s *Store) checkPartitions(ctx context.Context) error {
	n, err := s.recordPartitions(ctx, s.keys.partitions)
	if err != nil {
		return err
	}
	return agree(n, s.keys.partitions)
}

func agree(recorded, ours int) error {
	if recorded != ours {
		return fmt.Errorf("the store has %d partitions, not %d: %w", recorded, ours, statestore.ErrInvalid)
	}
	return nil
}
