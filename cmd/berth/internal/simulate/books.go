package simulate

import (
	"math"
	"strconv"
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
	span     sums // since the last sample
	windows  []window
	samples  []Sample
	interval time.Duration
	next     time.Duration // when the next sample is due

	loads       []load // by instance, whole run
	spanned     []load // by instance, since the last sample
	prewarm     int    // blocks built ahead of a turn
	answered    int    // tokens of answers
	ttft        histogram
	early       int
	probe       []string // keys whose first choice is followed
	before      []string // their first choice when the present window opened
	watch       *rampWatch
	peak        float64
	peakAt      time.Duration
	waitingMost int
}

// load is an instance's requests in flight, summed over seconds, beside its
// fair share of everybody's.
type load struct{ own, fair float64 }

// window is from one event to the next.
type window struct {
	event   int // index in the scenario, -1 before the first
	who     []string
	sums    sums
	bound   int // sessions with affinity that the instances held
	moved   int
	reasons map[string]int
	from    map[string]int
	to      map[string]int
	share   float64 // of the key space whose first choice changed
	prewarm int
	drained time.Duration // until the last of its instances was safe to stop
	steps   []Step
}

func newBooks(sc *Scenario) *books {
	b := &books{sc: sc, interval: max(5*time.Second, (sc.Duration / 180).Round(time.Second))}
	b.next = b.interval
	b.windows = []window{newWindow(-1)}
	return b
}

func newWindow(event int) window {
	return window{event: event, reasons: map[string]int{}, from: map[string]int{}, to: map[string]int{}}
}

// window is the number of the present one.
func (b *books) window() int { return len(b.windows) - 1 }

func (b *books) present() *window { return &b.windows[len(b.windows)-1] }

// counts reports whether the warm-up is over.
func counts(e *engine) bool { return e.now >= 0 }

// open begins the window of an event.
func (b *books) open(e *engine, event int, who []*instance) {
	b.close(e)
	b.windows = append(b.windows, newWindow(event))
	w := b.present()
	held := make(map[int32]bool, len(who))
	for _, in := range who {
		w.who = append(w.who, in.id)
		held[in.index] = true
	}
	if len(held) == 0 {
		return
	}
	for i := range e.sessions {
		if s := &e.sessions[i]; s.owner != nobody && held[s.owner] && s.live(e) {
			w.bound++
		}
	}
}

// probesOf is how many keys stand for the key space, by instance.
const probesOf = 160

// close ends the present window: it compares the first choices of the probed
// keys with those at its beginning.
func (b *books) close(e *engine) {
	if b.probe == nil {
		for i := range probesOf * len(e.fleet) {
			b.probe = append(b.probe, "probe-"+strconv.Itoa(i))
		}
	}
	w := b.present()
	now, changed := make([]string, len(b.probe)), 0
	for i, key := range b.probe {
		now[i] = e.pol.owner(key)
		if b.before != nil && b.before[i] != now[i] {
			changed++
		}
	}
	w.share = float64(changed) / float64(len(b.probe))
	b.before, b.watch = now, nil
}

// newcomer begins to watch who begins on an instance that joins.
func (b *books) newcomer(in *instance) {
	if b.watch == nil {
		b.watch = &rampWatch{members: map[int32]bool{}}
	}
	b.watch.members[in.index] = true
	b.present().who = appendNew(b.present().who, in.id)
}

func appendNew(list []string, id string) []string {
	for _, x := range list {
		if x == id {
			return list
		}
	}
	return append(list, id)
}

// displace books that an instance takes the place of its sessions away.
func (b *books) displace(e *engine, in *instance) {
	w := b.present()
	for i := range e.sessions {
		if s := &e.sessions[i]; s.owner == in.index && s.live(e) {
			s.displaced = int16(len(b.windows))
			w.moved++
		}
	}
}

// placed books where a turn is served.
func (b *books) placed(e *engine, s *session, in *instance, reason routing.Reason, live bool) {
	first := s.last == nobody
	if counts(e) && first {
		b.watch.count(in)
	}
	jumped := !first && s.last != in.index
	window := b.window()
	if jumped && live && s.displaced > 0 {
		window = int(s.displaced) - 1
	}
	if counts(e) {
		for _, to := range []*sums{&b.total, &b.span, &b.windows[window].sums} {
			to.placed(first, jumped, jumped && live)
		}
	}
	if jumped && live && counts(e) {
		w := &b.windows[window]
		w.reasons[b.why(e, s, reason)]++
		w.from[e.fleet[s.last].id]++
		w.to[in.id]++
		if s.displaced == 0 && int(s.marked) != window+1 {
			s.marked = int16(window + 1)
			w.moved++
		}
	}
	s.displaced = 0
}

// why names the reason of a jump: what a drain moved is bound where it jumps to,
// and policies without memory give none.
func (b *books) why(e *engine, s *session, reason routing.Reason) string {
	if s.displaced > 0 {
		if kind := b.sc.Events[b.windows[s.displaced-1].event].Kind; kind == Drain || !e.pol.binds() {
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
func (b *books) moved(s *session, d *drain, prewarmed int) {
	b.windows[d.window].moved++
	b.windows[d.window].prewarm += prewarmed
	b.prewarm += prewarmed
	s.displaced = int16(d.window + 1)
}

// served books what a turn found in the cache and how long its user waited for
// the first token.
func (b *books) served(e *engine, t turn, hit kvsim.Hit, ttft time.Duration) {
	if !counts(e) {
		return
	}
	for _, to := range []*sums{&b.total, &b.span, &b.present().sums} {
		to.Blocks += len(t.blocks)
		to.Ideal += t.seen
		to.Hits += hit.Blocks
	}
	b.answered += t.output
	b.ttft.add(ttft)
}

func (b *books) failed(e *engine) {
	if counts(e) {
		b.total.Failed++
		b.span.Failed++
		b.present().sums.Failed++
	}
}

func (b *books) refused(e *engine) {
	if counts(e) {
		b.total.Refused++
		b.span.Refused++
		b.present().sums.Refused++
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
	b.watch.look(e, b.present())
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
	b.close(e)
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
