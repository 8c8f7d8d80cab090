package routing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// theatre plays a pool second by second: sessions send requests, each is
// decided when it comes and occupies its instance for a while, and every second
// the loads of the second before are published.
type theatre struct {
	rng      *rand.Rand
	snap     *Snapshot
	now      time.Duration
	sessions []actor
	ends     [][]int // instances of the requests that end, by second
	running  []int   // requests by instance
	reported []int   // the same a second ago

	moves, early, returns int // of bindings; of those younger than min_stick; to the owner before
}

// actor is one session.
type actor struct {
	key    string
	rate   float64 // requests a second
	rec    Record
	bound  time.Duration // since when
	before string        // the owner before
}

const serviceSeconds = 8

// newTheatre binds count sessions, of which the first hundredth brings half of
// the load, to the first of their walk. With crowded, the walks of all these
// begin at one instance.
func newTheatre(t testing.TB, instances, loadEach, count int, crowded bool) *theatre {
	policy := DefaultPolicy()
	policy.MaxAge = 10 * time.Minute
	th := &theatre{
		rng: rand.New(rand.NewPCG(1, 2)), ends: make([][]int, serviceSeconds),
		snap:    mustSnapshot(t, Spec{Policy: policy, Instances: readyFleet(instances)}),
		running: make([]int, instances), reported: make([]int, instances),
	}
	hot, half := count/100, float64(loadEach*instances)/2/serviceSeconds
	for i := 0; len(th.sessions) < count; i++ {
		s := actor{key: fmt.Sprintf("session-%d", i), rate: half / float64(count-hot)}
		first := th.snap.Owner(s.key)
		if len(th.sessions) < hot {
			if crowded && first.ID != "i0" {
				continue
			}
			s.rate = half / float64(hot)
		}
		s.rec = bind(first)
		th.sessions = append(th.sessions, s)
	}
	return th
}

// second lets a second pass.
func (th *theatre) second() {
	th.now += time.Second
	tick := int(th.now/time.Second) % serviceSeconds
	for _, i := range th.ends[tick] {
		th.running[i]--
	}
	th.ends[tick] = th.ends[tick][:0]
	loads := map[string]Load{}
	for i, n := range th.reported {
		loads[th.snap.instances[i].ID] = Load{Running: n}
	}
	copy(th.reported, th.running)
	version := th.snap.Version() + 1
	th.snap = th.snap.WithLoads(Loads{Version: version, LoadVersion: version, ByInstance: loads})
	for i := range th.sessions {
		s := &th.sessions[i]
		for next := th.rng.ExpFloat64(); next < s.rate; next += th.rng.ExpFloat64() {
			th.request(s, tick)
		}
	}
}

func (th *theatre) request(s *actor, tick int) {
	s.rec.BoundFor = th.now - s.bound
	to := Decide(th.snap, Request{Key: s.key}, s.rec).Instance
	if to.ID != s.rec.Owner {
		th.moves++
		if s.rec.BoundFor <= th.snap.policy.MinStick {
			th.early++
		}
		if to.ID == s.before {
			th.returns++
		}
		s.before, s.rec, s.bound = s.rec.Owner, bind(to), th.now
	}
	i := th.snap.find(to.ID)
	th.running[i]++
	th.ends[tick] = append(th.ends[tick], i)
}

// play lets time pass and returns the highest load over the mean, both taken
// over the whole span.
func (th *theatre) play(span time.Duration) float64 {
	sums, total := make([]int, len(th.running)), 0
	for end := th.now + span; th.now < end; {
		th.second()
		for i, n := range th.running {
			sums[i] += n
			total += n
		}
	}
	most := 0
	for _, n := range sums {
		most = max(most, n)
	}
	return float64(most*len(sums)) / float64(total)
}

