package migrations

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"

	"berth/routing"
	"berth/statestore"
)

func drawSnapshot(t *rapid.T) *routing.Snapshot {
	n := rapid.IntRange(1, 7).Draw(t, "instances")
	spec := routing.Spec{Version: 1, Policy: routing.DefaultPolicy()}
	spec.Policy.Ring = routing.RingOptions{Points: 16, Slots: 1 << 8}
	for i := range n {
		spec.Instances = append(spec.Instances, routing.Instance{
			ID: fmt.Sprintf("i%d", i), Incarnation: fmt.Sprintf("boot%d", i), Address: "10.0.0.1:80", Weight: rapid.SampledFrom([]int{50, 100, 400}).Draw(t, "weight"),
			State:  rapid.SampledFrom([]routing.State{routing.Ready, routing.Ready, routing.Ready, routing.Suspect, routing.Draining}).Draw(t, "state"),
			Labels: map[string]string{"rs": rapid.SampledFrom([]string{"old", "new"}).Draw(t, "label")},
			Load:   routing.Load{Running: rapid.IntRange(0, 30).Draw(t, "running")},
		})
	}
	s, err := routing.NewSnapshot(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func drawSessions(t *rapid.T) []session {
	sessions := make([]session, rapid.IntRange(0, 60).Draw(t, "sessions"))
	for i := range sessions {
		s := session{
			key:      statestore.SessionKey{Tenant: "t", Pool: "p", ID: fmt.Sprintf("s%d", i)},
			owner:    statestore.Owner{Instance: "i0", Incarnation: "boot0"},
			tokens:   rapid.Uint64Range(0, 5000).Draw(t, "tokens"),
			bytes:    rapid.Uint64Range(0, 5000).Draw(t, "bytes"),
			idle:     time.Duration(rapid.IntRange(0, 1200).Draw(t, "idle")) * time.Second,
			left:     time.Duration(rapid.IntRange(0, 5).Draw(t, "left")) * time.Minute,
			orphaned: rapid.IntRange(0, 4).Draw(t, "orphaned") == 0,
			resting:  rapid.IntRange(0, 4).Draw(t, "resting") == 0,
		}
		if rapid.Bool().Draw(t, "keyed") {
			binary.BigEndian.PutUint64(s.affinity[:8], xxhash.Sum64String(fmt.Sprintf("user%d", i%3)))
			s.affinity[15] = 1
		}
		sessions[i] = s
	}
	return sessions
}

func drawQuestion(t *rapid.T) question {
	q := question{
		snapshot: drawSnapshot(t), sources: []string{"i0"}, sessions: drawSessions(t),
		mode: rapid.SampledFrom([]Mode{ModeMigrate, ModeMigrate, ModeLinger, ModeDetach}).Draw(t, "mode"),
		cold: rapid.IntRange(0, 3).Draw(t, "cold") == 0, grace: 30 * time.Second, idleBelow: 10 * time.Minute,
		budget: rapid.Uint64Range(0, 100_000).Draw(t, "budget"),
		avoid:  rapid.SampledFrom([]map[string]string{nil, {"rs": "old"}}).Draw(t, "avoid"),
		placed: map[string]float64{"i1": rapid.Float64Range(0, 20).Draw(t, "placed")}, refused: map[statestore.SessionKey]string{},
	}
	shareLoad(q.sessions, rapid.IntRange(0, 40).Draw(t, "running"))
	if rapid.Bool().Draw(t, "second source") {
		q.sources = append(q.sources, "i1")
	}
	for _, s := range q.sessions {
		if rapid.IntRange(0, 9).Draw(t, "refused") == 0 {
			q.refused[s.key] = "i2"
		}
	}
	return q
}

// Every session is planned once, blocked once, or left to linger; what is planned
// suits its session; the order is lapsed first, then idle before busy; and no
// budget is overdrawn.
func TestPlanTakesEverySessionOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := drawQuestion(t)
		p := makePlan(q)
		seen := map[statestore.SessionKey]bool{}
		warm := uint64(0)
		for i, s := range p.steps {
			if seen[s.key] {
				t.Fatalf("session %s is planned twice", s.key.ID)
			}
			seen[s.key] = true
			if i > 0 && before(s.session, p.steps[i-1].session) < 0 {
				t.Fatalf("step %d should come before the one before it", i)
			}
			unbinds := s.lapsed() || q.mode == ModeDetach
			switch {
			case s.target.IsZero() != unbinds:
				t.Fatalf("target %v of a session that lapses in %v in mode %s", s.target, s.left, q.mode)
			case !unbinds && (slices.Contains(q.sources, s.target.Instance) || !q.snapshot.Eligible(s.target.Instance)):
				t.Fatalf("target %v may take nobody", s.target)
			case !unbinds && s.target.Incarnation != q.snapshot.Lookup(s.target.Instance).Incarnation:
				t.Fatalf("target %v is another boot", s.target)
			case s.inFlight(q.grace):
				t.Fatal("a session in flight is planned")
			case q.mode == ModeLinger && !s.lapsed() && !q.cold && !s.orphaned:
				t.Fatal("a lingering session is planned")
			}
			if s.prewarm {
				warm += s.prefill()
				if unbinds || q.cold || s.orphaned || s.idle >= q.idleBelow || s.prefill() == 0 || q.refused[s.key] == s.target.Instance {
					t.Fatalf("prewarmed in vain: %+v", s)
				}
			}
		}
		if warm > q.budget {
			t.Fatalf("%d tokens of %d are prewarmed", warm, q.budget)
		}
		lingering := 0
		for _, s := range q.sessions {
			_, blocked := p.why[s.key]
			if blocked && seen[s.key] {
				t.Fatalf("session %s is planned and blocked", s.key.ID)
			}
			if !blocked && !seen[s.key] {
				lingering++
			}
		}
		if lingering > 0 && (q.mode != ModeLinger || q.cold) {
			t.Fatalf("%d sessions are forgotten", lingering)
		}
		if sum(p.blocked) != len(p.why) {
			t.Fatalf("%v blocked, %d with a reason", p.blocked, len(p.why))
		}
	})
}

