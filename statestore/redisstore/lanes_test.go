package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/integration/redistest"
	"berth/statestore"
)

// Calls that share a round trip get each their own answer.
func TestLanesKeepAnswersApart(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Standalone(t).URL)
	var running sync.WaitGroup
	for i := range 8 * clusterLanes {
		running.Go(func() {
			w := newWriter(s, fmt.Sprint(i))
			for n := range uint64(20) {
				value := fmt.Sprintf("turn %d of %d", n, i)
				if r := w.append(t, []byte(value)); r.Version != n+1 {
					t.Errorf("version %d after %d turns", r.Version, n+1)
				}
			}
			if got := allTexts(t, s, w.key); len(got) != 20 || got[19] != fmt.Sprintf("turn 19 of %d", i) {
				t.Errorf("session %d holds %q", i, got)
			}
		})
	}
	running.Wait()
}

// A caller that gives up does not hold up the others, nor they it.
func TestLanesLetCallersGo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL+"?read_timeout=10m")
	key := newWriter(s, "waited for").key
	if _, err := s.Lookup(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	server.Pause(t)
	var running sync.WaitGroup
	for range 8 * clusterLanes {
		running.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := s.Lookup(ctx, key)
			if !errors.Is(err, statestore.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller that gave up: %v", err)
			}
			if waited := time.Since(began); waited > time.Minute {
				t.Errorf("it waited %v", waited)
			}
		})
	}
	running.Wait()
	server.Resume(t)
	if _, err := s.Lookup(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

func TestLanesEndWithTheStore(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Standalone(t).URL)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.lanes.busy.Add(clusterLanes)
	if err := s.lanes.Process(t.Context(), redis.NewCmd(t.Context(), "ping")); !errors.Is(err, redis.ErrClosed) {
		t.Fatalf("a call after the end: %v", err)
	}
	if _, err := s.Lookup(t.Context(), newWriter(s, "x").key); !errors.Is(err, statestore.ErrUnavailable) {
		t.Fatalf("a lookup after the end: %v", err)
	}
}