// One session in a hundred brings half of the load, and at worst all of those
// begin on one instance. With a maximum age the pool is even within two
// affinity TTLs of half an hour, and stays so, while nobody moves twice within
// min_stick and hardly anybody comes back to where it was.
func TestHotInstancesShedWithoutPingPong(t *testing.T) {
	t.Parallel()
	for _, crowded := range bools {
		for _, load := range []int{50, 200} {
			t.Run(fmt.Sprintf("crowded %v, %d each", crowded, load), func(t *testing.T) {
				t.Parallel()
				th := newTheatre(t, 10, load, 3000, crowded)
				begin, tail := th.play(10*time.Minute), 0.0
				th.play(20 * time.Minute)
				settled := th.moves
				for range 3 {
					tail = max(tail, th.play(10*time.Minute))
				}
				t.Logf("peak over mean %.2f, then at most %.2f; %d moves, %d of them later, %d returns", begin, tail, th.moves, th.moves-settled, th.returns)
				if tail >= 1.3 {
					t.Errorf("in the second half hour the peak is %.2f of the mean, want below 1.3", tail)
				}
				if crowded && begin < 5 {
					t.Errorf("the pool begins at %.2f: nothing to shed", begin)
				}
				if th.early > 0 {
					t.Errorf("%d sessions moved within min_stick", th.early)
				}
				if th.moves > 2000 || th.returns > th.moves/4 {
					t.Errorf("%d moves of 3000 sessions, %d of them back", th.moves, th.returns)
				}
			})
		}
	}
}

// leavers counts the bindings of an age that leave an owner.
func leavers(s *Snapshot, owner string, age time.Duration, n int) map[string]string {
	left := map[string]string{}
	for i := range n {
		rec := bind(s.Lookup(owner))
		rec.BoundFor = age
		key := fmt.Sprintf("session-%d", i)
		if d := Decide(s, Request{Key: key}, rec); d.Instance.ID != owner {
			left[key] = d.Instance.ID
		}
	}
	return left
}

// Between two load tables only a part leaves, the older the more, to all who
// have room, and asking again or by another table changes nobody's mind.
func TestShedsLittleByLittle(t *testing.T) {
	t.Parallel()
	policy := DefaultPolicy()
	policy.MaxAge = 10 * time.Minute
	s := mustSnapshot(t, Spec{Version: 1, Policy: policy, Instances: loaded(400, 200, 200, 200)})
	const n = 10_000
	// Fair is 250; with what chance adds 281 of 400 may stay.
	part := 1 - 281.6/400
	for times, want := range map[float64]float64{0.99: 0, 1.01: part, 2: 2 * part, 20: 4 * part} {
		age := time.Duration(times * float64(policy.MaxAge))
		left := leavers(s, "i0", age, n)
		if got := float64(len(left)) / n; math.Abs(got-min(want, 1)) > 0.03 {
			t.Errorf("%.2f of those bound for %v leave, want %.2f", got, age, min(want, 1))
		}
		again := s.WithLoads(Loads{Version: 2, LoadVersion: 2})
		if fmt.Sprint(leavers(again, "i0", age, n)) != fmt.Sprint(left) {
			t.Errorf("at %v others leave by an equal load table", age)
		}
		targets := map[string]int{}
		for _, to := range left {
			targets[to]++
		}
		for to, got := range targets {
			if got > len(left)/2 {
				t.Errorf("%d of %d go to %s", got, len(left), to)
			}
		}
	}
	next := leavers(s, "i0", policy.MaxAge+shedSpell+time.Second, n)
	both := 0
	for key := range leavers(s, "i0", policy.MaxAge+time.Second, n) {
		if next[key] != "" {
			both++
		}
	}
	if got := float64(both) / n; got > part*part+0.03 {
		t.Errorf("%.2f would leave in either of two spells: the lots are not drawn anew", got)
	}
}

