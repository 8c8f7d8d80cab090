package scoreboard

import (
	"slices"
	"testing"
	"time"

	"berth/cmd/berth/internal/policies"
	"berth/cmd/berth/internal/trace"
)

// prewarming says which sessions of a drained instance are prewarmed where
// they go: those idle for less than idleBelow, in trace time.
type prewarming struct{ idleBelow time.Duration }

// sticky is what Berth promises, reduced to a map: a session keeps its instance
// while that is in service, and the ring places it otherwise. A drain moves all
// sessions of the instance at once.
type sticky struct {
	policies.PlainRing
	bound  map[int]string
	newest map[int]trace.Turn
}

func (b *sticky) route(turn trace.Turn) string {
	if b.bound[turn.Session] == "" {
		b.bound[turn.Session] = b.Route(turn.SessionID())
	}
	b.newest[turn.Session] = turn
	return b.bound[turn.Session]
}

// leave unbinds or, after a drain, moves the sessions of an instance.
func (b *sticky) leave(s *simulation, e Event, p prewarming, now time.Duration) {
	var moving []int
	for session, instance := range b.bound {
		if instance == e.Instance {
			delete(b.bound, session)
			moving = append(moving, session)
		}
	}
	if e.Kind != Drain {
		return
	}
	slices.Sort(moving) // a map's order would make the caches differ from run to run
	for _, session := range moving {
		turn := b.newest[session]
		target := b.route(turn)
		if now-turn.At < p.idleBelow {
			s.tally.Prewarmed(session, target, s.caches[target].Prewarm(turn.Blocks))
		}
	}
}

func playSticky(t *testing.T, turns []trace.Turn, events []Event, p prewarming) Policy {
	t.Helper()
	s := newSimulation()
	b := &sticky{bound: make(map[int]string), newest: make(map[int]trace.Turn)}
	if err := b.Members(members(s.inService)); err != nil {
		t.Fatal(err)
	}
	for i, turn := range turns {
		for len(events) > 0 && events[0].At == i {
			s.apply(events[0])
			if err := b.Members(members(s.inService)); err != nil {
				t.Fatal(err)
			}
			b.leave(s, events[0], p, turn.At)
			events = events[1:]
		}
		s.serve(turn, b.route(turn))
	}
	return s.tally.Policy("berth")
}

// TestStickyBindingsReachTheIdeal shows what stored bindings are worth on the
// embedded trace before any server is involved, and what prewarming adds when
// an instance is drained: sessions that were active lately pay for it, while
// prewarming the long idle ones evicts what others still use.
func TestStickyBindingsReachTheIdeal(t *testing.T) {
	t.Parallel()
	all := conversation(t)
	for _, tc := range []struct {
		name     string
		prewarm  prewarming
		share    float64 // of the ideal
		coldRate float64
	}{
		{"no prewarming", prewarming{}, 0.9827, 0.0170},
		{"idle below ten minutes", prewarming{10 * time.Minute}, 0.9908, 0.0094},
		{"everything", prewarming{24 * time.Hour}, 0.9892, 0.0086},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := playSticky(t, all.Turns, Schedule(len(all.Turns)), tc.prewarm)
			if !near(p.ShareOfIdeal, tc.share, 0.002) {
				t.Errorf("share of the ideal %.4f, want about %.4f", p.ShareOfIdeal, tc.share)
			}
			if !near(p.JumpRate, 0.0170, 0.003) || p.AvoidableJumps != 0 {
				t.Errorf("jump rate %.4f with %d avoidable jumps, want about 0.0170 and none", p.JumpRate, p.AvoidableJumps)
			}
			if !near(p.ColdJumpRate, tc.coldRate, 0.003) {
				t.Errorf("cold jump rate %.4f, want about %.4f", p.ColdJumpRate, tc.coldRate)
			}
			if (p.PrewarmedTokensUsed > 0) != (tc.prewarm.idleBelow > 0) || p.PrewarmedTokensUsed > p.PrewarmedTokens {
				t.Errorf("%d of %d prewarmed tokens used", p.PrewarmedTokensUsed, p.PrewarmedTokens)
			}
		})
	}
}
