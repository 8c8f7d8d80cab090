package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"testing"

	"berth/integration/redistest"
)

// TestStalledRedisChangesNoPromise pauses a Redis that fsyncs before it answers
// while routes wait for it: they are answered degraded, and when it runs on, writes
// are as durable as they were.
func TestStalledRedisChangesNoPromise(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("not tested on Windows: a Redis that is paused")
	}
	ctx := t.Context()
	redis := redistest.Start(t, redistest.Fsync("always"))
	server := serve(t, append(append([]string{"--store", redis.URL}, timing...), "--store-timeout", "100ms")...)
	at := server.api()
	who, err := at.enlist(ctx, "i1", "default", "10.0.0.1:8000")
	must(t, err)
	var h hint
	eventually(t, "a route is answered from the store", func() error {
		h, err = at.route(ctx, "durable")
		if err == nil && h.Degraded != "" {
			err = fmt.Errorf("degraded: %s", h.Degraded)
		}
		return err
	})
	before, err := at.append(ctx, "durable", newWrite(who, h.Handle, "op-1"))
	must(t, err)

	redis.Pause(t)
	degraded := make(chan string, 100)
	forAll(t, cap(degraded), func(ctx context.Context, i int) error {
		h, err := at.route(ctx, fmt.Sprintf("stalled-%d", i))
		degraded <- h.Degraded
		return err
	})
	redis.Resume(t)
	for range cap(degraded) {
		if got := <-degraded; got != "store_unavailable" {
			t.Errorf("with a store that does not answer a route is degraded as %q", got)
		}
	}
	awaitStore(t, server)
	after, err := at.append(ctx, "durable", newWrite(who, before.Handle, "op-2"))
	must(t, err)
	if before.Durability.Level != "fsynced" || after.Durability.Level != before.Durability.Level {
		t.Errorf("writes were %s and are %s", before.Durability.Level, after.Durability.Level)
	}
	must(t, at.do(ctx, http.MethodPut, "/v1/pools/default/policy", map[string]any{"durability": "fsynced"}, nil))
	if _, err := at.append(ctx, "durable", newWrite(who, after.Handle, "op-3")); err != nil {
		t.Errorf("a pool that demands fsynced is answered %v", err)
	}
}
