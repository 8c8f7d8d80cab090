package redisstore

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

const (
	// oneServerLanes is how many batches may be under way to one server: while it
	// works on one the next gathers. A call that is alone goes by itself.
	oneServerLanes = 2
	// clusterLanes is how many may be under way to a Cluster, whose servers work at
	// the same time; with fewer calls than that each goes by itself.
	clusterLanes = 4
	// laneBatch is the most calls that share a round trip.
	laneBatch = 64
)

// lanes send calls that come at the same time in one round trip, and appends among
// them as one call (see many). A system call on either side costs as much as the
// work of a call, so that under load this is half of all that a call costs; without
// load it changes nothing.
type lanes struct {
	client redis.UniversalClient
	// oneServer: calls on several sessions may be one, as they may not in a Cluster,
	// where the sessions lie on different servers.
	oneServer bool
	alone     int64 // so many calls go by themselves
	fewest    int   // appends that are one call
	images    *images
	busy      atomic.Int64
	in        chan *waiting
	closed    <-chan struct{}
}

// waiting is a call in a lane.
type waiting struct {
	cmd  redis.Cmder
	done chan struct{}
}

// newLanes opens lanes until closed is. ctx is that of the store, not of a call: it
// has no end.
func newLanes(ctx context.Context, client redis.UniversalClient, closed <-chan struct{}) (*lanes, error) {
	_, oneServer := client.(*redis.Client)
	images, err := newImages()
	if err != nil {
		return nil, err
	}
	l := &lanes{
		client: client, oneServer: oneServer, alone: clusterLanes, fewest: 2, images: images, in: make(chan *waiting), closed: closed,
	}
	count := clusterLanes
	if oneServer {
		count, l.alone = oneServerLanes, 1
	}
	for range count {
		go l.run(ctx)
	}
	return l, nil
}

// Process runs the command, with others or by itself. A caller that gives up does
// not take its command back: it is a call that was not answered.
func (l *lanes) Process(ctx context.Context, cmd redis.Cmder) error {
	if l.busy.Add(1) <= l.alone {
		defer l.busy.Add(-1)
		return l.client.Process(ctx, cmd)
	}
	defer l.busy.Add(-1)
	w := &waiting{cmd: cmd, done: make(chan struct{})}
	select {
	case l.in <- w:
	case <-ctx.Done():
		return errNotSent{ctx.Err()}
	case <-l.closed:
		return redis.ErrClosed
	}
	select {
	case <-w.done:
		return cmd.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errNotSent is the end of a call that did not leave this process.
type errNotSent struct{ error }

func (e errNotSent) Unwrap() error { return e.error }

func (l *lanes) run(ctx context.Context) {
	for {
		select {
		case w := <-l.in:
			l.send(ctx, l.gather(w))
		case <-l.closed:
			return
		}
	}
}

// gather takes what waits already, and what the goroutines that may run now are
// about to send.
func (l *lanes) gather(first *waiting) []*waiting {
	runtime.Gosched()
	batch := []*waiting{first}
	for len(batch) < laneBatch {
		select {
		case w := <-l.in:
			batch = append(batch, w)
		default:
			return batch
		}
	}
	return batch
}

// send runs a batch. The client's own timeouts bound it, not the deadline of one
// of its callers.
func (l *lanes) send(ctx context.Context, batch []*waiting) {
	rest, joined := batch, []*many(nil)
	if l.oneServer {
		rest, joined = l.joinAppends(ctx, batch)
	}
	pipe := l.client.Pipeline()
	for _, m := range joined {
		for _, c := range m.commands {
			_ = pipe.Process(ctx, c)
		}
		for _, c := range m.reads {
			_ = pipe.Process(ctx, c)
		}
	}
	for _, w := range rest {
		_ = pipe.Process(ctx, w.cmd)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, m := range joined {
		m.deliver(ctx, l.client)
	}
	for _, w := range batch {
		close(w.done)
	}
}
