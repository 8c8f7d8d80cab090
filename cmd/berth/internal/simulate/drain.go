package simulate

import (
	"cmp"
	"slices"
	"time"

	"berth/migrations"
	"berth/routing"
)

// drain moves the sessions of one instance at the scenario's pace, the longest
// idle first; one that is in flight waits.
type drain struct {
	in      *instance
	cause   cause
	queue   []int32
	allowed float64 // sessions that may go by now and did not

	empty bool          // nobody is bound to it any more
	since time.Duration // when that began
	beats int           // heartbeats at rest since the last hint that names it was over
}

// beginDrain lets nobody new in. Without Berth there is nobody to move
// sessions: the instance leaves, after the turns that it serves.
func (e *engine) beginDrain(in *instance, c cause) {
	in.state = routing.Draining
	if !e.pol.binds() {
		in.state = routing.Drained
		e.books.displace(e, in, c)
	}
	d := &drain{in: in, cause: c}
	if e.pol.binds() {
		for i := range e.sessions {
			if s := &e.sessions[i]; s.owner == in.index && s.live(e) {
				d.queue = append(d.queue, int32(i))
			}
		}
		slices.SortFunc(d.queue, func(a, b int32) int {
			x, y := &e.sessions[a], &e.sessions[b]
			if x.touched != y.touched {
				return cmp.Compare(x.touched, y.touched)
			}
			return cmp.Compare(a, b)
		})
	}
	e.drains = append(e.drains, d)
}

// drain lets every drain go on for a second, and reports whether one ended.
func (e *engine) drain() (ended bool) {
	if len(e.drains) == 0 {
		return false
	}
	sources := make([]string, len(e.drains))
	for i, d := range e.drains {
		sources[i] = d.in.id
	}
	plan := &placing{tally: routing.NewTally(e.snap, sources...), parts: make(map[string]float64)}
	e.drains = slices.DeleteFunc(e.drains, func(d *drain) bool {
		if !d.in.alive {
			return true // killed in the middle
		}
		e.drainSome(d, plan)
		if !e.safe(d) {
			return false
		}
		d.in.state, d.in.alive = routing.Drained, false
		d.in.cache.Clear()
		a := &e.books.accounts[d.cause]
		a.drained = e.now - e.sc.Events[a.event].At
		ended = true
		return true
	})
	return ended
}

// safe reports whether an instance may be stopped, in the order of package migrations:
// nobody is bound to it, old hints are over, and then two heartbeats say that nothing
// runs; who sends none gets the in-flight grace. Without Berth there is nobody who waits for more than the turns under way.
func (e *engine) safe(d *drain) bool {
	resting := len(d.queue) == 0 && d.in.running+len(d.in.waiting) == 0
	switch {
	case !e.pol.binds():
		return resting
	case len(d.queue) > 0:
		d.empty = false
		return false
	case !d.empty:
		d.empty, d.since = true, e.now
	}
	unhinted := e.now - d.since - migrations.DefaultLongestHint
	if e.sc.Move.Workers == Silent {
		return unhinted >= e.sc.Move.Grace
	}
	if unhinted < 0 || e.clock()%heartbeatEvery != 0 {
		return false
	}
	if d.beats++; !resting {
		d.beats = 0
	}
	return d.beats >= 2
}

func (e *engine) drainSome(d *drain, plan *placing) {
	d.allowed = min(d.allowed+e.sc.Move.SessionsPerS, max(1, 2*e.sc.Move.SessionsPerS))
	share := float64(d.in.running+len(d.in.waiting)) / float64(max(1, len(d.queue)))
	rest := d.queue[:0]
	for _, i := range d.queue {
		s := &e.sessions[i]
		switch {
		case s.owner != d.in.index || !s.live(e):
			continue // left by itself, or lapsed: there is nothing to move
		case e.inFlight(s, d.in) || d.allowed < 1:
			rest = append(rest, i)
			continue
		}
		target := plan.place(e.load.key(i), share)
		if target == "" {
			rest = append(rest, i)
			continue
		}
		d.allowed--
		e.move(i, e.fleet[e.index[target]], d)
	}
	d.queue = rest
}

// inFlight reports whether a drain waits for a session. Only a worker that pulls
// tasks tells when its turn has ended; else a session is left in peace for the grace
// after its last turn, unless a heartbeat says that nothing runs. A longer turn of a
// session that was quiet before is not seen, and the session moves under it.
func (e *engine) inFlight(s *session, in *instance) bool {
	switch e.sc.Move.Workers {
	case Passive:
		return e.now-s.touched < e.sc.Move.Grace && in.running+len(in.waiting) > 0
	case Silent:
		return e.now-s.touched < e.sc.Move.Grace
	}
	return s.flying > 0
}

// move is a job's commit, with a prewarm ahead of it where one pays.
func (e *engine) move(i int32, to *instance, d *drain) {
	s, computed := &e.sessions[i], 0
	if e.sc.Move.Workers == Cooperative && e.now-s.touched < e.sc.Move.IdleBelow {
		t := e.load.turn(i, s.turns, e.blocks)
		e.blocks = t.blocks[:0]
		computed = to.cache.Prewarm(t.blocks[:t.seen])
	}
	e.books.moved(s, d.cause, computed)
	// The affinity goes on from the last turn.
	s.owner, s.boot, s.bound = to.index, to.boot, e.now
}

// placing spreads the moves of one second, each counted with the load that it
// brings along.
type placing struct {
	tally *routing.Tally
	parts map[string]float64
}

func (p *placing) place(key string, load float64) string {
	target, ok := p.tally.Place(key, 0, nil)
	if !ok {
		return ""
	}
	id := target.Instance.ID
	p.parts[id] += load
	if whole := int(p.parts[id]); whole > 0 {
		p.parts[id] -= float64(whole)
		_ = p.tally.Add(id, whole) // the tally named it itself
	}
	return id
}
