package scoreboard

import (
	"reflect"
	"testing"

	"berth/cmd/berth/internal/kvsim"
	"berth/cmd/berth/internal/trace"
)

// turn is a turn of four blocks, three of which were seen before.
func turn(session, n int) trace.Turn {
	return trace.Turn{
		Request: trace.Request{InputTokens: 4 * trace.BlockTokens, Blocks: make([]uint64, 4)},
		Session: session, N: n, Seen: 3,
	}
}

func TestTallyBooksJumpsToTheirCause(t *testing.T) {
	t.Parallel()
	type books struct{ jumps, cold, avoidable, moved, warm, reshuffled int }
	kill, drain := Event{Kind: Kill, Instance: "a"}, Event{Kind: Drain, Instance: "a"}
	for _, tc := range []struct {
		name string
		play func(*Tally)
		want books
	}{
		{"stays", func(y *Tally) { y.Event(kill); serve(y, "bb") }, books{}},
		{"leaves an instance in service", func(y *Tally) { y.Event(Event{Kind: Join, Instance: "c"}); serve(y, "ac") }, books{1, 1, 1, 0, 0, 1}},
		{"leaves before any event", func(y *Tally) { serve(y, "ab"); y.Event(kill) }, books{1, 1, 1, 0, 0, 0}},
		{"leaves the dead", func(y *Tally) { serve(y, "a"); y.Event(kill); serveFrom(y, 1, "bb") }, books{1, 1, 0, 1, 0, 0}},
		{"leaves the drained, prewarmed", func(y *Tally) {
			serve(y, "a")
			y.Event(drain)
			y.Prewarmed(7, "b", 4)
			serveFrom(y, 1, "b")
		}, books{1, 0, 0, 1, 1, 0}},
		{"stays a turn longer after the prewarm", func(y *Tally) {
			serve(y, "a")
			y.Event(drain)
			y.Prewarmed(7, "b", 4)
			serveFrom(y, 1, "ab")
		}, books{1, 0, 0, 1, 1, 0}},
		{"was prewarmed elsewhere", func(y *Tally) {
			serve(y, "a")
			y.Event(drain)
			y.Prewarmed(7, "c", 4)
			serveFrom(y, 1, "b")
		}, books{1, 1, 0, 1, 0, 0}},
		{"prewarming serves one jump", func(y *Tally) {
			serve(y, "a")
			y.Event(kill)
			y.Prewarmed(7, "b", 4)
			serveFrom(y, 1, "bcb")
		}, books{3, 2, 2, 1, 1, 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			y := NewTally([]string{"a", "b", "c"})
			tc.play(y)
			p := y.Policy("x")
			got := books{jumps: y.sum.jumps, cold: y.sum.cold, avoidable: p.AvoidableJumps}
			for _, e := range p.Events {
				got.moved, got.warm, got.reshuffled = got.moved+e.Moved, got.warm+e.Warm, got.reshuffled+e.Reshuffled
			}
			if got != tc.want {
				t.Errorf("books %+v, want %+v", got, tc.want)
			}
		})
	}
}

func serve(y *Tally, instances string) { serveFrom(y, 0, instances) }

// serveFrom plays turns of session 7, one on each named instance.
func serveFrom(y *Tally, n int, instances string) {
	for i, instance := range instances {
		y.Served(turn(7, n+i), string(instance), kvsim.Hit{})
	}
}

func TestTallyFigures(t *testing.T) {
	t.Parallel()
	y := NewTally([]string{"a", "b"})
	y.Served(turn(0, 0), "a", kvsim.Hit{Blocks: 1})
	y.Prewarmed(0, "b", 3)
	y.Served(turn(0, 1), "b", kvsim.Hit{Blocks: 3, Prewarmed: 2})
	y.Served(turn(0, 2), "b", kvsim.Hit{Blocks: 2})
	y.Failed()
	y.Lost(5)
	got := y.Policy("berth")
	got.Events = nil
	want := Policy{
		Name: "berth", HitRate: 0.5, ShareOfIdeal: 0.666667, JumpRate: 0.5, ColdJumpRate: 0,
		RecomputedTokens: 3 * 512, PrewarmedTokens: 3 * 512, PrewarmedTokensUsed: 2 * 512,
		MaxMeanLoad: 1.333333, LostTurns: 5, FailedRequests: 1, AvoidableJumps: 1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("figures %+v, want %+v", got, want)
	}
}

// TestLoadIsMeasuredWhileInService has an instance that joins late and one that
// leaves early, each of which serves its share while it is there.
func TestLoadIsMeasuredWhileInService(t *testing.T) {
	t.Parallel()
	y := NewTally([]string{"a", "b"})
	session := 0
	round := func(instances string) {
		for _, instance := range instances {
			session++
			y.Served(turn(session, 0), string(instance), kvsim.Hit{})
		}
	}
	round("abab")
	y.Event(Event{Kind: Join, Instance: "c"})
	round("abcabc")
	y.Event(Event{Kind: Kill, Instance: "a"})
	round("bcbcbcbc")
	if got := y.Policy("x").MaxMeanLoad; got != 1 {
		t.Errorf("max/mean load %.3f, want 1: everyone served its share", got)
	}
	round("cc")
	if got := y.Policy("x").MaxMeanLoad; got != 1.142857 {
		t.Errorf("max/mean load %.6f, want 8/7", got)
	}
}

func TestTallyCountsWhoWasOnAnInstance(t *testing.T) {
	t.Parallel()
	y := NewTally([]string{"a", "b"})
	y.Event(Event{Kind: Join, Instance: "c"})
	for session, instance := range []string{"a", "a", "b", "c", "c", "c"} {
		y.Served(turn(session, 0), instance, kvsim.Hit{})
	}
	y.Served(turn(0, 1), "b", kvsim.Hit{})
	y.Event(Event{Kind: Kill, Instance: "a"})
	y.Event(Event{Kind: Drain, Instance: "b"})
	events := y.Policy("x").Events
	if events[0].Sessions != 3 || events[1].Sessions != 1 || events[2].Sessions != 2 {
		t.Errorf("sessions %+v, want 3 begun on c, 1 left on a, 2 on b", events)
	}
}
