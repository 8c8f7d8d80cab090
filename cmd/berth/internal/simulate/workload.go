package simulate

import (
	"math"
	"strconv"
	"time"

	"berth/cmd/berth/internal/trace"
)

// workload is who asks what and when, independent of how it is routed: the
// draws of one session are the same under every policy.
type workload interface {
	// sessions is their number; they are counted from 0.
	sessions() int
	// key is the affinity key of a session.
	key(session int32) string
	// shares reports whether several sessions may have one key.
	shares() bool
	// next yields the arrivals from outside, in order of time: the first turns of
	// sessions that go on by themselves, or every turn of a recorded trace.
	next() (moment, bool)
	// think is how long a session takes to ask again after a turn; false at its
	// end, and where every arrival comes from outside.
	think(session, turn int32) (time.Duration, bool)
	// turn describes a turn; its blocks may live in the scratch space.
	turn(session, turn int32, scratch []uint64) turn
	// demand is about how many requests are in flight on average.
	demand(w *Worker) float64
}

// turn is what an instance has to do.
type turn struct {
	blocks []uint64 // the prompt
	seen   int      // leading ones that were computed before, somewhere
	output int      // tokens of the answer
}

// The synthetic population. A session asks four times on average, thinks a
// minute on average between answer and question, and each turn adds a block to
// its prompt; answers are about 250 tokens. Turns and thoughts are drawn from
// memoryless distributions.
const (
	meanTurns   = 4
	meanThought = time.Minute
	firstBlocks = 2
	mostBlocks  = 64
	meanAnswer  = 250
	mostTurns   = 10_000
)

// synthetic is a population that begins at an even rate, and goes on as it is
// served.
type synthetic struct {
	seed   uint64
	begin  time.Duration
	span   time.Duration
	keys   []string
	shared bool      // several sessions have one
	active []float32 // how much more often than the average a session asks; nil: all alike
	begun  int
}

func newSynthetic(s *Scenario) *synthetic {
	p := &synthetic{seed: s.Seed, begin: -s.Warmup, span: s.Warmup + s.Duration, keys: make([]string, s.Sessions)}
	if s.Keys > 0 {
		p.shareKeys(s)
		return p
	}
	for i := range p.keys {
		p.keys[i] = "session-" + strconv.Itoa(i)
	}
	if s.Zipf > 0 {
		p.active = activity(s)
	}
	return p
}

// shareKeys gives sessions keys of the given popularity.
func (p *synthetic) shareKeys(s *Scenario) {
	p.shared = true
	names := make([]string, s.Keys)
	for i := range names {
		names[i] = "key-" + strconv.Itoa(i)
	}
	upTo := cumulated(s.Keys, s.Zipf)
	for i := range p.keys {
		p.keys[i] = names[pick(upTo, p.draw(int32(i), 0, drawKey))]
	}
}

// activity deals the ranks of a Zipf distribution out over the sessions. The
// mean is 1.
func activity(s *Scenario) []float32 {
	n := s.Sessions
	sum := 0.0
	for rank := 1; rank <= n; rank++ {
		sum += math.Pow(float64(rank), -s.Zipf)
	}
	list := make([]float32, n)
	for i := range list {
		rank := 1 + int(mix(s.Seed^uint64(i)*0x9e3779b97f4a7c15)%uint64(n))
		list[i] = float32(math.Pow(float64(rank), -s.Zipf) * float64(n) / sum)
	}
	return list
}

// cumulated are the sums of the first n terms of a Zipf distribution.
func cumulated(n int, exponent float64) []float64 {
	upTo, sum := make([]float64, n), 0.0
	for i := range upTo {
		sum += math.Pow(float64(i+1), -exponent)
		upTo[i] = sum
	}
	return upTo
}

