package simulate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"berth/routing"
)

// Replica is an instance of a live fleet.
type Replica struct {
	ID          string
	Zone        string
	Weight      int
	State       routing.State
	RampPercent int // as routing.Instance has it
	MaxRunning  int // 0: not known
}

// Stored is a session of a live fleet.
type Stored struct {
	Hash   uint64 // the ring's, of its affinity key
	Owner  string // empty for none
	Live   bool   // bound, and the affinity holds
	Turns  int
	Tokens int
	Age    time.Duration // since it was created
	Idle   time.Duration // since its last turn
	Bound  time.Duration // since its owner became the owner
}

// Fleet is a live fleet at one moment.
type Fleet struct {
	Replicas []Replica
	Sessions []Stored
}

// settle is played ahead of the events of a live fleet, so that requests are in
// flight when they come.
const settle = 30 * time.Second

// RunFleet plays a scenario with the sessions of a live fleet. Nobody knows
// which of them go on: they do as a synthetic session would that was idle as
// long, and new ones begin as often as lately.
func RunFleet(ctx context.Context, sc Scenario, f *Fleet, others []string, tell func(policy string, done, of int)) (*Report, error) {
	if len(f.Replicas) == 0 {
		return nil, fmt.Errorf("simulate a live fleet: it has no instances")
	}
	sc.Warmup, sc.Fleet, sc.Instances = settle, f.Replicas, len(f.Replicas)
	first, err := newLive(&sc, f)
	if err != nil {
		return nil, err
	}
	sc.Sessions = max(1, first.sessions())
	what := fmt.Sprintf("%d sessions of a live fleet and %d new ones", len(f.Sessions), first.sessions()-len(f.Sessions))
	return run(ctx, &sc, what, first.again, others, tell)
}

// live is the sessions of a fleet, first those that are stored, oldest turn
// first, then new ones.
type live struct {
	*synthetic
	stored []Stored
	keys   []string
	rest   []moment // when stored sessions ask next, in order
}

func newLive(sc *Scenario, f *Fleet) (*live, error) {
	l := &live{stored: slices.Clone(f.Sessions)}
	slices.SortStableFunc(l.stored, func(a, b Stored) int {
		return cmp.Or(cmp.Compare(b.Idle, a.Idle), cmp.Compare(a.Hash, b.Hash))
	})
	names, err := newStandIns(sc.Policy.Ring)
	if err != nil {
		return nil, err
	}
	for i := range l.stored {
		l.keys = append(l.keys, names.key(l.stored[i].Hash))
	}
	fresh := *sc
	fresh.Keys, fresh.Sessions = 0, int(newRate(l.stored)*(sc.Warmup+sc.Duration).Seconds())
	l.synthetic = newSynthetic(&fresh)
	for i := range l.stored {
		if at, again := l.resume(int32(i)); again {
			l.rest = append(l.rest, moment{at: -sc.Warmup + at, session: int32(i), turn: int32(l.stored[i].Turns), instance: arrival})
		}
	}
	slices.SortFunc(l.rest, func(a, b moment) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.session, b.session)) })
	return l, nil
}

// newRate is how many sessions began a second, over the last ten minutes, or as
// long as the fleet has sessions, and at least one.
func newRate(stored []Stored) float64 {
	window, n := time.Minute, 0
	for i := range stored {
		window = max(window, min(stored[i].Age, 10*time.Minute))
	}
	for i := range stored {
		if stored[i].Age <= window {
			n++
		}
	}
	return float64(n) / window.Seconds()
}

// resume is when a stored session asks next. A thought is memoryless, so only
// whether there is one depends on how long it has been idle.
func (l *live) resume(s int32) (time.Duration, bool) {
	goesOn := (1 - 1.0/meanTurns) * math.Exp(-l.stored[s].Idle.Seconds()/meanThought.Seconds())
	if !l.stored[s].Live || l.draw(s, 0, drawEnd) >= goesOn/(goesOn+1.0/meanTurns) {
		return 0, false
	}
	return time.Duration(-math.Log(1-l.draw(s, 0, drawThought)) * float64(meanThought)), true
}

// again is the same workload from its beginning.
func (l *live) again() workload {
	fresh, copied := *l.synthetic, *l
	copied.synthetic = &fresh
	return &copied
}

func (l *live) sessions() int { return len(l.stored) + l.synthetic.sessions() }

