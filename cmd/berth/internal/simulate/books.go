package simulate

import (
	"math"
	"time"

	"berth/cmd/berth/internal/kvsim"
	"berth/cmd/berth/internal/trace"
	"berth/routing"
)

const blockTokens = trace.BlockTokens

// sums are counts over some span.
type sums struct {
	Turns, Continued    int // turns that began, and those that had a predecessor
	Jumps, LiveJumps    int // served elsewhere than the turn before; with affinity
	New                 int // first turns of sessions
	Blocks, Ideal, Hits int // prompt blocks: all, those seen before, those found in a cache
	Failed, Refused     int // tries that met a dead instance; turns nobody could serve
}

func (s *sums) recomputed() int { return max(0, s.Ideal-s.Hits) * blockTokens }

// books keep what a simulation shows. Nothing of the warm-up counts.
type books struct {
	sc       *Scenario
	total    sums
	span     sums      // since the last sample
	accounts []account // what each event is charged with; the first has what no event did
	since    *sums     // since the last event
	samples  []Sample
	interval time.Duration
	next     time.Duration // when the next sample is due

	loads       []load // by instance, whole run
	spanned     []load // by instance, since the last sample
	prewarm     int    // blocks built ahead of a turn
	answered    int    // tokens of answers
	ttft        histogram
	early       int
	space       keySpace
	peak        float64
	peakAt      time.Duration
	waitingMost int
}

// load is an instance's requests in flight, summed over seconds, beside its
// fair share of everybody's.
type load struct{ own, fair float64 }

func newBooks(sc *Scenario) *books {
	b := &books{sc: sc, interval: max(5*time.Second, (sc.Duration / 180).Round(time.Second))}
	b.next = b.interval
	b.since = new(sums)
	b.accounts = []account{newAccount(-1, b.since)}
	b.space = newKeySpace(sc.Instances)
	return b
}

// counts reports whether the warm-up is over.
func counts(e *engine) bool { return e.now >= 0 }

// placed books where a turn is served and returns what is to be charged with it.
func (b *books) placed(e *engine, i int32, in *instance, reason routing.Reason, live bool) cause {
	s := &e.sessions[i]
	first := s.last == nobody
	jumped := !first && s.last != in.index
	c := s.displaced
	if jumped && live && c == 0 {
		c = e.causeOfJump(i, in)
	}
	if !counts(e) {
		s.displaced = 0
		return c
	}
	if first {
		b.began(in)
	}
	for _, to := range []*sums{&b.total, &b.span, b.since} {
		to.placed(first, jumped, jumped && live)
	}
	if jumped && live {
		a := &b.accounts[c]
		a.reasons[b.why(e, s, reason)]++
		a.from[e.fleet[s.last].id]++
		a.to[in.id]++
		a.jumps++
		if s.displaced == 0 && s.marked != c {
			s.marked = c
			a.moved++
		}
	}
	s.displaced = 0
	return c
}

// why names the reason of a jump: what a drain moved is bound where it jumps to,
// and policies without memory give none.
func (b *books) why(e *engine, s *session, reason routing.Reason) string {
	if s.displaced > 0 {
		if kind := b.sc.Events[b.accounts[s.displaced].event].Kind; kind == Drain || !e.pol.binds() {
			return string(kind)
		}
	}
	if !e.pol.binds() {
		return "rehashed"
	}
	return reason.String()
}

func (s *sums) placed(first, jumped, live bool) {
	s.Turns++
	switch {
	case first:
		s.New++
	default:
		s.Continued++
	}
	if jumped {
		s.Jumps++
	}
	if live {
		s.LiveJumps++
	}
}

// moved books that a job moved a session, and how many blocks were computed for
// it ahead.
func (b *books) moved(s *session, c cause, prewarmed int) {
	b.accounts[c].moved++
	b.accounts[c].prewarm += prewarmed
	b.prewarm += prewarmed
	if s.displaced == 0 {
		s.displaced = c
	}
}

