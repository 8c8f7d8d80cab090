package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"berth/client"
	"berth/integration/redistest"
)

// timing are flags that suit tests on a loaded machine: workers beat often, a
// silence kills nobody and a slow store degrades no hint unless the test says so,
// and old hints end soon.
var timing = []string{
	"--heartbeat", "200ms", "--suspect-after", "10m", "--down-after", "20m", "--store-timeout", "1m", "--cache-ttl", "500ms",
}

// pair is two berth processes on one Redis that fsyncs before it answers.
type pair struct{ s1, s2 *berth }

func onOneRedis(t *testing.T, flags ...string) pair {
	t.Helper()
	redis := redistest.Standalone(t, redistest.Fsync("always"))
	// Channels reach across the databases of a shared server.
	common := append([]string{"--store", redis.URL, "--redis-prefix", fmt.Sprintf("e2e-%d", prefixes.Add(1))}, append(timing, flags...)...)
	return pair{serve(t, common...), serve(t, common...)}
}

// prefixes numbers the stores of this binary.
var prefixes atomic.Int64

// urls are both processes, s1 first.
func (p pair) urls() []string { return []string{p.s1.url, p.s2.url} }

// crew is workers of package client that beat until the test ends.
type crew struct {
	workers map[string]*client.Worker
	stop    map[string]context.CancelFunc
}

// hire starts workers i1, i2, … in the default pool and returns when every process
// places sessions on them.
func hire(t *testing.T, n int, urls ...string) crew {
	t.Helper()
	c := crew{workers: map[string]*client.Worker{}, stop: map[string]context.CancelFunc{}}
	for i := range n {
		c.start(t, fmt.Sprintf("i%d", i+1), urls...)
	}
	for _, u := range urls {
		eventually(t, "all instances are ready at "+u, func() error {
			states, err := api{url: u}.states(t.Context())
			if err != nil {
				return err
			}
			for id := range c.workers {
				if states[id] != "ready" {
					return fmt.Errorf("%s is %q", id, states[id])
				}
			}
			return nil
		})
	}
	return c
}

// start registers one worker, as a new boot if it was there before, and lets it
// beat.
func (c crew) start(t *testing.T, id string, urls ...string) {
	t.Helper()
	address := "10.0.0." + strings.TrimPrefix(id, "i") + ":8000"
	w, err := client.NewWorker(client.Config{BaseURLs: urls}, client.Instance{ID: id, Address: address})
	must(t, err)
	must(t, w.Register(t.Context()))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- w.Run(ctx, client.RunConfig{Load: func() client.Load { return client.Load{Ready: true} }})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, client.ErrStaleIncarnation) {
			t.Errorf("worker %s: %v", id, err)
		}
	})
	c.workers[id], c.stop[id] = w, cancel
}

// credentials are what the instance's present boot writes with.
func (c crew) credentials(id string) credentials {
	return credentials{id, c.workers[id].Incarnation()}
}

// open begins to keep track of a session on an instance.
func (c crew) open(t *testing.T, id, session string) *client.Session {
	t.Helper()
	s, err := c.workers[id].Open(client.SessionKey{ID: session})
	must(t, err)
	return s
}

// gateway asks these processes.
func gateway(t *testing.T, urls ...string) *client.Gateway {
	t.Helper()
	g, err := client.NewGateway(client.Config{BaseURLs: urls, AttemptTimeout: patience})
	must(t, err)
	return g
}

// within bounds a call of a test on a loaded machine.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
