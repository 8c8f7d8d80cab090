package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"berth/cmd/berth/internal/progress"
	"berth/cmd/berth/internal/simulate"
	"berth/services"
)

// tune prints the policy that the scenario asks for.
func (c *simulateCmd) tune(ctx context.Context, std *streams, input *simulation) error {
	populations := 3
	if input.trace != nil {
		populations = 1 // there is only the one
	}
	scenario := input.scenario
	if input.fleet != nil {
		scenario.Fleet = input.fleet.Replicas
	}
	bar := progress.New(std.err, "tuning", 0)
	tuned, err := simulate.Tune(ctx, scenario, populations, func(ctx context.Context, sc simulate.Scenario) (*simulate.Report, error) {
		one := *input
		one.scenario = sc
		return one.run(ctx, nil, func(string, int, int) {})
	}, func(done, of int) { bar.Set(done, of) })
	bar.Done()
	if err != nil {
		return err
	}
	r := &tuned.Recommended
	policy := policyOf(input.policy, r)
	if c.JSON {
		return printJSON(std, struct {
			*simulate.Tuning
			Policy services.PoolPolicy `json:"policy"`
			Pace   float64             `json:"drain_sessions_per_s"`
		}{tuned, policy, r.Move.SessionsPerS})
	}
	if err := tuned.WriteTable(std.out); err != nil {
		return err
	}
	doc, err := json.Marshal(policy)
	if err != nil {
		return fmt.Errorf("render the policy: %w", err)
	}
	_, err = fmt.Fprintf(std.out, "\nPUT /v1/pools/{pool}/policy\n%s\ndrains: \"pace\":{\"sessions_per_s\":%v}\n", doc, r.Move.SessionsPerS)
	return err
}

// policyOf is the document that puts what a scenario was played with: a document that
// was given to it, with everything that the scenario may have otherwise.
func policyOf(document services.PoolPolicy, sc *simulate.Scenario) services.PoolPolicy {
	p := sc.Policy
	ms := func(d time.Duration) *int64 { n := d.Milliseconds(); return &n }
	document.AffinityIdleMS, document.MinStickMS, document.MaxAgeMS = sc.Affinity.Milliseconds(), ms(p.MinStick), p.MaxAge.Milliseconds()
	document.Bound = &services.BoundPolicy{Percent: p.Bound.Percent, Gap: &p.Bound.Gap, Noise: &p.Bound.Noise}
	document.Ring = &services.RingPolicy{Points: p.Ring.Points, Slots: p.Ring.Slots, CapPercent: p.Ring.CapPercent}
	ramp := services.RampPolicy{}
	if document.Ramp != nil {
		ramp = *document.Ramp
	}
	ramp.OverMS, ramp.MaxChurnPercent = ms(p.Ramp.Over), &p.Ramp.MaxChurn
	document.Ramp = &ramp
	return document
}
