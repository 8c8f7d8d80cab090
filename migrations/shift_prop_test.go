package migrations

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/routing"
	"berth/statestore"
)

func drawShift(t *rapid.T) shift {
	q := shift{question: drawQuestion(t), minStick: time.Minute}
	q.sources, q.avoid, q.cold = nil, nil, false
	q.target = rapid.SampledFrom([]string{"", "", "i1"}).Draw(t, "target")
	ids := []string{}
	for in := range q.snapshot.Instances() {
		ids = append(ids, in.ID)
	}
	for i := range q.sessions {
		s := &q.sessions[i]
		s.owner.Instance = rapid.SampledFrom(ids).Draw(t, "owner")
		s.bound = rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(t, "bound")
	}
	if rapid.Bool().Draw(t, "quotas") {
		q.quota = map[string]int{"i0": rapid.IntRange(0, 5).Draw(t, "quota")}
	}
	return q
}

// Replayed step by step: everybody leaves an instance that is over its bound with
// everything planned so far, for another that stays under it; nobody is planned
// twice, is young, weighs nothing, or exceeds a quota.
func TestShiftKeepsToTheBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := drawShift(t)
		p := makeShift(q)
		tally := routing.NewTally(q.snapshot)
		given := map[string]float64{}
		give := func(id string, load float64) {
			before := math.Floor(given[id])
			given[id] += load
			_ = tally.Add(id, int(math.Floor(given[id])-before))
		}
		give("i1", q.placed["i1"])
		// Those that are blocked count as if they had left, so that only a plan without
		// them can be replayed.
		exact := len(p.waiting) == 0
		taken := map[string]int{}
		seen := map[statestore.SessionKey]bool{}
		for _, s := range p.steps {
			switch {
			case seen[s.key]:
				t.Fatalf("session %s is planned twice", s.key.ID)
			case s.bound < q.minStick, !s.active(), s.orphaned, s.inFlight(q.grace):
				t.Fatalf("should stay: %+v", s.session)
			case s.target.Instance == s.owner.Instance, q.refused[s.key] == s.target.Instance, q.target != "" && s.target.Instance != q.target:
				t.Fatalf("%s goes to %s", s.owner.Instance, s.target.Instance)
			case exact && !tally.OverBound(s.owner.Instance):
				t.Fatalf("%s is not over its bound", s.owner.Instance)
			}
			seen[s.key] = true
			taken[s.owner.Instance]++
			more := int(math.Ceil(s.load))
			_ = tally.Add(s.target.Instance, more)
			if exact && tally.OverBound(s.target.Instance) {
				t.Fatalf("%s has no room", s.target.Instance)
			}
			_ = tally.Add(s.target.Instance, -more)
			give(s.target.Instance, s.load)
			give(s.owner.Instance, -s.load)
		}
		for id, n := range taken {
			if q.quota != nil && n > q.quota[id] {
				t.Fatalf("%d leave %s, %v were to", n, id, q.quota)
			}
		}
		q.sessions = rapid.Permutation(q.sessions).Draw(t, "order")
		if again := makeShift(q); !slices.Equal(again.steps, p.steps) {
			t.Fatal("the order of the sessions matters")
		}
	})
}

// Sessions that the ring would not have there leave first, then those that cost
// their targets least.
func TestShiftPrefersStrangersAndSmallOnes(t *testing.T) {
	t.Parallel()
	spec := routing.Spec{Version: 1, Policy: routing.DefaultPolicy()}
	for _, id := range []string{"a", "b", "c"} {
		spec.Instances = append(spec.Instances, routing.Instance{ID: id, Incarnation: "1", Address: "10.0.0.1:80", Weight: 100, State: routing.Ready})
	}
	spec.Instances[0].Load.Running = 30
	snapshot, err := routing.NewSnapshot(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	q := shift{question: question{snapshot: snapshot}}
	for i := range 60 {
		q.sessions = append(q.sessions, session{
			key: keyOf(i), owner: statestore.Owner{Instance: "a", Incarnation: "1"},
			tokens: uint64(1 + i*7%13), idle: time.Minute, left: time.Hour, load: 0.5, //nolint:gosec // small
		})
	}
	steps := makeShift(q).steps
	if len(steps) == 0 {
		t.Fatal("nobody leaves")
	}
	for i := 1; i < len(steps); i++ {
		a, b := &steps[i-1], &steps[i]
		homeA, homeB := ringOwner(snapshot, &a.session) == "a", ringOwner(snapshot, &b.session) == "a"
		if homeA && !homeB || homeA == homeB && a.tokens > b.tokens {
			t.Errorf("step %d (at home %v, %d tokens) comes before (%v, %d)", i, homeA, a.tokens, homeB, b.tokens)
		}
	}
}
