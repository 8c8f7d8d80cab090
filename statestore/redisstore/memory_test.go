package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"berth/integration/redistest"
	"berth/statestore"
)

// usage is what Redis needs for a session: its keys, and its share of the lists
// of its partition.
func usage(t *testing.T, client redis.UniversalClient, s *Store, key statestore.SessionKey) (n int64) {
	t.Helper()
	keys := s.keys.session(key.Digest())
	for i, k := range keys[:keyStaged] {
		used, err := client.MemoryUsage(t.Context(), k, 0).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if i == keyDue || i == keyIndex {
			used /= client.ZCard(t.Context(), k).Val()
		}
		n += used
	}
	return n
}

func TestMemory(t *testing.T) {
	t.Parallel()
	url := redistest.Standalone(t).URL
	s, client := open(t, url), dial(t, url)
	// A partition has many sessions; what one costs is its share.
	for i := range 2000 {
		newWriter(s, fmt.Sprint("neighbour ", i)).append(t, []byte("x"))
	}
	shapes := []struct{ turns, bytes int }{
		{1, 100}, {1, 4096}, {3, 4096}, {5, 3000}, {40, 600}, {40, 4096}, {40, 6000}, {300, 1500}, {1000, 4096}, {100, 16384}, {3, 2_000_000},
	}
	for _, shape := range shapes {
		t.Run(fmt.Sprintf("%d turns of %d", shape.turns, shape.bytes), func(t *testing.T) {
			w := newWriter(s, t.Name())
			for range shape.turns {
				w.append(t, noise(shape.bytes))
			}
			payload := int64(shape.turns * shape.bytes)
			budget := payload + payload/20 + 2048
			if used := usage(t, client, s, w.key); used > budget {
				t.Errorf("%d bytes for %d of payload, at most %d are allowed", used, payload, budget)
			} else {
				t.Logf("%d bytes for %d of payload: %d spare", used, payload, budget-used)
			}
		})
	}
}

// Case T13: what an append costs Redis does not depend on what is there. The
// commands that a call runs are counted, not timed.
func TestAppendCostIsFlat(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, client := open(t, server.URL), server.Client(t)
	w := newWriter(s, "growing")
	value := noise(4096)
	const window = 50
	cost := func() (calls, bytes int) {
		stats := func() (calls, bytes int) {
			info, err := client.InfoMap(t.Context(), "commandstats", "stats").Result()
			if err != nil {
				t.Fatal(err)
			}
			for name, line := range info["Commandstats"] {
				var n int
				fmt.Sscanf(line, "calls=%d", &n)
				if !strings.Contains(name, "info") {
					calls += n
				}
			}
			fmt.Sscan(info["Stats"]["total_net_output_bytes"], &bytes)
			return calls, bytes
		}
		before, _ := stats()
		for range window {
			w.append(t, value)
		}
		after, _ := stats()
		return after - before, 0
	}
	for range statestore.OpsRemembered {
		w.append(t, value)
	}
	early, _ := cost()
	for range 2000 {
		w.append(t, value)
	}
	late, _ := cost()
	if late > early+2 {
		t.Fatalf("%d appends took %d commands at first and %d after 2000 more", window, early, late)
	}
}

// Case T13: a session of the largest size, and one byte more.
func TestLargestSession(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Standalone(t).URL)
	w := newWriter(s, "largest")
	for range 4 {
		w.append(t, noise(statestore.MaxTurnBytes))
	}
	_, err := s.Append(t.Context(), statestore.Append{
		Key: w.key, By: w.by, Handle: w.handle, Op: "more", Lifetimes: lives,
		Turns: []statestore.Turn{{Type: statestore.TurnBytes, Value: []byte{0}}},
	})
	var large *statestore.TooLargeError
	if !errors.As(err, &large) || large.Size != statestore.MaxSessionBytes+1 {
		t.Fatalf("one byte more: %v", err)
	}
	if got := allTexts(t, s, w.key); len(got) != 4 {
		t.Fatalf("%d turns", len(got))
	}
}

