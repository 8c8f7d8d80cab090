package simulate

import (
	"context"
	"fmt"
	"time"

	"berth/cmd/berth/internal/trace"
)

// Run plays a scenario with a synthetic population under the named policies,
// Berth first.
func Run(ctx context.Context, sc Scenario, others []string, tell func(policy string, done, of int)) (*Report, error) {
	what := fmt.Sprintf("%d synthetic sessions", sc.Sessions)
	return run(ctx, &sc, what, func() workload { return newSynthetic(&sc) }, others, tell)
}

// RunTrace plays a scenario with the turns of a trace, at the times they have
// there, and without a warm-up.
func RunTrace(ctx context.Context, sc Scenario, t trace.Trace, others []string, tell func(policy string, done, of int)) (*Report, error) {
	sc.Warmup, sc.Sessions = 0, t.Sessions
	what := fmt.Sprintf("%d sessions of a trace", sc.Sessions)
	return run(ctx, &sc, what, func() workload { return newRecorded(t) }, others, tell)
}

// TraceDuration is how long a trace has to be played until its last answers.
func TraceDuration(t trace.Trace) time.Duration {
	last := t.Turns[len(t.Turns)-1].At
	return last.Truncate(time.Second) + time.Minute
}

func run(ctx context.Context, sc *Scenario, what string, load func() workload, others []string, tell func(string, int, int)) (*Report, error) {
	if err := sc.Validate(); err != nil {
		return nil, err
	}
	if sc.Worker.MaxRunning == 0 {
		sc.Worker.MaxRunning = roomy(sc, load())
	}
	r := &Report{Workload: what, Instances: sc.Instances, Sessions: sc.Sessions, Duration: sc.Duration.String(), Warmup: sc.Warmup.String()}
	for _, name := range append([]string{Berth}, others...) {
		books, err := play(ctx, sc, load(), newPlacer(name), func(done, of int) { tell(name, done, of) })
		if err != nil {
			return nil, fmt.Errorf("simulate %s: %w", name, err)
		}
		if o := books.outcome(name); name == Berth {
			r.Outcome = o
		} else {
			r.Others = append(r.Others, o)
		}
	}
	return r, nil
}

// roomy is what an instance of weight 100 has to run at once for the pool to be
// three fifths full of the workload, evenly spread, with what hot sets bring on
// top; at least 16.
func roomy(sc *Scenario, load workload) int {
	capacity, demand := 0.0, load.demand(&sc.Worker)
	for i := range sc.Instances {
		capacity += float64(sc.weight(i)) / 100
	}
	for _, e := range sc.Events {
		if e.Kind == Hot {
			demand /= 1 - e.Load // each brings its part of everything up to then
		}
	}
	return max(16, int(demand/max(capacity, 0.01)/0.6)+1)
}
