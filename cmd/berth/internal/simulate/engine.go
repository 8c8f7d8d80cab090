package simulate

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"berth/routing"
)

// session is what is known of a session while it is played.
type session struct {
	owner     int32 // who it is bound to, nobody where negative
	boot      int32 // of the owner when it was bound
	last      int32 // who served its newest turn
	turns     int32 // that were routed
	asked     int32 // 1 + the highest turn that began
	flying    int32 // turns under way
	displaced cause // what took its place away, until it is served elsewhere
	marked    cause // what it was last counted for as moved
	early     bool  // it moved once more before min_stick was over
	bound     time.Duration
	touched   time.Duration // last hint that bound it, or answer
}

const nobody = -1

// heat is how often a second a session asks on top of what it does, since an event.
type heat struct {
	rate float64
	by   cause
}

// engine plays one scenario under one policy.
type engine struct {
	sc    *Scenario
	load  workload
	pol   placer
	books *books
	queue *queue
	next  moment // the next arrival from outside
	more  bool

	now       time.Duration
	sessions  []session
	hot       map[int32]heat
	fleet     []*instance
	index     map[string]int32
	snap      *routing.Snapshot
	version   uint64
	drains    []*drain
	blocks    []uint64 // scratch
	excluded  []string // scratch
	trying    []string // scratch
	watch     *routing.Watch
	ramp      *routing.Ramp
	rampNext  time.Duration // its next step by time alone
	rampDirty bool          // the fleet changed since its last step
	reshaped  cause         // the newest event that changed the members or a weight
	anyTrial  bool          // some instance may have a trial to give
	arrived   int           // turns in the last whole minute and in the present one: what hot sessions are measured by
	arriving  int
}

// Progress is told how far a simulation has come, in seconds of virtual time.
type Progress func(done, of int)

// play runs the scenario to its end.
func play(ctx context.Context, sc *Scenario, load workload, pol placer, tell Progress) (*books, error) {
	e, err := newEngine(sc, load, pol)
	if err != nil {
		return nil, err
	}
	seconds := int((sc.Warmup + sc.Duration) / time.Second)
	for second := range seconds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e.now = time.Duration(second)*time.Second - sc.Warmup
		if err := e.tick(); err != nil {
			return nil, err
		}
		e.queue.open(second)
		e.admit(e.now + time.Second)
		for m, ok := e.queue.pop(); ok; m, ok = e.queue.pop() {
			e.now = m.at
			e.handle(m)
		}
		tell(second+1, seconds)
	}
	e.now = sc.Duration
	e.books.finish(e)
	return e.books, nil
}

func newEngine(sc *Scenario, load workload, pol placer) (*engine, error) {
	e := &engine{
		sc: sc, load: load, pol: pol, index: make(map[string]int32), hot: make(map[int32]heat),
		sessions: make([]session, load.sessions()),
		queue:    newQueue(-sc.Warmup, sc.Duration),
		books:    newBooks(sc),
		watch:    routing.NewWatch(routing.DefaultHealthPolicy()),
		ramp:     routing.NewRamp(sc.Policy.Ramp),
	}
	for i := range e.sessions {
		e.sessions[i].owner, e.sessions[i].last = nobody, nobody
	}
	e.next, e.more = load.next()
	e.now = -sc.Warmup
	for i := range sc.Fleet {
		e.rejoin(&sc.Fleet[i])
	}
	for i := range sc.Instances - len(sc.Fleet) {
		e.join(sc.weight(i), false)
	}
	if l, ok := load.(*live); ok {
		l.place(e)
	}
	return e, e.publish()
}

// publish builds the snapshot of the pool as Berth sees it and shows it to the
// policy.
func (e *engine) publish() error {
	e.version++
	spec := routing.Spec{Version: e.version, LoadVersion: e.version, Policy: e.sc.Policy}
	for _, in := range e.fleet {
		load := e.report(in)
		if e.snap != nil {
			if seen := e.snap.Lookup(in.id); seen != nil {
				load = seen.Load
			}
		}
		spec.Instances = append(spec.Instances, routing.Instance{
			ID: in.id, Incarnation: strconv.Itoa(int(in.boot)), Zone: in.zone, Weight: in.weight,
			RampPercent: in.health.percent, State: in.state, Breaker: in.health.breaker, Load: load,
		})
	}
	snap, err := routing.NewSnapshot(spec, e.snap)
	if err != nil {
		return err
	}
	e.snap = snap
	if err := e.pol.members(snap); err != nil {
		return err
	}
	e.books.space.follow(e)
	return nil
}

// publishLoads shows everybody the loads that instances report.
func (e *engine) publishLoads() {
	e.version++
	loads := make(map[string]routing.Load, len(e.fleet))
	for _, in := range e.fleet {
		if in.alive {
			loads[in.id] = e.report(in)
		}
	}
	e.snap = e.snap.WithLoads(routing.Loads{Version: e.version, LoadVersion: e.version, ByInstance: loads})
	e.pol.loads(e.snap)
}

// tick does what happens once a second, ahead of the second's requests: planned
// events, health, heartbeats, drains.
func (e *engine) tick() error {
	changed := false
	for i := range e.sc.Events {
		if ev := &e.sc.Events[i]; ev.At == e.now {
			if err := e.apply(i, ev); err != nil {
				return fmt.Errorf("event %s: %w", ev, err)
			}
			changed = true
		}
	}
	e.rampDirty = e.rampDirty || changed
	if e.observe() {
		changed, e.rampDirty = true, true
	}
	changed = e.drain() || changed
	if changed {
		if err := e.publish(); err != nil {
			return err
		}
	}
	e.publishLoads()
	if e.clock()%time.Minute == 0 {
		e.arrived, e.arriving = e.arriving, 0
	}
	e.books.sample(e)
	return nil
}

