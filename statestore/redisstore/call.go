package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/statestore"
)

// processor is what runs commands: a client, one connection, or the lanes.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// once is a command that go-redis must not send twice of its own accord. Its
// cluster client repeats what failed without an answer, whatever MaxRetries says,
// and nobody would know that a change had been asked for twice.
type once struct{ *redis.Cmd }

// NoRetry is asked by go-redis.
func (once) NoRetry() bool { return true }

// newCommand calls a function of the library. The first argument of each is what
// tests add to the clock.
func (s *Store) newCommand(ctx context.Context, fn string, keys []string, args []any) once {
	all := make([]any, 0, 4+len(keys)+len(args))
	// The count as a number: go-redis looks for the first key by it.
	all = append(all, "fcall", fn, len(keys))
	// The first key as text, by which go-redis finds the slot; the others by
	// reference, which costs nothing.
	for i := range keys {
		if i == 0 {
			all = append(all, keys[0])
		} else {
			all = append(all, &keys[i])
		}
	}
	all = append(all, s.skew.Load())
	return once{redis.NewCmd(ctx, append(all, args...)...)}
}

// fcall calls a function once; twice where the server had to be given the library
// first, since it did not execute the first.
func (s *Store) fcall(ctx context.Context, on processor, fn string, keys []string, args []any) (any, error) {
	cmd := s.newCommand(ctx, fn, keys, args)
	err := on.Process(ctx, cmd)
	if notLoaded(err) {
		if err := s.loadLibrary(ctx); err != nil {
			return nil, err
		}
		cmd = s.newCommand(ctx, fn, keys, args)
		err = on.Process(ctx, cmd)
	}
	if err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// fault is what an error says of a call.
type fault int

const (
	// refusedForNow: it was not executed, and will be some time later.
	refusedForNow fault = iota
	// noMemory: it was not executed, since memory is full.
	noMemory
	// refused: it was not executed, and sending it again helps nobody.
	refused
	// unanswered: it may have been executed.
	unanswered
)

// passing are the refusals of servers that are starting, changing hands or
// moving slots. All come before a function runs.
var passing = []string{
	"READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOREPLICAS", "MISCONF", "EXECABORT",
	"max number of clients reached",
}

func classify(err error) fault {
	var answer redis.Error
	if errors.As(err, &answer) {
		if redis.HasErrorPrefix(err, "OOM") {
			return noMemory
		}
		if notLoaded(err) {
			return refusedForNow // flushed again since it was loaded
		}
		for _, prefix := range passing {
			if redis.HasErrorPrefix(err, prefix) {
				return refusedForNow
			}
		}
		return refused
	}
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, redis.ErrPoolTimeout), errors.As(err, new(errNotSent)):
		return refusedForNow
	case errors.Is(err, redis.ErrClosed):
		return refused
	}
	return unanswered
}

// pause is how long to wait before the n-th repetition, from 1.
func pause(n int) time.Duration {
	full := 5 * time.Millisecond << min(n, 6)
	return full/2 + rand.N(full/2) //nolint:gosec // spreads callers, guards nothing
}

// settle calls fn until it is answered, within ctx and the store's patience. The
// error of a call that may have been executed and was not answered is an
// [statestore.OutcomeUnknownError], that of one which was never executed
// [statestore.ErrUnavailable] or [statestore.ErrFull].
func (s *Store) settle(ctx context.Context, fn func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", statestore.ErrUnavailable, err)
	}
	start, maybe := time.Now(), false
	for n := 1; ; n++ {
		err := fn()
		if err == nil {
			return nil
		}
		f := classify(err)
		maybe = maybe || f == unanswered
		if (f == refusedForNow || f == unanswered) && time.Since(start) < s.opts.Patience {
			over := sleep(ctx, pause(n))
			if over == nil {
				continue
			}
			err = fmt.Errorf("%w: %w", over, err)
		}
		switch {
		case maybe:
			return &statestore.OutcomeUnknownError{Err: err}
		case f == noMemory:
			return fmt.Errorf("%w: %w", statestore.ErrFull, err)
		case f == refused && !errors.Is(err, redis.ErrClosed):
			return fmt.Errorf("refused by Redis: %w", err)
		}
		return fmt.Errorf("%w: %w", statestore.ErrUnavailable, err)
	}
}

// ask is settle for what changes nothing: no answer is just no answer.
func (s *Store) ask(ctx context.Context, fn func() error) error {
	err := s.settle(ctx, fn)
	var unknown *statestore.OutcomeUnknownError
	if errors.As(err, &unknown) {
		return fmt.Errorf("%w: %w", statestore.ErrUnavailable, unknown.Err)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read calls a function that changes nothing.
func (s *Store) read(ctx context.Context, fn string, keys []string, args ...any) (reply any, err error) {
	err = s.ask(ctx, func() (err error) {
		reply, err = s.fcall(ctx, s.lanes, fn, keys, args)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fn, err)
	}
	return reply, nil
}

// answer is the reply of a function: a list of integers and strings.
type answer []any

func answerOf(reply any) (answer, error) {
	list, ok := reply.([]any)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("reply %T of a function: %w", reply, ErrDamaged)
	}
	return list, nil
}

// text is the i-th element as a string, "" if it is none.
func (a answer) text(i int) string {
	if i < len(a) {
		if s, ok := a[i].(string); ok {
			return s
		}
	}
	return ""
}

// int is the i-th element as a number, 0 if it is none.
func (a answer) int(i int) int64 {
	if i >= len(a) {
		return 0
	}
	switch v := a[i].(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

func (a answer) uint(i int) uint64              { return uint64(a.int(i)) } //nolint:gosec // functions return no negatives
func (a answer) millis(i int) statestore.Millis { return statestore.Millis(a.int(i)) }
func (a answer) flag(i int) bool                { return a.int(i) == 1 }
func (a answer) list(i int) []any {
	if i < len(a) {
		if l, ok := a[i].([]any); ok {
			return l
		}
	}
	return nil
}
