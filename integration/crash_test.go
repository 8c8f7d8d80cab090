package integration_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"berth/client"
)

// TestKilledServerKeepsWhatItAcknowledged kills the server in the middle of streams
// of appends, each time after some more were acknowledged, and starts it again on
// its embedded store: package client repeats until it has its answer, and every
// append is there exactly once, in order.
func TestKilledServerKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	streams, turns, kills := 8, 60, 6
	if testing.Short() {
		turns, kills = 20, 2
	}
	server := serve(t, timing...)
	c, routes := hire(t, 1, server.url), gateway(t, server.url)
	sessions := make([]*client.Session, streams)
	for i := range sessions {
		sessions[i] = c.open(t, "i1", fmt.Sprintf("stream-%d", i))
		r, err := routes.Route(t.Context(), client.RouteRequest{Session: sessions[i].Key()})
		must(t, err)
		sessions[i].Offer(r.Hint())
	}

	acknowledged := make(chan struct{}, streams*turns)
	group, ctx := errgroup.WithContext(t.Context())
	var repeated atomic.Int64
	for _, s := range sessions {
		group.Go(func() error { return stream(ctx, s, turns, acknowledged, &repeated) })
	}
	group.Go(func() error {
		for k := range kills {
			for range streams * turns / (kills + 1) {
				select {
				case <-acknowledged:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if err := server.tryRestart(ctx); err != nil {
				return fmt.Errorf("restart %d: %w", k, err)
			}
		}
		return nil
	})
	must(t, group.Wait())
	t.Logf("%d appends, %d kills; the answer of %d appends was lost and told again", streams*turns, kills, repeated.Load())
	for _, s := range sessions {
		_, got, err := s.Load(t.Context(), 0)
		must(t, err)
		if want := conversation(s.Key().ID, turns); !slices.Equal(values(got), want) {
			t.Errorf("%s holds\n%q\nwant\n%q", s.Key().ID, values(got), want)
		}
	}
}

// stream appends turns one after the other, and counts those that turned out to be
// stored when they were repeated.
func stream(ctx context.Context, s *client.Session, turns int, acknowledged chan<- struct{}, repeated *atomic.Int64) error {
	for n := range turns {
		got, err := s.Append(ctx, said(s.Key().ID, n))
		if err != nil {
			return fmt.Errorf("append %d: %w", n, err)
		}
		if got.Version != uint64(n+1) || got.Turns != n+1 || got.Durability.Level != "fsynced" {
			return fmt.Errorf("append %d is answered %+v", n, got)
		}
		if got.Duplicate {
			repeated.Add(1)
		}
		acknowledged <- struct{}{}
	}
	return nil
}