// Case T36: when memory is full, saves are refused whole and all else goes on.
func TestFullMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, client := open(t, server.URL), server.Client(t)
	ctx := t.Context()
	w, fresh := newWriter(s, "full"), newWriter(s, "new")
	w.append(t, noise(20_000))
	before := w.handle
	first := w.append(t, []byte("two"))
	if err := client.ConfigSet(ctx, "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}

	for _, size := range []int{10, 9000, 100_000, 600_000} {
		for _, to := range []*writer{w, fresh} {
			_, err := s.Append(ctx, statestore.Append{
				Key: to.key, By: to.by, Handle: to.handle, Op: fmt.Sprint("full-", size), Lifetimes: lives, Meta: []byte("{}"),
				Turns: []statestore.Turn{{Type: statestore.TurnBytes, Value: noise(size)}},
			})
			if !errors.Is(err, statestore.ErrFull) {
				t.Fatalf("%d bytes: %v, want the store to be full", size, err)
			}
		}
	}
	if left := sessionKeys(t, client, s, fresh.key); len(left) > 0 {
		t.Fatalf("refused saves left %v", left)
	}
	if got := allTexts(t, s, w.key); len(got) != 2 {
		t.Fatalf("%d turns, want 2", len(got))
	}

	// What was stored is answered as before, and what is wrong is told.
	again := statestore.Append{
		Key: w.key, By: w.by, Handle: before, Op: "op-2", Lifetimes: lives,
		Turns: []statestore.Turn{{Type: statestore.TurnBytes, Value: []byte("two")}},
	}
	if r, err := s.Append(ctx, again); err != nil || !r.Duplicate || r.Version != first.Version {
		t.Fatalf("a repeated op: %+v, %v", r, err)
	}
	again.Op = "op-3"
	var conflict *statestore.VersionConflictError
	if _, err := s.Append(ctx, again); !errors.As(err, &conflict) {
		t.Fatalf("an append at an old version: %v", err)
	}

	freesWork(t, s, w)
	if err := client.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	fresh.append(t, noise(600_000))
}

// freesWork does what must work when memory is full.
func freesWork(t *testing.T, s *Store, w *writer) {
	t.Helper()
	ctx := t.Context()
	job, other := statestore.JobRef{ID: "j1", Token: 1}, statestore.Owner{Instance: "i2", Incarnation: "fedcba9876543210"}
	v, err := s.Lookup(ctx, w.key)
	steps := []struct {
		name string
		err  error
	}{{"lookup", err}}
	add := func(name string, err error) {
		steps = append(steps, struct {
			name string
			err  error
		}{name, err})
	}
	_, _, err = s.CreateJob(ctx, statestore.Job{ID: "j1", Kind: "drain"}, lives.Retention)
	add("create a job", err)
	add("fence", s.Fence(ctx, statestore.Fence{Pool: "llama", Add: []statestore.Owner{{Instance: "i7", Incarnation: "x"}}, Job: job}))
	add("reserve", s.Reserve(ctx, statestore.Reserve{Key: w.key, Epoch: v.Epoch, Target: other, Job: job, For: lives.Affinity}))
	moved, err := s.Move(ctx, statestore.Move{Key: w.key, From: w.by, Epoch: v.Epoch, To: other, Job: job, Lifetimes: lives})
	add("move", err)
	claimed, err := s.Claim(ctx, statestore.Claim{
		Key: w.key, By: w.by, Lifetimes: lives,
		Handle: &statestore.Presented{Floor: statestore.Floor{Epoch: moved.Epoch, Version: v.Version, Op: v.Ops[len(v.Ops)-1].Op}, Named: true},
	})
	add("claim", err)
	_, err = s.Finish(ctx, statestore.Finish{Key: w.key, By: w.by, Handle: statestore.Presented{Floor: claimed.Floor()}, Lifetimes: lives})
	add("finish", err)
	_, err = s.Delete(ctx, statestore.Delete{Key: w.key, Lifetimes: lives})
	add("delete", err)
	for _, step := range steps {
		if step.err != nil {
			t.Errorf("%s: %v", step.name, step.err)
		}
	}
}
