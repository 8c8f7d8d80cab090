package routing

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whoever comes, goes, fails, returns or changes weight: what joins move within any
// minute stays below the limit, no step is larger than a step, nobody rises who takes
// nothing new, and all who stay are whole in the end. Who was down, and is suspect on
// its way back, begins when it is ready.
func TestRampProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := DefaultRampPolicy()
		policy.MaxChurn = rapid.SampledFrom([]int{5, 10, 40}).Draw(t, "max churn")
		policy.Opening = 0
		ramp, now := NewRamp(policy), time.Duration(0)
		members, out := map[string]*RampMember{}, map[string]bool{}
		type move struct {
			at   time.Duration
			part float64
		}
		left := -time.Minute // when the last member left, whose gains no other holder is told
		var moves []move
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			before := map[string]float64{}
			for id, m := range members {
				if !out[id] && m.Percent > 0 {
					before[id] = float64(m.Weight * m.Percent)
				}
			}
			id := fmt.Sprintf("i%d", rapid.IntRange(0, 6).Draw(t, "member"))
			m := members[id]
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what == 9 && now-left >= time.Minute:
				ramp = NewRamp(policy) // of another holder of the lease
			case m == nil && what < 5:
				members[id] = &RampMember{Boot: Boot{ID: id}, Percent: RampQueued, State: Ready, Weight: rapid.SampledFrom([]int{50, 100, 200}).Draw(t, "weight")}
			case m == nil || what > 3:
			case what == 0:
				delete(members, id)
				delete(before, id)
				delete(out, id)
				left = now
			case what == 1:
				was := out[id]
				switch m.State = rapid.SampledFrom([]State{Ready, Ready, Suspect, Suspect, Down, Cordoned}).Draw(t, "state"); m.State {
				case Ready:
					out[id] = false
				case Suspect:
				default:
					out[id] = true
				}
				if was || out[id] {
					delete(before, id)
				}
			case what == 2:
				m.Weight = rapid.SampledFrom([]int{50, 100, 200}).Draw(t, "weight")
				if w, in := before[id]; in {
					// Less is given at once, and percents are whole.
					before[id] = math.Floor(min(w/float64(m.Weight), 100)) * float64(m.Weight)
					if before[id] == 0 {
						delete(before, id)
					}
				}
			}
			now += time.Duration(rapid.IntRange(0, 9000).Draw(t, "ms")) * time.Millisecond
			list := make([]RampMember, 0, len(members))
			for _, m := range members {
				list = append(list, *m)
			}
			pace := ramp.Step(now, list)
			raised, least := 0, false
			after := map[string]float64{}
			for id, m := range members {
				to := pace.Percents[id]
				if to > 100 || to == 0 || to < RampQueued {
					t.Fatalf("%s at %d %%", id, to)
				}
				if pace.Out[id] != out[id] || out[id] && to != policy.start() {
					t.Fatalf("%s is %v, out: %v, want %v, at %d %%", id, m.State, pace.Out[id], out[id], to)
				}
				m.Gained, m.Out, m.Returns = pace.Gained[id], pace.Out[id], pace.Returns[id]
				if m.Percent = to; out[id] || to < 0 {
					continue
				}
				after[id] = float64(m.Weight * to)
				if rise := after[id] - before[id]; rise > 0 && len(before) > 0 {
					if m.State != Ready {
						t.Fatalf("%s is %v, and rises from %v to %v", id, m.State, before[id], after[id])
					}
					raised++
					if least = rise <= float64(m.Weight); rise > float64(m.Weight*policy.step()) {
						t.Fatalf("%s rises from %v to %v at once", id, before[id], after[id])
					}
				}
			}
			if len(before) == 0 {
				moves = append(moves, move{now, 0})
				continue // nobody to move keys from
			}
			part := 0.0
			for id := range after {
				part += max(0, after[id]/sum(after)-before[id]/sum(before))
			}
			within := part
			for _, m := range moves {
				if now-m.at < time.Minute {
					within += m.part
				}
			}
			if alone := raised == 0 || raised == 1 && least && within-part < 1e-9; within > float64(policy.MaxChurn)/100+1e-6 && !alone {
				t.Fatalf("at %v %.4f of the key space moved within a minute, %.4f of it now: %v to %v", now, within, part, before, after)
			}
			moves = append(moves, move{now, part})
		}
		for end := now + 3*time.Hour; ; now += 10 * time.Second {
			list := make([]RampMember, 0, len(members))
			whole := true
			for _, m := range members {
				list = append(list, *m)
			}
			pace := ramp.Step(now, list)
			for id, m := range members {
				whole = whole && (m.State != Ready || pace.Percents[id] == 100)
			}
			if whole != (pace.Next == 0) {
				t.Fatalf("all are whole: %v, next step at %v", whole, pace.Next)
			}
			if whole {
				break
			}
			if now > end {
				t.Fatalf("not whole: %v", pace.Percents)
			}
		}
	})
}

func sum(m map[string]float64) (s float64) {
	for _, v := range m {
		s += v
	}
	return s
}

// A rise moves about its gain to the raised, and nothing else.
func TestRampStepsMoveTheirShare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		members := fleet(rapid.IntRange(2, 12).Draw(t, "members"))
		raised := rapid.IntRange(0, len(members)-1).Draw(t, "raised")
		members[raised].RampPercent = rapid.IntRange(10, 90).Draw(t, "from")
		before, err := NewRing(RingOptions{}, members)
		if err != nil {
			t.Fatal(err)
		}
		total, m := uint64(0), members[raised]
		for _, m := range members {
			total += uint64(m.effectiveWeight())
		}
		part := float64(gain(total, m.Weight, m.RampPercent, m.RampPercent+10)) / keySpace
		members[raised].RampPercent += 10
		after, err := before.With(members)
		if err != nil {
			t.Fatal(err)
		}
		switch moved := before.Movement(after); {
		case moved.Avoidable > 0:
			t.Fatalf("%.4f moved to others", moved.Avoidable)
		case math.Abs(moved.Moved-part) > 0.5*part+0.005: // 51 points more: their gaps vary
			t.Fatalf("%.4f moved, want %.4f", moved.Moved, part)
		}
	})
}
