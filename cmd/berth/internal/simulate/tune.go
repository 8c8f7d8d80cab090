package simulate

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/cmd/berth/internal/figures"
	"berth/routing"
)

// Knob is a setting that a search turns. Where no event of the given kinds is in a
// scenario it changes nothing, and its values are not played.
type Knob struct {
	Name   string
	Values []float64
	set    func(*Scenario, float64)
	get    func(*Scenario) float64
	kinds  []Kind // empty: it always matters
}

func (k *Knob) matters(s *Scenario) bool {
	ramping := func(r Replica) bool { return r.RampPercent != 0 && r.RampPercent != 100 || r.State == routing.Warming }
	return len(k.kinds) == 0 || slices.ContainsFunc(s.Events, func(e Event) bool { return slices.Contains(k.kinds, e.Kind) }) ||
		slices.ContainsFunc(s.Fleet, ramping)
}

// Knobs of which a value means none.
const (
	boundKnob = "bound %"
	churnKnob = "max churn %/min"
)

// knobs are turned in this order; durations are in seconds.
var knobs = []Knob{
	{
		Name: "ring points", Values: []float64{128, 256, 512, 1024},
		set: func(s *Scenario, v float64) { s.Policy.Ring.Points = int(v) },
		get: func(s *Scenario) float64 { return float64(s.Policy.Ring.Points) },
	}, {
		Name: boundKnob, Values: []float64{110, 125, 150, 200, noBound},
		set: func(s *Scenario, v float64) { s.Policy.Bound.Percent = int(v) },
		get: func(s *Scenario) float64 { return float64(s.Policy.Bound.Percent) },
	}, {
		Name: "max age s", Values: []float64{0, 300, 900},
		set: func(s *Scenario, v float64) { s.Policy.MaxAge = seconds(v) },
		get: func(s *Scenario) float64 { return s.Policy.MaxAge.Seconds() },
	}, {
		Name: "ramp s", Values: []float64{0, 30, 60, 180}, kinds: joins,
		set: func(s *Scenario, v float64) { s.Policy.Ramp.Over = seconds(v) },
		get: func(s *Scenario) float64 { return s.Policy.Ramp.Over.Seconds() },
	}, {
		Name: churnKnob, Values: []float64{0, 5, 10, 20}, kinds: joins,
		set: func(s *Scenario, v float64) { s.Policy.Ramp.MaxChurn = int(v) },
		get: func(s *Scenario) float64 { return float64(s.Policy.Ramp.MaxChurn) },
	}, {
		Name: "drain pace /s", Values: []float64{20, 50, 200, 1000}, kinds: []Kind{Drain},
		set: func(s *Scenario, v float64) { s.Move.SessionsPerS = v },
		get: func(s *Scenario) float64 { return s.Move.SessionsPerS },
	},
}

// joins are the events after which somebody ramps up: also one that was suspected
// or taken for dead, and then was not.
var joins = []Kind{Add, Recover, Weight, Slow}

// Tried is one value of a knob, with the others as they were best so far.
type Tried struct {
	Knob       string  `json:"knob"`
	Value      float64 `json:"value"`
	Chosen     bool    `json:"chosen"`
	Played     bool    `json:"played"` // false: no event depends on the knob, every value costs the same
	Cost       float64 `json:"cost"`
	Doubt      float64 `json:"cost_doubt"`  // Cost is right but for so much, with 95 %; 0 of one population: not known
	Gain       float64 `json:"gain"`        // what it costs less than the value that the knob had
	Needed     float64 `json:"gain_needed"` // it is chosen for more than this only
	MaxMean    float64 `json:"max_mean_load"`
	Peak       float64 `json:"peak_max_mean_load"`
	LiveJumps  int     `json:"live_jumps"`
	Recomputed int     `json:"recomputed_tokens"`
	Prewarmed  int     `json:"prewarmed_tokens"`
	MeanTTFTMS int64   `json:"mean_ttft_ms"`
	P99TTFTMS  int64   `json:"p99_ttft_ms"`

	costs []float64 // by population
}

// Kept is a knob of which a cheaper value was tried and not chosen.
type Kept struct {
	Knob    string  `json:"knob"`
	Value   float64 `json:"value"`
	Cheaper float64 `json:"cheaper"`
	Why     string  `json:"why"`
}

// Tuning is a search and what it recommends.
type Tuning struct {
	Tried       []Tried  `json:"tried"`
	Kept        []Kept   `json:"kept"`
	Populations int      `json:"populations"` // that every value was played with
	Recommended Scenario `json:"-"`
	Before      float64  `json:"cost_before"`
	After       float64  `json:"cost_after"`
}

// A value is chosen when its advantage over the present one is above half a
// percent and what 95 % of chance brings about over three populations: 4.3 times its
// standard error (Student's t for two degrees of freedom).
const (
	worthIt = 0.005
	chance  = 4.3
)

// Player plays a scenario for a search, several at a time.
type Player func(context.Context, Scenario) (*Report, error)

// tuner is a search under way.
type tuner struct {
	play Player
	tell func(done, of int)
	done int
	of   int
	lock sync.Mutex
	*Tuning
}

