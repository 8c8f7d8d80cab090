package services

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"berth/routing"
	"berth/statestore"
)

// PoolPolicy is what an operator sets for one pool. Members that are absent keep
// their defaults.
type PoolPolicy struct {
	Models []string `json:"models,omitempty" doc:"model names that mean this pool"`

	AffinityIdleMS int64  `json:"affinity_idle_ms,omitempty" minimum:"1" maximum:"315360000000" doc:"idle time after which a binding lapses"`
	RetentionMS    int64  `json:"retention_ms,omitempty" minimum:"1" maximum:"315360000000" doc:"idle time after which a session ends; also the life of a handle"`
	MinStickMS     *int64 `json:"min_stick_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"a breaker moves no binding younger than this; 0: of any age"`
	MaxAgeMS       int64  `json:"max_age_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"a binding older than this leaves an owner over its bound; 0 is never"`

	Bound   *BoundPolicy   `json:"bound,omitempty"`
	Ring    *RingPolicy    `json:"ring,omitempty"`
	Breaker *BreakerPolicy `json:"breaker,omitempty"`
	Probe   *ProbePolicy   `json:"probe,omitempty"`
	Ramp    *RampPolicy    `json:"ramp,omitempty"`

	Rebalance *RebalancePolicy `json:"rebalance,omitempty"`

	Panic bool `json:"panic,omitempty" doc:"with nobody eligible, try one that may be alive"`
	Shed  bool `json:"shed,omitempty" doc:"with all over their bound, answer 429 to new sessions"`

	AllowNames bool `json:"allow_names,omitempty" doc:"instances may register host names instead of ip:port"`

	Durability       string `json:"durability,omitempty" enum:"memory,fsynced,replicated" doc:"what a write must reach; by default what the store gives"`
	DurabilityWaitMS int64  `json:"durability_wait_ms,omitempty" minimum:"1" maximum:"60000" doc:"how long a write waits for it"`
	OnShortfall      string `json:"on_shortfall,omitempty" enum:"refuse,accept" doc:"whether a write that does not reach it in time is refused (503 not_durable)"`
}

// BoundPolicy is the bound on an instance's load; see routing.Bound. Members that
// are absent keep their defaults.
type BoundPolicy struct {
	Percent int  `json:"percent,omitempty" minimum:"100" maximum:"10000" doc:"of the fair share; 10000 is as good as none"`
	Gap     *int `json:"gap,omitempty" minimum:"0" maximum:"1000000" doc:"requests above the fair share that are too few to matter"`
	Noise   *int `json:"noise,omitempty" minimum:"0" maximum:"1000" doc:"multiples of the root of the fair share that are chance"`
}

// RebalancePolicy is when a pool is rebalanced unasked: never, without one.
type RebalancePolicy struct {
	Mode    string `json:"mode" enum:"off,auto" doc:"auto relieves instances that stay over their bound"`
	AfterMS int64  `json:"after_ms,omitempty" minimum:"1000" maximum:"86400000" doc:"for how long they may be over it; default one minute"`
}

// RingPolicy is the shape of the ring; changing it moves new sessions.
type RingPolicy struct {
	Points     int `json:"points,omitempty" minimum:"1"`
	Slots      int `json:"slots,omitempty" minimum:"2"`
	CapPercent int `json:"cap_percent,omitempty" minimum:"0"`
}

// BreakerPolicy is when an instance's circuit breaker opens; see
// routing.BreakerPolicy. Members that are absent keep their defaults.
type BreakerPolicy struct {
	Failures         *int  `json:"failures,omitempty" minimum:"0" maximum:"1000" doc:"so many within window_ms open it; 0 is never"`
	WindowMS         int64 `json:"window_ms,omitempty" minimum:"1" maximum:"86400000"`
	OpenMS           int64 `json:"open_ms,omitempty" minimum:"1" maximum:"86400000" doc:"until the first trial"`
	MaxOpenMS        int64 `json:"max_open_ms,omitempty" minimum:"1" maximum:"86400000" doc:"the time open doubles up to this"`
	TrialMS          int64 `json:"trial_ms,omitempty" minimum:"1" maximum:"86400000" doc:"a trial without an outcome frees its slot after this"`
	Reports          *int  `json:"reports,omitempty" minimum:"0" maximum:"1000" doc:"so many saturated heartbeats in a row open it; 0 is never"`
	SaturatedPercent int   `json:"saturated_percent,omitempty" minimum:"1" maximum:"100"`
	CalmPercent      int   `json:"calm_percent,omitempty" minimum:"1" maximum:"100" doc:"saturated until it falls below this"`
}