// served books what a turn found in the cache and how long its user waited for
// the first token.
func (b *books) served(e *engine, t turn, hit kvsim.Hit, ttft time.Duration, c cause) {
	if !counts(e) {
		return
	}
	for _, to := range []*sums{&b.total, &b.span, b.since} {
		to.Blocks += len(t.blocks)
		to.Ideal += t.seen
		to.Hits += hit.Blocks
	}
	b.accounts[c].again += max(0, t.seen-hit.Blocks)
	b.answered += t.output
	b.ttft.add(ttft)
}

// failed books a try that met an instance which is gone.
func (b *books) failed(e *engine, in *instance) {
	if counts(e) {
		b.total.Failed++
		b.span.Failed++
		b.accounts[in.lost].failed++
	}
}

func (b *books) refused(e *engine) {
	if counts(e) {
		b.total.Refused++
		b.span.Refused++
	}
}

// sample adds a second's loads, and ends a sample when one is due.
func (b *books) sample(e *engine) {
	if !counts(e) {
		return
	}
	for len(b.loads) < len(e.fleet) {
		b.loads, b.spanned = append(b.loads, load{}), append(b.spanned, load{})
	}
	all, weights, waiting := 0.0, 0.0, 0
	for _, in := range e.fleet {
		if in.measured() {
			all += float64(in.running + len(in.waiting))
			weights += in.effective()
			waiting += len(in.waiting)
		}
	}
	b.waitingMost = max(b.waitingMost, waiting)
	for i, in := range e.fleet {
		if !in.measured() || weights == 0 {
			continue
		}
		second := load{float64(in.running + len(in.waiting)), all * in.effective() / weights}
		b.loads[i].add(second)
		b.spanned[i].add(second)
	}
	for i := range b.accounts {
		b.accounts[i].watch.look(e, &b.accounts[i])
	}
	if e.now < b.next {
		return
	}
	b.next += b.interval
	most, deviation := spread(b.spanned)
	if most > b.peak {
		b.peak, b.peakAt = most, e.now
	}
	b.samples = append(b.samples, newSample(e.now, most, deviation, &b.span, waiting))
	b.span = sums{}
	clear(b.spanned)
}

func (l *load) add(o load) {
	l.own += o.own
	l.fair += o.fair
}

// measured reports whether an instance has a fair share. One that is being emptied
// has none.
func (in *instance) measured() bool { return in.alive && in.state != routing.Draining }

// effective is the weight in force. The ramp says nothing of who takes no new
// sessions: what such an instance still serves is measured by its whole weight.
func (in *instance) effective() float64 {
	if in.state.MayTakeNew() || in.state == routing.Suspect {
		return float64(in.weight) * float64(max(0, in.health.percent)) / 100
	}
	return float64(in.weight)
}

// spread is the highest load over its fair share, and how far they stray.
func spread(loads []load) (most, deviation float64) {
	n := 0
	for _, l := range loads {
		if l.fair == 0 {
			continue
		}
		ratio := l.own / l.fair
		most = max(most, ratio)
		deviation += (ratio - 1) * (ratio - 1)
		n++
	}
	if n == 0 {
		return 0, 0
	}
	return most, math.Sqrt(deviation / float64(n))
}

// finish closes the books.
func (b *books) finish(e *engine) {
	for i := range e.sessions {
		if e.sessions[i].early {
			b.early++
		}
	}
}

// histogram counts durations in steps of an eighth of their magnitude.
type histogram struct {
	counts [512]int
	n      int
	sum    time.Duration
}

func (h *histogram) add(d time.Duration) {
	at := 0
	if us := d.Microseconds(); us > 0 {
		at = int(math.Log2(float64(us)) * 8)
	}
	h.counts[min(at, len(h.counts)-1)]++
	h.n++
	h.sum += d
}

func (h *histogram) mean() time.Duration {
	return h.sum / time.Duration(max(1, h.n))
}

// quantile is where a part of the durations lies below.
func (h *histogram) quantile(q float64) time.Duration {
	seen, want := 0, int(q*float64(h.n))
	for at, n := range h.counts {
		if seen += n; seen > want {
			return time.Duration(math.Exp2((float64(at)+0.5)/8)) * time.Microsecond
		}
	}
	return 0
}
