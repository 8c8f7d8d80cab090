package services

import (
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

	AffinityIdleMS int64 `json:"affinity_idle_ms,omitempty" minimum:"1" maximum:"315360000000" doc:"idle time after which a binding lapses"`
	RetentionMS    int64 `json:"retention_ms,omitempty" minimum:"1" maximum:"315360000000" doc:"idle time after which a session ends; also the life of a handle"`
	MinStickMS     int64 `json:"min_stick_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"a breaker moves no binding younger than this"`
	MaxAgeMS       int64 `json:"max_age_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"a binding older than this leaves an owner over its bound; 0 is never"`

	Bound *BoundPolicy `json:"bound,omitempty"`
	Ring  *RingPolicy  `json:"ring,omitempty"`
	Panic bool         `json:"panic,omitempty" doc:"with nobody eligible, try one that may be alive"`
	Shed  bool         `json:"shed,omitempty" doc:"with all over their bound, answer 429 to new sessions"`

	AllowNames bool `json:"allow_names,omitempty" doc:"instances may register host names instead of ip:port"`

	Durability       string `json:"durability,omitempty" enum:"memory,fsynced,replicated" doc:"what a write must reach; by default what the store gives"`
	DurabilityWaitMS int64  `json:"durability_wait_ms,omitempty" minimum:"1" maximum:"60000" doc:"how long a write waits for it"`
	OnShortfall      string `json:"on_shortfall,omitempty" enum:"refuse,accept" doc:"whether a write that does not reach it in time is refused (503 not_durable)"`
}

// BoundPolicy is the bound on an instance's load; see routing.Bound.
type BoundPolicy struct {
	Percent int `json:"percent" minimum:"100" maximum:"10000"`
	Gap     int `json:"gap" minimum:"0"`
	Noise   int `json:"noise" minimum:"0" maximum:"1000"`
}

// RingPolicy is the shape of the ring; changing it moves new sessions.
type RingPolicy struct {
	Points     int `json:"points,omitempty" minimum:"1"`
	Slots      int `json:"slots,omitempty" minimum:"2"`
	CapPercent int `json:"cap_percent,omitempty" minimum:"0"`
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
	if b := p.Bound; b != nil {
		r.Bound = routing.Bound{Percent: b.Percent, Gap: b.Gap, Noise: b.Noise}
	}
	if g := p.Ring; g != nil {
		if g.Points > 0 {
			r.Ring.Points = g.Points
		}
		if g.Slots > 0 {
			r.Ring.Slots = g.Slots
		}
		r.Ring.CapPercent = g.CapPercent
	}
	r.MinStick = orMillis(p.MinStickMS, r.MinStick)
	r.MaxAge = orMillis(p.MaxAgeMS, r.MaxAge)
	r.Panic, r.Shed = p.Panic, p.Shed
}

// maxPolicyTime keeps every duration of a policy, and sums of them, in range.
const maxPolicyTime = 10 * 365 * 24 * time.Hour

func orMillis(ms int64, otherwise time.Duration) time.Duration {
	if ms > 0 {
		return time.Duration(min(ms, maxPolicyTime.Milliseconds())) * time.Millisecond
	}
	return otherwise
}