// ProbePolicy is how instances are probed at the address that they registered; see
// routing.ProbePolicy. Members that are absent keep their defaults.
type ProbePolicy struct {
	On            bool   `json:"on,omitempty" doc:"all of the pool; otherwise only those whose registration asks"`
	Path          string `json:"path,omitempty" maxLength:"1024" doc:"by default /health"`
	EveryMS       int64  `json:"every_ms,omitempty" minimum:"100" maximum:"3600000"`
	JitterPercent *int   `json:"jitter_percent,omitempty" minimum:"0" maximum:"100"`
	TimeoutMS     int64  `json:"timeout_ms,omitempty" minimum:"1" maximum:"60000"`
	Fall          int    `json:"fall,omitempty" minimum:"1" maximum:"100" doc:"failed probes in a row until it is sick"`
	Rise          int    `json:"rise,omitempty" minimum:"1" maximum:"100" doc:"good ones until it is well"`
}

// RampPolicy is the pace at which new and returning instances take up new sessions;
// see routing.RampPolicy. Members that are absent keep their defaults.
type RampPolicy struct {
	OverMS          *int64 `json:"over_ms,omitempty" minimum:"0" maximum:"86400000" doc:"from the start to the whole weight; 0 is at once"`
	StartPercent    int    `json:"start_percent,omitempty" minimum:"1" maximum:"100" doc:"of its weight, which an instance begins with"`
	Steps           int    `json:"steps,omitempty" minimum:"1" maximum:"100"`
	MaxChurnPercent *int   `json:"max_churn_percent,omitempty" minimum:"0" maximum:"100" doc:"of the key space that joins may move in a minute; 0 is no limit"`
	OpeningMS       *int64 `json:"opening_ms,omitempty" minimum:"0" maximum:"86400000" doc:"how long after the first instance of a pool others join whole"`
}

// Defaults of a pool, from the API.
const (
	defaultAffinity       = 30 * time.Minute
	defaultRetention      = 24 * time.Hour
	tombstoneMargin       = time.Hour
	defaultDurabilityWait = time.Second
)

// poolPolicy is a policy in force.
type poolPolicy struct {
	PoolPolicy
	routing   routing.Policy
	lifetimes statestore.Lifetimes
	require   statestore.Requirement
	accept    bool // a shortfall of durability
}

// parsePolicy checks a stored or submitted document; nil is the default policy.
func parsePolicy(doc []byte) (*poolPolicy, error) {
	p := &poolPolicy{routing: routing.DefaultPolicy()}
	if len(doc) > 0 {
		if err := json.Unmarshal(doc, &p.PoolPolicy); err != nil {
			return nil, fmt.Errorf("policy: %w", err)
		}
	}
	p.applyRouting()
	if err := p.routing.Validate(); err != nil {
		return nil, invalid("body", err.Error())
	}
	p.lifetimes = statestore.Lifetimes{
		Affinity:  orMillis(p.AffinityIdleMS, defaultAffinity),
		Retention: orMillis(p.RetentionMS, defaultRetention),
	}
	p.lifetimes.Tombstone = p.lifetimes.Retention + tombstoneMargin
	if p.lifetimes.Affinity > p.lifetimes.Retention {
		return nil, invalid("body.affinity_idle_ms", "must not be longer than retention_ms")
	}
	levels := []string{"", "memory", "fsynced", "replicated"}
	level := slices.Index(levels, p.Durability)
	if level < 0 {
		return nil, invalid("body.durability", "must be memory, fsynced or replicated")
	}
	p.require = statestore.Requirement{
		Level: statestore.Level(level), //nolint:gosec // an index of four
		Wait:  orMillis(p.DurabilityWaitMS, defaultDurabilityWait),
	}
	p.accept = p.OnShortfall == "accept"
	return p, nil
}

