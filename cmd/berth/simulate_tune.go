package main

import (
	"context"
	"encoding/json"
	"fmt"

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
	policy := input.policy
	r := &tuned.Recommended
	points, over, churn := r.Policy.Ring.Points, r.Policy.Ramp.Over.Milliseconds(), r.Policy.Ramp.MaxChurn
	if policy.Ring == nil {
		policy.Ring = new(services.RingPolicy)
	}
	policy.Ring.Points, policy.MaxAgeMS = points, r.Policy.MaxAge.Milliseconds()
	bound := r.Policy.Bound
	policy.Bound = &services.BoundPolicy{Percent: bound.Percent, Gap: &bound.Gap, Noise: &bound.Noise}
	if policy.Ramp == nil {
		policy.Ramp = new(services.RampPolicy)
	}
	policy.Ramp.OverMS, policy.Ramp.MaxChurnPercent = &over, &churn
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
