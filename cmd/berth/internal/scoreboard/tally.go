package scoreboard

import (
	"slices"
	"sync"

	"berth/cmd/berth/internal/figures"
	"berth/cmd/berth/internal/kvsim"
	"berth/cmd/berth/internal/trace"
)

// Tally keeps the books of one policy while it is played. It is safe for
// concurrent use; turns of one session must be told in their order.
type Tally struct {
	mu        sync.Mutex
	inService []string
	left      map[string]int // instance out of service → index in effects of the event
	effects   []Effect
	last      map[int]string // session → who served its newest turn
	warm      map[int]string // session → who was prewarmed for it since its last jump
	served    map[string]float64
	fair      map[string]float64
	sum       sums
}

// sums are counts over the whole play.
type sums struct {
	blocks, ideal, hits           int // prompt blocks
	prewarmed, used               int // blocks built ahead of a request
	continued, jumps, cold, avoid int // turns with a predecessor, and those that jumped
	lost, failed                  int
}

// NewTally returns the books of a policy that begins with these instances.
func NewTally(instances []string) *Tally {
	return &Tally{
		inService: slices.Clone(instances),
		left:      make(map[string]int),
		last:      make(map[int]string),
		warm:      make(map[int]string),
		served:    make(map[string]float64),
		fair:      make(map[string]float64),
	}
}

// Event notes that the fleet changes.
func (t *Tally) Event(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inService = e.apply(t.inService)
	effect := Effect{Event: e}
	if e.Kind != Join {
		t.left[e.Instance] = len(t.effects)
		for _, id := range t.last {
			if id == e.Instance {
				effect.Sessions++
			}
		}
	}
	t.effects = append(t.effects, effect)
}

// Prewarmed notes that an instance built the KV cache of a session ahead of the
// jump to it, and computed that many blocks for it.
func (t *Tally) Prewarmed(session int, instance string, blocks int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.warm[session] = instance
	t.sum.prewarmed += blocks
}

// Served notes who served a turn and what its cache held.
func (t *Tally) Served(turn trace.Turn, instance string, hit kvsim.Hit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.blocks += len(turn.Blocks)
	t.sum.ideal += turn.Seen
	t.sum.hits += hit.Blocks
	t.sum.used += hit.Prewarmed
	t.load(instance, float64(turn.InputTokens))
	previous, continued := t.last[turn.Session]
	switch {
	case !continued:
		t.began(instance)
	case previous != instance:
		t.sum.continued++
		t.jumped(previous, t.warm[turn.Session] == instance)
		delete(t.warm, turn.Session) // a turn still served by the source leaves the target's work in place
	default:
		t.sum.continued++
	}
	t.last[turn.Session] = instance
}

func (t *Tally) load(instance string, tokens float64) {
	t.served[instance] += tokens
	for _, id := range t.inService {
		t.fair[id] += tokens / float64(len(t.inService))
	}
}

// began credits a new session to the event that brought its instance.
func (t *Tally) began(instance string) {
	for i := range t.effects {
		if e := &t.effects[i]; e.Kind == Join && e.Instance == instance {
			e.Sessions++
		}
	}
}

// jumped books a jump to the event that made it necessary, or, when the
// instance was still in service, to the newest event.
func (t *Tally) jumped(from string, warm bool) {
	t.sum.jumps++
	if !warm {
		t.sum.cold++
	}
	if event, gone := t.left[from]; gone {
		t.effects[event].Moved++
		if warm {
			t.effects[event].Warm++
		}
		return
	}
	t.sum.avoid++
	if n := len(t.effects); n > 0 {
		t.effects[n-1].Reshuffled++
	}
}

// Failed notes a request that its user saw fail.
func (t *Tally) Failed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.failed++
}

// Lost notes turns that were acknowledged and cannot be had any more.
func (t *Tally) Lost(turns int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.lost += turns
}

// Policy returns the figures so far under a policy's name.
func (t *Tally) Policy(name string) Policy {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sum
	return Policy{
		Name:                name,
		HitRate:             figures.Ratio(s.hits, s.blocks),
		ShareOfIdeal:        figures.Ratio(s.hits, s.ideal),
		JumpRate:            figures.Ratio(s.jumps, s.continued),
		ColdJumpRate:        figures.Ratio(s.cold, s.continued),
		RecomputedTokens:    max(0, s.ideal-s.hits) * trace.BlockTokens,
		PrewarmedTokens:     s.prewarmed * trace.BlockTokens,
		PrewarmedTokensUsed: s.used * trace.BlockTokens,
		MaxMeanLoad:         t.worstLoad(),
		LostTurns:           s.lost,
		FailedRequests:      s.failed,
		AvoidableJumps:      s.avoid,
		Events:              slices.Clone(t.effects),
	}
}

func (t *Tally) worstLoad() (worst float64) {
	for id, fair := range t.fair {
		if fair > 0 {
			worst = max(worst, t.served[id]/fair)
		}
	}
	return figures.Round(worst)
}