func (p *poolPolicy) applyRouting() {
	r := &p.routing
	if g := p.Ring; g != nil {
		if g.Points > 0 {
			r.Ring.Points = g.Points
		}
		if g.Slots > 0 {
			r.Ring.Slots = g.Slots
		}
		r.Ring.CapPercent = g.CapPercent
	}
	r.MinStick = orSomeMillis(p.MinStickMS, r.MinStick)
	r.MaxAge = orMillis(p.MaxAgeMS, r.MaxAge)
	r.Panic, r.Shed = p.Panic, p.Shed
	r.Bound = p.Bound.over(r.Bound)
	r.Breaker, r.Probe, r.Ramp = p.Breaker.over(r.Breaker), p.Probe.over(r.Probe), p.Ramp.over(r.Ramp)
}

// over lays what is set over the defaults.
func (b *BoundPolicy) over(p routing.Bound) routing.Bound {
	if b == nil {
		return p
	}
	return routing.Bound{Percent: cmp.Or(b.Percent, p.Percent), Gap: orNumber(b.Gap, p.Gap), Noise: orNumber(b.Noise, p.Noise)}
}

// over lays what is set over the defaults.
func (b *BreakerPolicy) over(p routing.BreakerPolicy) routing.BreakerPolicy {
	if b == nil {
		return p
	}
	p.Failures, p.Reports = orNumber(b.Failures, p.Failures), orNumber(b.Reports, p.Reports)
	p.Window, p.Open, p.Trial = orMillis(b.WindowMS, p.Window), orMillis(b.OpenMS, p.Open), orMillis(b.TrialMS, p.Trial)
	p.MaxOpen = orMillis(b.MaxOpenMS, max(p.MaxOpen, p.Open))
	p.SaturatedPercent = cmp.Or(b.SaturatedPercent, p.SaturatedPercent)
	p.CalmPercent = cmp.Or(b.CalmPercent, min(p.CalmPercent, p.SaturatedPercent))
	return p
}

// over lays what is set over the defaults.
func (b *ProbePolicy) over(p routing.ProbePolicy) routing.ProbePolicy {
	if b == nil {
		return p
	}
	p.On, p.Path = b.On, cmp.Or(b.Path, p.Path)
	p.Every, p.Timeout = orMillis(b.EveryMS, p.Every), orMillis(b.TimeoutMS, p.Timeout)
	p.JitterPercent = orNumber(b.JitterPercent, p.JitterPercent)
	p.Fall, p.Rise = cmp.Or(b.Fall, p.Fall), cmp.Or(b.Rise, p.Rise)
	return p
}

// over lays what is set over the defaults.
func (b *RampPolicy) over(p routing.RampPolicy) routing.RampPolicy {
	if b == nil {
		return p
	}
	p.Over, p.Opening = orSomeMillis(b.OverMS, p.Over), orSomeMillis(b.OpeningMS, p.Opening)
	p.StartPercent, p.Steps = cmp.Or(b.StartPercent, p.StartPercent), cmp.Or(b.Steps, p.Steps)
	p.MaxChurn = orNumber(b.MaxChurnPercent, p.MaxChurn)
	return p
}

// orSomeMillis is orMillis for durations that may be 0.
func orSomeMillis(ms *int64, otherwise time.Duration) time.Duration {
	if ms == nil {
		return otherwise
	}
	return time.Duration(max(0, min(*ms, maxPolicyTime.Milliseconds()))) * time.Millisecond
}

func orNumber(n *int, otherwise int) int {
	if n != nil {
		return *n
	}
	return otherwise
}

// maxPolicyTime keeps every duration of a policy, and sums of them, in range.
const maxPolicyTime = 10 * 365 * 24 * time.Hour

func orMillis(ms int64, otherwise time.Duration) time.Duration {
	if ms > 0 {
		return time.Duration(min(ms, maxPolicyTime.Milliseconds())) * time.Millisecond
	}
	return otherwise
}

// defaultRebalanceAfter is how long an instance may be over its bound where a pool
// rebalances by itself.
const defaultRebalanceAfter = time.Minute

// autoRebalance is how long an instance may be over its bound, 0 for ever.
func (p *poolPolicy) autoRebalance() time.Duration {
	if p.Rebalance == nil || p.Rebalance.Mode != "auto" {
		return 0
	}
	return orMillis(p.Rebalance.AfterMS, defaultRebalanceAfter)
}
