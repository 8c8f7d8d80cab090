package boltstore

import (
	"context"
	"sync"

	"berth/statestore"
)

// feedBuffer is how many events a watcher may be behind before it loses them.
const feedBuffer = 1024

// feed tells watchers of committed changes, in the order of the commits.
type feed struct {
	mu       sync.Mutex
	watchers map[*watcher]struct{}
	closed   bool
}

// watcher holds what one watcher has not taken yet.
type watcher struct {
	feed  *feed
	queue []statestore.Event
	wake  chan struct{}
}

func newFeed() *feed { return &feed{watchers: map[*watcher]struct{}{}} }

// publish never waits: a watcher that is too far behind gets a gap in place of
// all it has not taken.
func (f *feed) publish(events []statestore.Event) {
	if len(events) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		if len(w.queue)+len(events) > feedBuffer {
			w.queue = append(w.queue[:0], statestore.Event{Kind: statestore.EventGap})
		} else {
			w.queue = append(w.queue, events...)
		}
		w.signal()
	}
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (f *feed) watch(ctx context.Context) (<-chan statestore.Event, error) {
	w := &watcher{feed: f, wake: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errClosed
	}
	f.watchers[w] = struct{}{}
	out := make(chan statestore.Event)
	go w.run(ctx, out)
	return out, nil
}

// run hands over events until ctx or the store ends.
func (w *watcher) run(ctx context.Context, out chan<- statestore.Event) {
	defer close(out)
	defer w.leave()
	for {
		events, closed := w.take()
		for _, e := range events {
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		}
		if len(events) > 0 {
			continue
		}
		if closed {
			return
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
	}
}

// take is all that was published since the last call.
func (w *watcher) take() (events []statestore.Event, closed bool) {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	events, w.queue = w.queue, nil
	return events, w.feed.closed
}

func (w *watcher) leave() {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	delete(w.feed.watchers, w)
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for w := range f.watchers {
		w.signal()
	}
}