// A saturated owner keeps most of its sessions, a failing one none.
func TestSaturatedShedsLessThanFailing(t *testing.T) {
	t.Parallel()
	list := loaded(200, 200, 200, 200)
	const n = 10_000
	for breaker, byAge := range map[Breaker]map[time.Duration]float64{
		BreakerOpen:      {time.Minute: 0, 2 * time.Minute: 1},
		BreakerTrial:     {time.Minute: 0, 2 * time.Minute: 1},
		BreakerSaturated: {time.Minute: 0, 2 * time.Minute: 0.08, 4 * time.Minute: 0.125, time.Hour: 0.25},
	} {
		list[0].Breaker = breaker
		s := pool(t, list)
		for age, want := range byAge {
			if got := float64(len(leavers(s, "i0", age, n))) / n; math.Abs(got-want) > 0.02 {
				t.Errorf("%s: %.2f of those bound for %v leave, want %.2f", breaker, got, age, want)
			}
		}
	}
	list[0].Breaker, list[0].Load = BreakerSaturated, Load{Running: shedFreely}
	if left := leavers(pool(t, list), "i0", 61*time.Second, 100); len(left) != 100 {
		t.Errorf("%d of 100 leave an instance of few requests, want all", len(left))
	}
}

// What is shed goes to those below their share before those merely under their
// bound, and to these before it stays.
func TestShedPrefersTheCalm(t *testing.T) {
	t.Parallel()
	policy := DefaultPolicy()
	policy.MaxAge = time.Minute
	s := mustSnapshot(t, Spec{Policy: policy, Instances: loaded(400, 200, 100, 20)})
	left := leavers(s, "i0", time.Hour, 500)
	for key, to := range left {
		if to != "i2" && to != "i3" {
			t.Errorf("%s goes to %s, which has more than its share", key, to)
		}
	}
	if len(left) == 0 {
		t.Error("nobody leaves")
	}
	rec := bind(s.Lookup("i0"))
	rec.BoundFor = 24 * time.Hour
	key := keyOwnedBy(t, s, "i1")
	if d := Decide(s, Request{Key: key, Exclude: []string{"i2", "i3"}}, rec); d.Instance.ID != "i1" || d.Reason != ReasonBreaker {
		t.Errorf("with only one under its bound: %+v", d)
	}
	if d := Decide(s, Request{Key: key, Exclude: []string{"i1", "i2", "i3"}}, rec); d.Instance.ID != "i0" || d.Reason != ReasonBound {
		t.Errorf("with nowhere to go: %+v", d)
	}
}

// Sessions whose walks begin alike, and that are elsewhere by then, do not all come
// back to that one because it is calm: their walks go on from where they are.
func TestShedGoesOnAlongTheWalk(t *testing.T) {
	t.Parallel()
	list := loaded(0, 400, 0, 0, 0, 0)
	list[1].Breaker = BreakerSaturated
	s := pool(t, list)
	targets := map[string]int{}
	for i := range 4000 {
		key := fmt.Sprintf("session-%d", i)
		walk := walkIDs(s.Ring(), key)
		if walk[0] != "i0" {
			continue
		}
		rec := bind(s.Lookup("i1"))
		rec.BoundFor = time.Hour
		d := Decide(s, Request{Key: key}, rec)
		if d.Instance.ID == "i1" {
			continue
		}
		targets[d.Instance.ID]++
		at := slices.Index(walk, "i1")
		if want := walk[(at+1)%len(walk)]; d.Instance.ID != want {
			t.Fatalf("%s leaves i1 for %s, and its walk is %v", key, d.Instance.ID, walk)
		}
	}
	if len(targets) != 5 || targets["i0"] > targets["i2"] {
		t.Errorf("they go to %v: want all others, and no more to the one they all begin with", targets)
	}
}

// R43: a hard pin kept one instance saturated for an hour. A policy lets the next
// turn leave, as soon as the owner is over its bound.
func TestR43AnOldPinMaySpill(t *testing.T) {
	t.Parallel()
	policy := DefaultPolicy()
	policy.MaxAge, policy.Bound.Gap = time.Minute, 1
	for load, leaves := range map[int]bool{0: false, 1: false, 2: true, 3: true} {
		s := mustSnapshot(t, Spec{Policy: policy, Instances: loaded(load, 0)})
		rec := bind(s.Lookup("i0"))
		rec.BoundFor = time.Hour
		if d := Decide(s, Request{Key: "k"}, rec); (d.Instance.ID == "i1") != leaves || (d.Reason == ReasonBreaker) != leaves {
			t.Errorf("%d above its idle sibling: %s, %v", load, d.Instance.ID, d.Reason)
		}
	}
}