// pick finds where a draw of 0 to 1 falls.
func pick(upTo []float64, u float64) int {
	u *= upTo[len(upTo)-1]
	low, high := 0, len(upTo)-1
	for low < high {
		middle := (low + high) / 2
		if upTo[middle] < u {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func (p *synthetic) sessions() int        { return len(p.keys) }
func (p *synthetic) key(s int32) string   { return p.keys[s] }
func (p *synthetic) shares() bool         { return p.shared }
func (p *synthetic) busy(s int32) float64 { return busy(p.active, s) }

func busy(active []float32, s int32) float64 {
	if active == nil {
		return 1
	}
	return float64(active[s])
}

func (p *synthetic) next() (moment, bool) {
	if p.begun == len(p.keys) {
		return moment{}, false
	}
	s := int32(p.begun)
	p.begun++
	at := p.begin + time.Duration((float64(s)+p.draw(s, 0, drawBegin))/float64(len(p.keys))*float64(p.span))
	return moment{at: at, session: s, instance: arrival}, true
}

func (p *synthetic) think(s, turn int32) (time.Duration, bool) {
	return think(p.seed, s, turn, p.busy(s))
}

// think draws whether a session that asks so much more often than the average
// goes on after a turn, and when.
func think(seed uint64, s, turn int32, more float64) (time.Duration, bool) {
	turns := meanTurns * max(more, 1.0/meanTurns) // everybody asks once
	if turn+1 >= mostTurns || draw(seed, s, turn, drawEnd) < 1/turns {
		return 0, false
	}
	pause := -math.Log(1-draw(seed, s, turn, drawThought)) * float64(meanThought) / max(1, more)
	return time.Duration(pause), true
}

func (p *synthetic) turn(s, n int32, scratch []uint64) turn {
	t := turn{blocks: scratch[:0]}
	length := min(firstBlocks+int(n), mostBlocks)
	t.blocks = append(t.blocks, 0) // the system prompt of the service
	for i := 1; i < length; i++ {
		t.blocks = append(t.blocks, uint64(s+1)<<16|uint64(i))
	}
	if t.seen = 1; n > 0 {
		t.seen = min(length, firstBlocks+int(n)-1)
	}
	t.output = 16 + int(-math.Log(1-p.draw(s, n, drawAnswer))*(meanAnswer-16))
	return t
}

func (p *synthetic) demand(w *Worker) float64 {
	turns := float64(len(p.keys)) * meanTurns / p.span.Seconds()
	return turns * (meanAnswer/w.DecodeTPS + blockTokens/w.PrefillTPS)
}

// What is drawn for a turn.
const (
	drawBegin = iota
	drawKey
	drawEnd
	drawThought
	drawAnswer
)

func (p *synthetic) draw(session, turn int32, what uint64) float64 {
	return draw(p.seed, session, turn, what)
}

// draw is a number of 0 to below 1 that depends on nothing but its arguments.
func draw(seed uint64, session, turn int32, what uint64) float64 {
	x := mix(seed + mix(uint64(uint32(session))<<32|uint64(uint32(turn))<<3|what))
	return float64(x>>11) / (1 << 53)
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// recorded is a trace: turns come when they came, however they are served.
type recorded struct {
	trace  trace.Trace
	keys   []string
	first  [][]int32 // session → its turns in the trace
	handed int
}

func newRecorded(t trace.Trace) *recorded {
	r := &recorded{trace: t, keys: make([]string, t.Sessions), first: make([][]int32, t.Sessions)}
	for i := range t.Turns {
		turn := &t.Turns[i]
		r.keys[turn.Session] = turn.SessionID()
		r.first[turn.Session] = append(r.first[turn.Session], int32(i))
	}
	return r
}

func (r *recorded) sessions() int                            { return len(r.keys) }
func (r *recorded) key(s int32) string                       { return r.keys[s] }
func (r *recorded) shares() bool                             { return false }
func (r *recorded) think(int32, int32) (time.Duration, bool) { return 0, false }

func (r *recorded) next() (moment, bool) {
	if r.handed == len(r.trace.Turns) {
		return moment{}, false
	}
	t := &r.trace.Turns[r.handed]
	r.handed++
	return moment{at: t.At, session: int32(t.Session), turn: int32(t.N), instance: arrival}, true
}

// turn of a trace; a hot session that asks more than was recorded repeats its
// last turn.
func (r *recorded) turn(s, n int32, _ []uint64) turn {
	turns := r.first[s]
	t := &r.trace.Turns[turns[min(int(n), len(turns)-1)]]
	return turn{blocks: t.Blocks, seen: t.Seen, output: t.OutputTokens}
}

func (r *recorded) demand(w *Worker) float64 {
	busy := 0.0
	for i := range r.trace.Turns {
		t := &r.trace.Turns[i]
		busy += float64(t.OutputTokens)/w.DecodeTPS + float64((len(t.Blocks)-t.Seen)*blockTokens)/w.PrefillTPS
	}
	return busy / TraceDuration(r.trace).Seconds()
}
