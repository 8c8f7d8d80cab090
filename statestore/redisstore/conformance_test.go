package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/integration/redistest"
	"berth/statestore"
	"berth/statestore/storetest"
)

func TestStandalone(t *testing.T) {
	storetest.Run(t, conformance(redistest.Standalone(t).URL))
}

func TestCluster(t *testing.T) {
	storetest.Run(t, conformance(redistest.Cluster(t).URL))
}

var opened atomic.Int64

// testPartitions is few, so that whatever visits all of them is quick, and enough
// to reach every primary of a Cluster.
const testPartitions = 16

// open opens a key space of its own on a server.
func open(t testing.TB, url string, change ...func(*Options)) *Store {
	t.Helper()
	opts := Options{Prefix: fmt.Sprintf("t%d", opened.Add(1)), Partitions: testPartitions}
	for _, c := range change {
		c(&opts)
	}
	s, err := Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// reopen opens the key space of s again, as another process would.
func reopen(t testing.TB, url string, s *Store) *Store {
	t.Helper()
	again := open(t, url, func(o *Options) { o.Prefix = s.opts.Prefix })
	again.skew = s.skew
	return again
}

// conformance hands stores on a server to the suite.
func conformance(url string) storetest.Backend {
	return storetest.Backend{
		Open: func(t testing.TB) statestore.Store { return open(t, url) },
		Advance: func(_ testing.TB, s statestore.Store, d time.Duration) {
			s.(*Store).skew.Add(d.Milliseconds())
		},
		Snapshot: func(t testing.TB, s statestore.Store) func() statestore.Store {
			restore := snapshot(t, url, s.(*Store).opts.Prefix)
			return func() statestore.Store {
				restore()
				return reopen(t, url, s.(*Store))
			}
		},
		Reopen:     func(t testing.TB, s statestore.Store) statestore.Store { return reopen(t, url, s.(*Store)) },
		Concurrent: true,
	}
}

// dial is a plain client on the server, beside any store.
func dial(t testing.TB, url string) redis.UniversalClient {
	t.Helper()
	to, err := parseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	client := to.client()
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// eachPrimary runs fn on every primary, one at a time.
func eachPrimary(t testing.TB, client redis.UniversalClient, fn func(*redis.Client) error) {
	t.Helper()
	if single, ok := client.(*redis.Client); ok {
		if err := fn(single); err != nil {
			t.Fatal(err)
		}
		return
	}
	var mu sync.Mutex
	err := client.(*redis.ClusterClient).ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return fn(node)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// keysOf lists all keys under a prefix.
func keysOf(t testing.TB, client redis.UniversalClient, prefix string) (keys []string) {
	t.Helper()
	eachPrimary(t, client, func(node *redis.Client) error {
		it := node.Scan(t.Context(), 0, prefix+":*", 1000).Iterator()
		for it.Next(t.Context()) {
			keys = append(keys, it.Val())
		}
		return it.Err()
	})
	return keys
}

// snapshot copies a key space, and returns what brings the copy back.
func snapshot(t testing.TB, url, prefix string) (restore func()) {
	t.Helper()
	ctx, client := t.Context(), dial(t, url)
	type saved struct {
		value string
		ttl   time.Duration
	}
	copies := map[string]saved{}
	for _, k := range keysOf(t, client, prefix) {
		value, err := client.Dump(ctx, k).Result()
		if errors.Is(err, redis.Nil) {
			continue // ended by itself since it was listed
		}
		if err != nil {
			t.Fatal(err)
		}
		copies[k] = saved{value, max(0, client.PTTL(ctx, k).Val())}
	}
	return func() {
		t.Helper()
		for _, k := range keysOf(t, client, prefix) {
			if err := client.Del(ctx, k).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for k, c := range copies {
			if err := client.Restore(ctx, k, c.ttl, c.value).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
