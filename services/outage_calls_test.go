package services_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"berth/statestore"
)

// With the store away a call waits for it about once, and not again for every
// question, nor in a row of others who wait. Every answer says when to come back.
func TestCallsWaitOnceForAStoreThatIsAway(t *testing.T) {
	calls := []struct{ method, path, body string }{
		{"POST", "/v1/drains", `{"instances":["i1"]}`},
		{"POST", "/v1/drains", `{"instances":["i1"],"dry_run":true}`},
		{"POST", "/v1/rebalances", `{}`},
		{"POST", "/v1/rebalances", `{"instance":"i1"}`},
		{"POST", "/v1/instances/i1/cordon", ``},
		{"PATCH", "/v1/instances/i1", `{"weight":50}`},
		{"GET", "/v1/instances/i1", ``},
		{"PUT", "/v1/pools/default/policy", `{}`},
	}
	inBubble(t, func(b *bundle, store *faulty) {
		const patience = 4 * time.Second
		b.worker("i1")
		b.worker("i2")
		store.fail(func(ctx context.Context, _ string) error {
			select {
			case <-ctx.Done():
			case <-time.After(patience):
			}
			return fmt.Errorf("no answer: %w", statestore.ErrUnavailable)
		})
		for _, c := range calls {
			time.Sleep(time.Second) // the process looks by itself as well
			began := time.Now()
			a := b.call(c.method, c.path, c.body).refused(503, "store_unavailable")
			if took := time.Since(began); took > patience || a.header.Get("Retry-After") == "" {
				t.Errorf("%s %s %s is refused after %v, Retry-After %q", c.method, c.path, c.body, took, a.header.Get("Retry-After"))
			}
		}
		began := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { b.call("GET", "/v1/instances/i1", "").refused(503, "store_unavailable") })
		}
		all.Wait()
		if took := time.Since(began); took > patience {
			t.Errorf("20 at once wait %v", took)
		}
		store.fail(nil)
		time.Sleep(patience)
		b.call("GET", "/v1/instances/i1", "").want(200)
	})
}