// admit takes the arrivals from outside up to a moment into the queue.
func (e *engine) admit(until time.Duration) {
	for e.more && e.next.at < until {
		if e.next.at >= e.now {
			e.queue.push(e.next)
		}
		e.next, e.more = e.load.next()
	}
}

func (e *engine) handle(m moment) {
	if m.instance != arrival {
		e.complete(m)
		return
	}
	if m.boot == hotTurn {
		m.turn = e.sessions[m.session].turns
		e.askAgain(m.session, e.hot[m.session].rate)
	}
	e.arriving++
	e.route(m)
}

// hotTurn marks, in the place of a boot, arrivals that a hot session brings.
const hotTurn = 1

func (e *engine) askAgain(s int32, rate float64) {
	u := float64(mix(uint64(s)<<32^uint64(e.now))>>11) / (1 << 53)
	e.queue.push(moment{
		at: e.now + time.Duration(-math.Log(1-u)/rate*float64(time.Second)), session: s, instance: arrival, boot: hotTurn,
	})
}

// route asks for an instance as a gateway does: one that does not answer is
// excluded, and the failure reported.
func (e *engine) route(m moment) {
	e.sessions[m.session].turns++
	e.excluded = e.excluded[:0]
	for {
		id, reason := e.pol.place(e, m.session, e.excluded)
		if id == "" {
			e.books.refused(e)
			return
		}
		in := e.fleet[e.index[id]]
		if in.alive {
			if m.boot == hotTurn {
				in.pressed = e.hot[m.session].by
			}
			e.serve(in, waiter{m, e.settle(m.session, in, reason)})
			return
		}
		e.books.failed(e, in)
		e.heard(in, routing.OutcomeConnect)
		e.excluded = append(e.excluded, id)
	}
}

// settle books where a session is served, binds it there and returns what is
// charged with it.
func (e *engine) settle(i int32, in *instance, reason routing.Reason) cause {
	s := &e.sessions[i]
	live := s.live(e)
	if live && s.owner != in.index && s.displaced == 0 && e.now-s.bound < e.sc.Policy.MinStick {
		s.early = true
	}
	c := e.books.placed(e, i, in, reason, live)
	if !e.pol.binds() || s.owner != in.index || s.boot != in.boot || !live {
		e.bind(s, in)
	}
	s.last = in.index
	return c
}

// bind makes an instance the owner.
func (e *engine) bind(s *session, in *instance) {
	s.owner, s.boot, s.bound, s.touched = in.index, in.boot, e.now, e.now
}

// live reports whether the session has affinity: it was served, and not too
// long ago.
func (s *session) live(e *engine) bool {
	return s.owner != nobody && (s.flying > 0 || e.now-s.touched < e.sc.Affinity)
}

// serve begins a turn, or lets it wait.
func (e *engine) serve(in *instance, m waiter) {
	e.sessions[m.session].flying++
	if in.running >= in.room {
		m.at = e.now
		in.waiting = append(in.waiting, m)
		return
	}
	e.begin(in, m, 0)
}

// begin computes a turn. Its prompt stays in the cache.
func (e *engine) begin(in *instance, m waiter, waited time.Duration) {
	t := e.load.turn(m.session, m.turn, e.blocks)
	e.blocks = t.blocks[:0]
	if s := &e.sessions[m.session]; m.turn < s.asked {
		t.seen = len(t.blocks) // asked for before: after a death, or by a hot session at once
	} else {
		s.asked = m.turn + 1
	}
	hit := in.cache.Serve(t.blocks)
	w := &e.sc.Worker
	prefill := seconds(float64((len(t.blocks)-hit.Blocks)*blockTokens) / w.PrefillTPS * in.slow)
	decode := seconds(float64(t.output) / w.DecodeTPS * in.slow)
	e.books.served(e, t, hit, waited+prefill, m.cause)
	in.running++
	m.at, m.instance, m.boot = e.now+prefill+decode, in.index, in.boot
	e.queue.push(m.moment)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// complete ends a turn, unless the instance died in the middle of it.
func (e *engine) complete(m moment) {
	in := e.fleet[m.instance]
	if in.boot != m.boot || !in.alive {
		return
	}
	in.running--
	e.heard(in, routing.OutcomeOK)
	s := &e.sessions[m.session]
	s.flying--
	s.touched = e.now
	if len(in.waiting) > 0 {
		first := in.waiting[0]
		in.waiting = in.waiting[1:]
		e.begin(in, first, e.now-first.at)
	}
	if e.hot[m.session].rate > 0 {
		return // asks by itself
	}
	if pause, again := e.load.think(m.session, m.turn); again {
		e.queue.push(moment{at: e.now + pause, session: m.session, turn: m.turn + 1, instance: arrival})
	}
}

// die ends an instance. What it was serving fails, and is asked for again.
func (e *engine) die(in *instance) {
	in.alive = false
	in.cache.Clear()
	lost := e.queue.take(func(m *moment) bool { return m.instance == in.index && m.boot == in.boot })
	for _, w := range in.waiting {
		lost = append(lost, w.moment)
	}
	for _, m := range lost {
		e.books.failed(e, in)
		s := &e.sessions[m.session]
		s.flying--
		s.turns--
		m.at, m.instance, m.boot = e.now, arrival, 0
		e.queue.push(m)
	}
	in.running, in.waiting = 0, nil
}
