package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/statestore"
)

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

var lives = statestore.Lifetimes{Affinity: 30 * time.Minute, Retention: 24 * time.Hour, Tombstone: 25 * time.Hour}

// noise is n bytes that do not compress.
func noise(n int) []byte {
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], drawn.Add(1))
	source := rand.NewChaCha8(seed)
	b := make([]byte, n)
	_, _ = source.Read(b)
	return b
}

var drawn atomic.Uint64

// writer appends to one session, as its owner.
type writer struct {
	s      *Store
	key    statestore.SessionKey
	by     statestore.Owner
	handle statestore.Presented
	n      int
}

func newWriter(s *Store, id string) *writer {
	return &writer{
		s: s, key: statestore.SessionKey{Tenant: "acme", Pool: "llama", ID: id},
		by: statestore.Owner{Instance: "i1", Incarnation: "0123456789abcdef"},
	}
}

func (w *writer) append(t testing.TB, values ...[]byte) statestore.Receipt {
	t.Helper()
	w.n++
	a := statestore.Append{
		Key: w.key, By: w.by, Handle: w.handle, Op: fmt.Sprintf("op-%d", w.n), Lifetimes: lives,
	}
	for _, v := range values {
		a.Turns = append(a.Turns, statestore.Turn{Type: statestore.TurnBytes, Value: v})
	}
	r, err := w.s.Append(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	w.handle.Floor = r.Floor
	return r
}

// replace rewrites the whole context.
func (w *writer) replace(ctx context.Context, values ...[]byte) (statestore.Receipt, error) {
	w.n++
	req := statestore.Replace{Key: w.key, By: w.by, Handle: w.handle, Op: fmt.Sprintf("op-%d", w.n), Lifetimes: lives}
	for _, v := range values {
		req.Turns = append(req.Turns, statestore.Turn{Type: statestore.TurnBytes, Value: v, Tokens: uint64(len(v))})
	}
	r, err := w.s.Replace(ctx, req)
	if err == nil {
		w.handle.Floor = r.Floor
	}
	return r, err
}