// Replayed step by step against the loads so far, with the load that each session
// brings along: no target passes its bound, nor is avoided, while one that is not
// has room; and nobody is left without a target while anyone may take sessions.
func TestPlanKeepsToTheBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := drawQuestion(t)
		q.mode = ModeMigrate
		p := makePlan(q)
		tally := routing.NewTally(q.snapshot, q.sources...)
		given := map[string]float64{}
		give := func(id string, load float64) {
			before := math.Floor(given[id])
			given[id] += load
			_ = tally.Add(id, int(math.Floor(given[id])-before))
		}
		give("i1", q.placed["i1"])
		room := func(id string, load float64) bool {
			more := int(math.Ceil(load))
			_ = tally.Add(id, more)
			defer tally.Add(id, -more) //nolint:errcheck // it was there a moment ago
			return !tally.OverBound(id)
		}
		takers := 0
		for in := range q.snapshot.Instances() {
			if q.snapshot.Eligible(in.ID) && !slices.Contains(q.sources, in.ID) {
				takers++
			}
		}
		if (p.blocked[BlockedNoTarget] > 0) && takers > 0 {
			t.Fatalf("%d have no target among %d", p.blocked[BlockedNoTarget], takers)
		}
		for _, s := range p.steps {
			if s.target.IsZero() {
				continue
			}
			avoided := func(in *routing.Instance) bool {
				return carries(in.Labels, q.avoid) || q.refused[s.key] == in.ID
			}
			bad := !room(s.target.Instance, s.load) || avoided(q.snapshot.Lookup(s.target.Instance))
			for in := range q.snapshot.Instances() {
				may := q.snapshot.Eligible(in.ID) && !slices.Contains(q.sources, in.ID)
				if bad && may && !avoided(in) && room(in.ID, s.load) {
					t.Fatalf("%s got a session, though %s has room", s.target.Instance, in.ID)
				}
			}
			give(s.target.Instance, s.load)
		}
	})
}

// What runs on an instance is shared among the sessions that were active lately,
// and no session counts for more than one request.
func TestShareLoad(t *testing.T) {
	t.Parallel()
	sessions := []session{
		{idle: time.Second, left: time.Hour}, {idle: 9 * time.Minute, left: time.Hour},
		{idle: 11 * time.Minute, left: time.Hour}, {idle: time.Minute},
	}
	for inFlight, want := range map[int]float64{0: 0, 1: 0.5, 2: 1, 7: 1} {
		shareLoad(sessions, inFlight)
		for i, want := range []float64{want, want, 0, 0} {
			if sessions[i].load != want {
				t.Errorf("of %d requests session %d brings %v, want %v", inFlight, i, sessions[i].load, want)
			}
		}
	}
}

