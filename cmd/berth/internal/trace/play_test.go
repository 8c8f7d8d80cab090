package trace

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// durations draws how long the turns of one session take, over and over.
func durations(t *rapid.T) (took [4]time.Duration) {
	for i := range took {
		took[i] = time.Duration(rapid.IntRange(0, 9).Draw(t, "seconds")) * time.Second
	}
	return took
}

func noEvent(context.Context, int) error { return nil }

func TestPlayKeepsSessionsInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sessions := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 60).Draw(rt, "sessions")
		parallel := rapid.IntRange(1, 8).Draw(rt, "parallel")
		took := rapid.SliceOfN(rapid.Custom(durations), 6, 6).Draw(rt, "took")
		turns, next := make([]Turn, len(sessions)), map[int]int{}
		for i, s := range sessions {
			turns[i] = Turn{Session: s, N: next[s]}
			next[s]++
		}
		var ended [6]atomic.Int64 // turns served, by session
		var busy, events atomic.Int64
		synctest.Test(t, func(bubble *testing.T) {
			err := Player{
				Parallel: parallel,
				Before: func(_ context.Context, i int) error {
					if events.Add(1) != int64(i)+1 {
						return errors.New("before ran out of order")
					}
					return nil
				},
				Serve: func(_ context.Context, turn Turn) error {
					if busy.Add(1) > int64(parallel) {
						return errors.New("more turns at once than allowed")
					}
					defer busy.Add(-1)
					if ended[turn.Session].Load() != int64(turn.N) {
						return errors.New("a turn began before the one ahead of it ended")
					}
					time.Sleep(took[turn.Session][turn.N%4]) // virtual time
					ended[turn.Session].Add(1)
					return nil
				},
			}.Play(bubble.Context(), turns)
			if err != nil {
				rt.Error(err)
			}
		})
		for s, n := range next {
			if ended[s].Load() != int64(n) {
				rt.Errorf("session %d: %d turns served, want %d", s, ended[s].Load(), n)
			}
		}
	})
}

func TestPlayEndsAtTheFirstError(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	turns := make([]Turn, 50) // one session: each waits for the one before
	for name, p := range map[string]Player{
		"serve":  {Parallel: 4, Before: noEvent, Serve: func(context.Context, Turn) error { return boom }},
		"before": {Parallel: 4, Before: func(context.Context, int) error { return boom }, Serve: func(context.Context, Turn) error { return nil }},
	} {
		if err := p.Play(t.Context(), turns); !errors.Is(err, boom) {
			t.Errorf("%s: error %v, want %v", name, err, boom)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := Player{Parallel: 1, Before: noEvent, Serve: func(context.Context, Turn) error { cancel(); return nil }}.Play(ctx, turns)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled play ends with %v", err)
	}
}
