package scoreboard

import (
	"math"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"berth/cmd/berth/internal/policies"
	"berth/cmd/berth/internal/trace"
)

var loadConversation = sync.OnceValues(func() (trace.Trace, error) { return trace.Load(trace.Conversation(), 0) })

func conversation(t *testing.T) trace.Trace {
	t.Helper()
	all, err := loadConversation()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func near(got, want, within float64) bool { return math.Abs(got-want) <= within }

// TestBaselinesOnTheConversationTrace holds the baselines to what an
// independent calculation, with other hashes and seeds, gives on the same
// events.
func TestBaselinesOnTheConversationTrace(t *testing.T) {
	t.Parallel()
	all := conversation(t)
	policies, err := Baselines(all.Turns, Schedule(len(all.Turns)))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		name          string
		share, within float64
		affinity      bool
	}{
		{"random", 0.355, 0.02, false},
		{"round_robin", 0.352, 0.005, false},
		{"modulo", 0.838, 0.01, true},
		{"plain_ring", 0.973, 0.005, true},
	} {
		p := policies[i]
		if p.Name != want.name || !near(p.ShareOfIdeal, want.share, want.within) {
			t.Errorf("%s reuses %.4f of the ideal, want %s with %.3f ± %.3f", p.Name, p.ShareOfIdeal, want.name, want.share, want.within)
		}
		if p.AvoidableJumps == 0 || (p.JumpRate < 0.2) != want.affinity {
			t.Errorf("%s: jump rate %.3f with %d avoidable jumps", p.Name, p.JumpRate, p.AvoidableJumps)
		}
		if p.LostTurns < 400 || p.FailedRequests != 0 || p.ColdJumpRate != p.JumpRate || p.PrewarmedTokens != 0 {
			t.Errorf("%s has the books of another kind of policy: %+v", p.Name, p)
		}
	}
}

// TestOnlyAKillLosesTurns plays each event alone: an orderly departure is
// taken to hand its conversations over.
func TestOnlyAKillLosesTurns(t *testing.T) {
	t.Parallel()
	turns := conversation(t).Turns[:2000]
	for _, event := range Schedule(len(turns)) {
		policies, err := Baselines(turns, []Event{event})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range policies {
			if (p.LostTurns > 0) != (event.Kind == Kill) {
				t.Errorf("%s loses %d turns by a %s", p.Name, p.LostTurns, event.Kind)
			}
		}
	}
}

// TestPlainRingMovesOnlyToTheNewcomer says why the plain ring does well and
// still not as well as bindings: a join takes sessions from everyone.
func TestPlainRingMovesOnlyToTheNewcomer(t *testing.T) {
	t.Parallel()
	all := conversation(t)
	var before, after policies.PlainRing
	if err := before.Members(members(Fleet())); err != nil {
		t.Fatal(err)
	}
	join := Schedule(len(all.Turns))[0]
	if err := after.Members(members(join.apply(Fleet()))); err != nil {
		t.Fatal(err)
	}
	moved := 0
	for _, turn := range all.Turns {
		from, to := before.Route(turn.SessionID()), after.Route(turn.SessionID())
		if from != to {
			moved++
			if to != join.Instance {
				t.Fatalf("%s moves from %s to %s", turn.SessionID(), from, to)
			}
		}
	}
	if share := float64(moved) / float64(len(all.Turns)); !near(share, 1.0/9, 0.03) {
		t.Errorf("%.3f of the turns move to the ninth instance, want about a ninth", share)
	}
}

func TestScheduleFitsShortTraces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 50).Draw(t, "requests")
		turns := make([]trace.Turn, n)
		for i := range turns {
			turns[i] = trace.Turn{Session: i}
		}
		policies, err := Baselines(turns, Schedule(n))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range policies {
			if len(p.Events) != 3 || p.HitRate != 0 || p.ShareOfIdeal != 0 || p.JumpRate != 0 {
				t.Fatalf("%d empty requests give %+v", n, p)
			}
		}
	})
}

type serving struct {
	session, n int
	instance   string
}

// alive counts the turns some instance in the list holds: it served them or a
// later one of their session.
func alive(all []serving) int {
	turns := map[int]int{}
	for _, s := range all {
		turns[s.session] = max(turns[s.session], s.n+1)
	}
	total := 0
	for _, n := range turns {
		total += n
	}
	return total
}

func TestCopiesAgreeWithAListOfServings(t *testing.T) {
	t.Parallel()
	instances := rapid.SampledFrom([]string{"a", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		held, next := make(copies), map[int]int{}
		var all []serving
		for range rapid.IntRange(0, 40).Draw(t, "turns") {
			s := serving{session: rapid.IntRange(0, 3).Draw(t, "session"), instance: instances.Draw(t, "instance")}
			s.n = next[s.session]
			next[s.session]++
			held.add(trace.Turn{Session: s.session, N: s.n}, s.instance)
			all = append(all, s)
		}
		for range 2 {
			dead, before := instances.Draw(t, "dead"), alive(all)
			all = slices.DeleteFunc(all, func(s serving) bool { return s.instance == dead })
			if got, want := held.lose(dead), before-alive(all); got != want {
				t.Fatalf("%s takes %d turns with it, want %d", dead, got, want)
			}
		}
	})
}
