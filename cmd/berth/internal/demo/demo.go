// Package demo shows Berth's main job on a running server, over HTTP, with
// simulated workers: one session's life, told step by step (story.go), and then a
// production trace during which an instance joins, one is killed and one is
// drained (play.go). Afterwards every session is loaded and held against what was
// acknowledged (check.go).
//
// The server, its store and the terminal belong to the caller.
package demo

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"berth/client"
	"berth/cmd/berth/internal/simworker"
)

// Narrator is told what happens.
type Narrator interface {
	// Say prints one line.
	Say(format string, args ...any)
	// Progress says how far long work has come.
	Progress(what string, done, of int)
}

// crew runs simulated workers of one pool.
type crew struct {
	berth  client.Config
	pool   string
	blocks int
	// prewarmed is told of sessions whose KV cache was built ahead of a move.
	prewarmed func(instance string, session client.SessionKey, blocks int)

	group *errgroup.Group
	ctx   context.Context //nolint:containedctx // the life of the workers, which are started one by one

	mu      sync.Mutex
	workers map[string]*simworker.Worker
	stop    map[string]context.CancelFunc
	port    int
}

func newCrew(ctx context.Context, berth client.Config, pool string, blocks int) *crew {
	group, ctx := errgroup.WithContext(ctx)
	return &crew{
		berth: berth, pool: pool, blocks: blocks, group: group, ctx: ctx,
		workers: map[string]*simworker.Worker{}, stop: map[string]context.CancelFunc{},
	}
}

// start registers a worker and lets it beat. Its address is made up: requests
// reach it inside this process.
func (c *crew) start(id string) error {
	c.mu.Lock()
	c.port++
	port := c.port
	c.mu.Unlock()
	w, err := simworker.New(simworker.Config{
		Berth: c.berth, CacheBlocks: c.blocks,
		Instance: client.Instance{ID: id, Pool: c.pool, Address: "127.0.0.1:" + strconv.Itoa(port), ReportsCached: true},
		Prewarmed: func(s client.SessionKey, blocks int) {
			if c.prewarmed != nil {
				c.prewarmed(id, s, blocks)
			}
		},
	})
	if err != nil {
		return err
	}
	if err := w.Register(c.ctx); err != nil {
		return fmt.Errorf("register %s: %w", id, err)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	c.workers[id], c.stop[id] = w, cancel
	c.mu.Unlock()
	c.group.Go(func() error { return w.Run(ctx) })
	return nil
}

// kill ends a worker as a crash would: it stops beating in the middle of
// whatever it does.
func (c *crew) kill(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers[id].Kill()
	c.stop[id]()
}

func (c *crew) worker(id string) (*simworker.Worker, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.workers[id]; w != nil {
		return w, nil
	}
	return nil, fmt.Errorf("berth hinted %q, which is no worker of this demo", id)
}

// end stops all workers.
func (c *crew) end() error {
	c.mu.Lock()
	for _, stop := range c.stop {
		stop()
	}
	c.mu.Unlock()
	return c.group.Wait()
}

// awaitReady waits until Berth places sessions on all workers started so far.
func (c *crew) awaitReady(ctx context.Context, fleet Fleet) error {
	c.mu.Lock()
	want := len(c.workers)
	c.mu.Unlock()
	return until(ctx, func() (bool, error) {
		states, err := fleet.States(ctx, c.pool)
		ready := 0
		for _, s := range states {
			if s == "ready" {
				ready++
			}
		}
		return ready >= want, err
	})
}

// awaitGone waits until Berth has missed a worker's heartbeats.
func (c *crew) awaitGone(ctx context.Context, fleet Fleet, id string) error {
	return until(ctx, func() (bool, error) {
		states, err := fleet.States(ctx, c.pool)
		return states[id] != "ready", err
	})
}
