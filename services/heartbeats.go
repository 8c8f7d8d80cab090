package services

import (
	"context"
	"fmt"
	"sync"
	"time"

	"berth/statestore"
)

// beatEvery is the shortest time between two store calls that count heartbeats: at
// any number of instances there are no more than twenty a second. beatGather is how long
// the first of a bunch waits for the others, beatTimeout bounds a call.
const (
	beatEvery   = 50 * time.Millisecond
	beatGather  = 5 * time.Millisecond
	beatTimeout = 5 * time.Second
)

// beatStore counts heartbeats.
type beatStore interface {
	Heartbeats(ctx context.Context, beats []statestore.Beat) ([]statestore.BeatAnswer, error)
}

// beatCounter counts the heartbeats that come within a short time in one store
// call, and answers each when that has returned. There is one call at a time, so that heartbeats stay in their order.
type beatCounter struct {
	store beatStore

	mu      sync.Mutex
	waiting []*beatCall
	busy    bool      // a call is under way, or is going to be made
	next    time.Time // not before
}

// beatCall is a heartbeat and, once done is closed, its answer.
type beatCall struct {
	beat   statestore.Beat
	answer statestore.BeatAnswer
	done   chan struct{}
}

// count returns the instance after its heartbeat.
func (c *beatCounter) count(ctx context.Context, beat statestore.Beat) (statestore.Instance, error) {
	call := &beatCall{beat: beat, done: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, call)
	if !c.busy {
		c.busy = true
		c.schedule(context.WithoutCancel(ctx))
	}
	c.mu.Unlock()
	select {
	case <-call.done:
		return call.answer.Instance, call.answer.Err
	case <-ctx.Done():
		return statestore.Instance{}, fmt.Errorf("wait for the count: %w: %w", statestore.ErrUnavailable, ctx.Err())
	}
}

// schedule makes the next call when it may be made. c.mu is held.
func (c *beatCounter) schedule(ctx context.Context) {
	time.AfterFunc(max(beatGather, time.Until(c.next)), func() { c.flush(ctx) })
}

// flush counts what waits.
func (c *beatCounter) flush(ctx context.Context) {
	c.mu.Lock()
	calls := c.waiting
	c.waiting, c.next = nil, time.Now().Add(beatEvery)
	c.mu.Unlock()
	c.send(ctx, calls)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy = len(c.waiting) > 0; c.busy {
		c.schedule(ctx)
	}
}

// send makes one store call, and answers everybody.
func (c *beatCounter) send(ctx context.Context, calls []*beatCall) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	beats := make([]statestore.Beat, len(calls))
	for i, call := range calls {
		beats[i] = call.beat
	}
	answers, err := c.store.Heartbeats(ctx, beats)
	for i, call := range calls {
		if call.answer.Err = err; err == nil {
			call.answer = answers[i]
		}
		close(call.done)
	}
}