// What targets were given is forgotten as their heartbeats come to tell of it.
func TestUnseenLoadFades(t *testing.T) {
	t.Parallel()
	var u unseen
	now := time.Now()
	u.add(now, "a", 8)
	u.add(now.Add(unseenHalf), "a", 2)
	u.add(now, "b", 0)
	if u.load["a"] != 6 || len(u.load) != 1 {
		t.Errorf("after one half life: %v", u.load)
	}
	if u.fade(now.Add(20 * unseenHalf)); len(u.load) != 0 {
		t.Errorf("in the end: %v", u.load)
	}
}

// The same question has the same answer, in whatever order the sessions come.
func TestPlanIgnoresTheOrderOfSessions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := drawQuestion(t)
		want := makePlan(q)
		q.sessions = rapid.Permutation(q.sessions).Draw(t, "order")
		got := makePlan(q)
		if !slices.Equal(got.steps, want.steps) {
			t.Fatalf("steps %v and %v", got.steps, want.steps)
		}
	})
}

// With room everywhere a session goes where the ring sends it without the source,
// by the key that its caller chose, if it chose one.
func TestPlanFollowsTheWalk(t *testing.T) {
	t.Parallel()
	spec := routing.Spec{Version: 1, Policy: routing.DefaultPolicy()}
	spec.Policy.Bound.Gap = 1000
	for i := range 5 {
		spec.Instances = append(spec.Instances, routing.Instance{ID: fmt.Sprintf("i%d", i), Address: "10.0.0.1:80", Weight: 100, State: routing.Ready})
	}
	all, err := routing.NewSnapshot(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec.Instances = spec.Instances[1:]
	rest, err := routing.NewSnapshot(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	q := question{snapshot: all, sources: []string{"i0"}, mode: ModeMigrate}
	for i := range 200 {
		s := session{key: keyOf(i), idle: time.Hour, left: time.Minute}
		if i%2 == 0 {
			binary.BigEndian.PutUint64(s.affinity[:8], xxhash.Sum64String(fmt.Sprintf("user%d", i%7)))
			s.affinity[8] = 1
		}
		q.sessions = append(q.sessions, s)
	}
	for _, s := range makePlan(q).steps {
		key := s.key.ID
		if s.affinity != (statestore.AffinityKey{}) {
			var i int
			fmt.Sscanf(key, "s%d", &i) //nolint:errcheck // made above
			key = fmt.Sprintf("user%d", i%7)
		}
		if want := rest.Owner(key).ID; s.target.Instance != want {
			t.Fatalf("session %s goes to %s, its key to %s", s.key.ID, s.target.Instance, want)
		}
	}
}

// A pool that this process does not know yet blocks what needs a target, and
// nothing else.
func TestPlanWithoutASnapshot(t *testing.T) {
	t.Parallel()
	p := makePlan(question{mode: ModeMigrate, sessions: []session{
		{key: keyOf(1), idle: time.Hour}, {key: keyOf(2), idle: time.Hour, left: time.Minute},
	}})
	if len(p.steps) != 1 || p.steps[0].key != keyOf(1) || p.why[keyOf(2)] != BlockedNoTarget {
		t.Errorf("plan %+v", p)
	}
}

// A boot is known to be gone by an image that is as new as what is known of it.
func TestLost(t *testing.T) {
	t.Parallel()
	spec := routing.Spec{Version: 7, Policy: routing.DefaultPolicy(), Instances: []routing.Instance{
		{ID: "up", Incarnation: "1", Address: "10.0.0.1:80", Weight: 100, State: routing.Draining},
		{ID: "down", Incarnation: "1", Address: "10.0.0.2:80", Weight: 100, State: routing.Down},
	}}
	s, err := routing.NewSnapshot(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id, boot string
		version  uint64
		want     bool
	}{{"up", "1", 7, false}, {"up", "2", 7, true}, {"down", "1", 7, true}, {"stranger", "1", 7, true}, {"stranger", "1", 8, false}, {"up", "2", 8, false}} {
		who := statestore.Owner{Instance: c.id, Incarnation: c.boot}
		if lost(s, who, c.version) != c.want {
			t.Errorf("%v at version %d: %v", who, c.version, !c.want)
		}
	}
	if lost(nil, statestore.Owner{Instance: "up", Incarnation: "1"}, 0) {
		t.Error("of a pool that is not known")
	}
}