func (l *live) key(s int32) string {
	if int(s) < len(l.stored) {
		return l.keys[s]
	}
	return l.synthetic.key(s - int32(len(l.stored)))
}

func (l *live) next() (moment, bool) {
	fresh := *l.synthetic // to look at its next arrival without taking it
	m, more := fresh.next()
	if len(l.rest) > 0 && (!more || l.rest[0].at <= m.at) {
		m, l.rest = l.rest[0], l.rest[1:]
		return m, true
	}
	*l.synthetic = fresh
	m.session += int32(len(l.stored))
	return m, more
}

func (l *live) think(s, turn int32) (time.Duration, bool) {
	if int(s) >= len(l.stored) {
		return l.synthetic.think(s-int32(len(l.stored)), turn)
	}
	return think(l.seed, s, turn, 1)
}

// turn of a stored session has the prompt that its tokens make, and a block more
// with every turn that is played.
func (l *live) turn(s, n int32, scratch []uint64) turn {
	if int(s) >= len(l.stored) {
		return l.synthetic.turn(s-int32(len(l.stored)), n, scratch)
	}
	st := &l.stored[s]
	held := (st.Tokens + blockTokens - 1) / blockTokens
	t := l.synthetic.turn(s, n, scratch)
	t.blocks = append(t.blocks[:0], 0)
	for i := range held + max(0, int(n)-st.Turns) {
		t.blocks = append(t.blocks, 1<<62|uint64(s+1)<<32|uint64(i+1))
	}
	t.seen = max(1, len(t.blocks)-1)
	return t
}

func (l *live) demand(w *Worker) float64 {
	asking := float64(len(l.rest)) / meanThought.Seconds()
	return l.synthetic.demand(w) + asking*(meanAnswer/w.DecodeTPS+blockTokens/w.PrefillTPS)
}

// place puts the stored sessions where they are, with their prompts in the
// caches, the longest idle first.
func (l *live) place(e *engine) {
	for i := range l.stored {
		st := &l.stored[i]
		at, known := e.index[st.Owner]
		if !known {
			continue
		}
		s := &e.sessions[i]
		s.owner, s.last, s.boot, s.turns = at, at, e.fleet[at].boot, int32(st.Turns)
		s.bound, s.touched = e.now-st.Bound, e.now-st.Idle
		if !st.Live {
			s.touched = e.now - e.sc.Affinity
			continue
		}
		t := l.turn(int32(i), s.turns, e.blocks)
		e.blocks = t.blocks[:0]
		e.fleet[at].cache.Serve(t.blocks)
	}
}

// standIns find keys that a ring treats like those of which only the hash is
// known: a key's place and its walk depend on its slot and on nothing else
// (TestStandInsWalkAlike).
type standIns struct {
	shift uint
	names []string // by slot
}

func newStandIns(o routing.RingOptions) (*standIns, error) {
	ring, err := routing.NewRing(o, nil)
	if err != nil {
		return nil, err
	}
	slots := ring.Options().Slots
	s := &standIns{shift: uint(64 - math.Ilogb(float64(slots))), names: make([]string, slots)}
	for i, missing := 0, slots; missing > 0; i++ {
		name := "stored-" + strconv.Itoa(i)
		if slot := xxhash.Sum64String(name) >> s.shift; s.names[slot] == "" {
			s.names[slot] = name
			missing--
		}
	}
	return s, nil
}

func (s *standIns) key(hash uint64) string { return s.names[hash>>s.shift] }

// rejoin takes an instance over from a live fleet.
func (e *engine) rejoin(r *Replica) {
	in := &instance{id: r.ID, zone: r.Zone, weight: r.Weight, room: cmp.Or(r.MaxRunning, max(1, e.sc.Worker.MaxRunning*r.Weight/100))}
	e.enter(in, false)
	in.health.percent = cmp.Or(r.RampPercent, 100)
	if in.state = r.State; in.state == routing.Draining {
		in.state = routing.Cordoned // its job is not played: it keeps what it has
	}
	switch in.state {
	case routing.Suspect:
		in.health.verdict = routing.HealthSuspect
	case routing.Warming:
		in.state, in.health.percent = routing.Ready, routing.RampQueued
	case routing.Unknown, routing.Drained, routing.Down:
		in.alive, in.health.verdict = false, routing.HealthDown
	}
}