// Tune turns one knob after the other and keeps what costs least. A cost is
// seconds a turn: those an instance computes, prefill, prewarm and answer, times
// max/mean, because a pool is sized for its busiest instance; and those a user
// waits for the first token on average. Every value is played with so many
// populations.
func Tune(ctx context.Context, sc Scenario, populations int, play Player, tell func(done, of int)) (*Tuning, error) {
	t := &tuner{play: play, tell: tell, of: populations, Tuning: &Tuning{Recommended: sc, Populations: populations, Kept: []Kept{}}}
	for _, k := range knobs {
		if !k.matters(&sc) {
			continue
		}
		t.of += (len(withValue(k.Values, k.get(&sc))) - 1) * populations
	}
	best, err := t.measure(ctx, sc)
	if err != nil {
		return nil, err
	}
	t.Before = best.Cost
	for _, k := range knobs {
		if best, err = t.turn(ctx, k, best); err != nil {
			return nil, err
		}
	}
	t.After = best.Cost
	return t.Tuning, nil
}

// measure plays a scenario with every population, as many at a time as there are
// processors, and takes the means.
func (t *tuner) measure(ctx context.Context, sc Scenario) (Tried, error) {
	each := make([]Tried, t.Populations)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range each {
		group.Go(func() error {
			one := sc
			one.Seed += uint64(i)
			r, err := t.play(ctx, one)
			if err != nil {
				return err
			}
			each[i] = newTried(&one, r)
			t.lock.Lock()
			defer t.lock.Unlock()
			t.done++
			t.tell(t.done, t.of)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Tried{}, err
	}
	return mean(each), nil
}

func mean(each []Tried) (all Tried) {
	n := len(each)
	for _, x := range each {
		all.costs = append(all.costs, x.Cost)
		all.Cost += x.Cost / float64(n)
		all.MaxMean += x.MaxMean / float64(n)
		all.Peak += x.Peak / float64(n)
		all.LiveJumps += x.LiveJumps
		all.Recomputed += x.Recomputed
		all.Prewarmed += x.Prewarmed
		all.MeanTTFTMS += x.MeanTTFTMS
		all.P99TTFTMS += x.P99TTFTMS
	}
	all.LiveJumps, all.Recomputed, all.Prewarmed = all.LiveJumps/n, all.Recomputed/n, all.Prewarmed/n
	all.MeanTTFTMS, all.P99TTFTMS = all.MeanTTFTMS/int64(n), all.P99TTFTMS/int64(n)
	all.Cost = figures.Round(all.Cost)
	_, all.Doubt = average(all.costs)
	return all
}

// average is the mean of figures, and what 95 % of chance brings about in it; 0 of one.
func average(list []float64) (mean, doubt float64) {
	n, square := float64(len(list)), 0.0
	for _, x := range list {
		mean += x / n
		square += x * x / n
	}
	if n > 1 {
		doubt = chance * math.Sqrt(max(0, square-mean*mean)/(n-1))
	}
	return figures.Round(mean), figures.Round(doubt)
}

// turn tries a knob's values and keeps the best.
func (t *tuner) turn(ctx context.Context, k Knob, best Tried) (Tried, error) {
	present := k.get(&t.Recommended)
	chosen, winner := present, best
	first := len(t.Tried)
	for _, v := range withValue(k.Values, present) {
		tried := best
		matters := k.matters(&t.Recommended)
		if v != present && matters {
			sc := t.Recommended
			k.set(&sc, v)
			var err error
			if tried, err = t.measure(ctx, sc); err != nil {
				return Tried{}, fmt.Errorf("try %s %v: %w", k.Name, v, err)
			}
		}
		tried.Knob, tried.Value, tried.Chosen, tried.Played = k.Name, v, false, matters
		tried.weigh(&best)
		t.Tried = append(t.Tried, tried)
		if tried.Cost < winner.Cost && tried.Gain > tried.Needed {
			chosen, winner = v, tried
		}
	}
	for i := first; i < len(t.Tried); i++ {
		t.Tried[i].Chosen = t.Tried[i].Value == chosen
	}
	if kept := t.explain(t.Tried[first:], present); kept != nil {
		t.Kept = append(t.Kept, *kept)
	}
	k.set(&t.Recommended, chosen)
	return winner, nil
}

// weigh says what a value gains on the present one in the same populations, and how much
// more than that it would have to.
func (x *Tried) weigh(present *Tried) {
	gains := make([]float64, len(x.costs))
	for i := range gains {
		gains[i] = present.costs[i] - x.costs[i]
	}
	doubt := 0.0
	x.Gain, doubt = average(gains)
	x.Needed = max(doubt, leastGain(present.Cost))
}

func leastGain(cost float64) float64 { return figures.Round(worthIt * cost) }

// withValue puts the present value among the others, which are in order.
func withValue(values []float64, present float64) (list []float64) {
	for i, v := range values {
		if present < v && (i == 0 || present > values[i-1]) {
			list = append(list, present)
		}
		list = append(list, v)
	}
	if present > values[len(values)-1] {
		list = append(list, present)
	}
	return list
}

func newTried(sc *Scenario, r *Report) Tried {
	w := &sc.Worker
	computed := float64(r.computedTokens+r.PrewarmedTokens)/w.PrefillTPS + float64(r.answeredTokens)/w.DecodeTPS
	wait := (time.Duration(r.MeanTTFTMS) * time.Millisecond).Seconds()
	return Tried{
		Cost:    figures.Round(computed/float64(max(1, r.Turns))*r.MaxMean + wait),
		MaxMean: r.MaxMean, Peak: r.PeakMaxMean, LiveJumps: r.LiveJumps, Recomputed: r.RecomputedTokens, Prewarmed: r.PrewarmedTokens,
		MeanTTFTMS: r.MeanTTFTMS, P99TTFTMS: r.P99TTFTMS,
	}
}
