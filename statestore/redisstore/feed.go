package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/statestore"
)

// feedBuffer is how many events a watcher may be behind before it loses them.
const feedBuffer = 1024

// feedPing is how long a subscription may be silent before it is asked whether it
// still lives, and again before it is taken for dead.
const feedPing = 5 * time.Second

// Watch yields the events of all processes. It returns when the subscription
// stands: what changes after that is seen, or is followed by an EventGap.
func (s *Store) Watch(ctx context.Context) (<-chan statestore.Event, error) {
	sub := s.client.Subscribe(ctx)
	err := s.ask(ctx, func() error {
		if err := sub.Subscribe(ctx, s.keys.channel()); err != nil {
			return err
		}
		_, err := sub.ReceiveTimeout(ctx, feedPing)
		return err
	})
	if err != nil {
		_ = sub.Close()
		return nil, fmt.Errorf("watch: %w", err)
	}
	out := make(chan statestore.Event, feedBuffer)
	go s.follow(ctx, sub, out)
	return out, nil
}

// watcher hands events over without waiting: one that lags gets a gap in place of
// what it missed.
type watcher struct {
	out    chan<- statestore.Event
	missed bool
}

func (w *watcher) send(e statestore.Event) {
	if w.missed {
		select {
		case w.out <- statestore.Event{Kind: statestore.EventGap}:
			w.missed = false
		default:
			return
		}
	}
	select {
	case w.out <- e:
	default:
		w.missed = true
	}
}

// gap says that events were lost, now or as soon as there is room.
func (w *watcher) gap() {
	w.missed = true
	select {
	case w.out <- statestore.Event{Kind: statestore.EventGap}:
		w.missed = false
	default:
	}
}

// follow reads the feed until ctx or the store ends.
func (s *Store) follow(ctx context.Context, sub *redis.PubSub, out chan<- statestore.Event) {
	defer close(out)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	w := &watcher{out: out}
	for {
		s.receive(ctx, sub, w)
		if ctx.Err() != nil {
			return
		}
		sub = s.client.Subscribe(ctx, s.keys.channel())
	}
}

// receive reads one subscription until it is silent for too long. When its
// connection breaks, go-redis makes another and subscribes again, and answers that
// with a confirmation: events were lost in between.
func (s *Store) receive(ctx context.Context, sub *redis.PubSub, w *watcher) {
	// Closing it is what ends a read that is under way.
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	defer sub.Close()
	asked, failures := false, 0
	for {
		msg, err := sub.ReceiveTimeout(ctx, feedPing)
		switch {
		case ctx.Err() != nil || isTimeout(err) && asked:
			return
		case isTimeout(err):
			asked = true
			_ = sub.Ping(ctx) // no answer is what tells
			w.flush()
		case err != nil:
			failures++
			_ = sleep(ctx, pause(failures)) // ctx is asked next
		default:
			asked, failures = false, 0
			w.take(msg)
		}
	}
}

func (w *watcher) take(msg any) {
	switch m := msg.(type) {
	case *redis.Subscription:
		w.gap()
	case *redis.Message:
		if e, ok := decodeEvent(m.Payload); ok {
			w.send(e)
		} else {
			w.gap()
		}
	}
}

// flush tells of a gap that found no room before.
func (w *watcher) flush() {
	if w.missed {
		w.gap()
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// encodeEvent is the event as lua/commit.lua publishes it; lua/session.lua packs
// its own.
func encodeEvent(e statestore.Event) string {
	name := e.Instance
	if e.Kind == statestore.EventJob {
		name = e.Job
	}
	return string(rune(e.Kind)) + name
}

// decodeEvent reads a published event: its kind, and then a digest and an epoch,
// or a name.
func decodeEvent(payload string) (statestore.Event, bool) {
	f := &fields{s: payload}
	e := statestore.Event{Kind: statestore.EventKind(f.uint(1))} //nolint:gosec // one byte
	switch e.Kind {
	case statestore.EventSession:
		f.raw(e.Session[:])
		e.Epoch = f.uint(8)
		return e, !f.bad
	case statestore.EventFleet, statestore.EventTasks:
		e.Instance = f.s
	case statestore.EventJob:
		e.Job = f.s
	default:
		return e, false
	}
	return e, !f.bad
}
