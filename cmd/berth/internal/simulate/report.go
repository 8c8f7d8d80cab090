package simulate

import (
	"maps"
	"slices"
	"time"

	"berth/cmd/berth/internal/figures"
)

// Report is what a scenario does under Berth, and under other policies where
// they were asked for. Rates and shares are 0 to 1. Its last members are Berth's
// own figures.
type Report struct {
	Sessions  int    `json:"sessions"`
	Instances int    `json:"instances"`
	Duration  string `json:"duration"`
	Warmup    string `json:"warmup"`
	Workload  string `json:"workload"`
	// Others are the policies it was compared with.
	Others []Outcome `json:"compared,omitempty"`
	Outcome
}

// Outcome is how one policy did. The package comment defines the figures.
type Outcome struct {
	Policy           string   `json:"policy"`
	Turns            int      `json:"turns"`
	IdealHitRate     float64  `json:"ideal_hit_rate"`
	RecomputedTokens int      `json:"recomputed_tokens"`
	PrewarmedTokens  int      `json:"prewarmed_tokens"`
	LiveJumps        int      `json:"live_jumps"`
	JumpsOfNoEvent   int      `json:"live_jumps_of_no_event"` // loads as they are made them, and policies without memory
	FailedTries      int      `json:"failed_tries"`
	Refused          int      `json:"refused"`
	MovedEarly       int      `json:"sessions_moved_within_min_stick"`
	MeanTTFTMS       int64    `json:"mean_ttft_ms"`
	P99TTFTMS        int64    `json:"p99_ttft_ms"`
	MostWaiting      int      `json:"most_waiting"`
	PeakMaxMean      float64  `json:"peak_max_mean_load"`
	PeakAt           string   `json:"peak_at"`
	Series           []Sample `json:"series"`

	Events     []Effect `json:"events"`
	MaxMean    float64  `json:"max_mean_load"`
	StdDevMean float64  `json:"stddev_mean_load"`
	HitRate    float64  `json:"hit_rate"`
	JumpRate   float64  `json:"jump_rate"`

	computedTokens, answeredTokens int
}

// Effect is what one event did, and how the pool fared until the next.
type Effect struct {
	At        string   `json:"at"`
	Kind      Kind     `json:"kind"`
	Event     string   `json:"event"` // as it was written
	Instances []string `json:"instances,omitempty"`
	// Bound are the sessions with affinity that the instances held.
	Bound         int     `json:"bound_sessions"`
	MovedSessions int     `json:"moved_sessions"`
	LiveJumps     int     `json:"live_jumps"`
	MovedShare    float64 `json:"moved_share"`

	Why  map[string]int `json:"why,omitempty"`  // live jumps by reason
	From map[string]int `json:"from,omitempty"` // live jumps by the instance they left
	To   map[string]int `json:"to,omitempty"`   // and by the one they came to

	// Until the next event; those of one second share it.
	NewSessions int     `json:"new_sessions"`
	HitRate     float64 `json:"hit_rate"`

	RecomputedTokens int    `json:"recomputed_tokens"`
	PrewarmedTokens  int    `json:"prewarmed_tokens"`
	FailedTries      int    `json:"failed_tries"`
	SafeAfterMS      int64  `json:"safe_to_stop_after_ms,omitempty"` // of a drain that ended
	Ramp             []Step `json:"ramp,omitempty"`
}

// Sample is a stretch of the run.
type Sample struct {
	AtS        float64 `json:"at_s"`
	MaxMean    float64 `json:"max_mean_load"`
	StdDevMean float64 `json:"stddev_mean_load"`
	HitRate    float64 `json:"hit_rate"`
	Jumps      int     `json:"jumps"`
	LiveJumps  int     `json:"live_jumps"`
	New        int     `json:"new_sessions"`
	Recomputed int     `json:"recomputed_tokens"`
	Waiting    int     `json:"waiting"`
}

func newSample(at time.Duration, most, deviation float64, s *sums, waiting int) Sample {
	return Sample{
		AtS: at.Seconds(), MaxMean: figures.Round(most), StdDevMean: figures.Round(deviation),
		HitRate: figures.Ratio(s.Hits, s.Blocks), Jumps: s.Jumps, LiveJumps: s.LiveJumps, New: s.New,
		Recomputed: s.recomputed(), Waiting: waiting,
	}
}

func (b *books) outcome(policy string) Outcome {
	t := &b.total
	most, deviation := spread(b.loads)
	o := Outcome{
		Policy: policy, Turns: t.Turns,
		IdealHitRate: figures.Ratio(t.Ideal, t.Blocks), RecomputedTokens: t.recomputed(), PrewarmedTokens: b.prewarm * blockTokens,
		LiveJumps: t.LiveJumps, JumpsOfNoEvent: b.accounts[0].jumps, FailedTries: t.Failed, Refused: t.Refused, MovedEarly: b.early,
		MeanTTFTMS: b.ttft.mean().Milliseconds(), P99TTFTMS: b.ttft.quantile(0.99).Milliseconds(), MostWaiting: b.waitingMost,
		PeakMaxMean: figures.Round(b.peak), PeakAt: b.peakAt.String(), Series: b.samples,
		Events: []Effect{}, computedTokens: (t.Blocks - t.Hits) * blockTokens, answeredTokens: b.answered,
		MaxMean: figures.Round(most), StdDevMean: figures.Round(deviation),
		HitRate: figures.Ratio(t.Hits, t.Blocks), JumpRate: figures.Ratio(t.Jumps, t.Continued),
	}
	for i := range b.accounts[1:] {
		o.Events = append(o.Events, b.effect(cause(i+1)))
	}
	return o
}

func (b *books) effect(c cause) Effect {
	a := &b.accounts[c]
	ev := &b.sc.Events[a.event]
	return Effect{
		At: ev.At.String(), Kind: ev.Kind, Event: ev.String(), Instances: a.who,
		Bound: a.bound, MovedSessions: a.moved, LiveJumps: a.jumps, MovedShare: figures.Round(b.space.share(c)),
		Why: a.reasons, From: a.from, To: a.to,
		NewSessions: a.stretch.New, HitRate: figures.Ratio(a.stretch.Hits, a.stretch.Blocks), RecomputedTokens: a.again * blockTokens,
		PrewarmedTokens: a.prewarm * blockTokens, FailedTries: a.failed, SafeAfterMS: a.drained.Milliseconds(), Ramp: a.steps,
	}
}

// mostOf names the largest of some counts, ties by name.
func mostOf(counts map[string]int) (name string, n int) {
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		if counts[k] > n {
			name, n = k, counts[k]
		}
	}
	return name, n
}
