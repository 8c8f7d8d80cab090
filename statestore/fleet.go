package statestore

import (
	"context"
	"time"
)

// Lifecycle is what operators and jobs decided about an instance. The zero
// value is none that may serve.
type Lifecycle string

// Lifecycle states. A heartbeat never leaves draining or drained.
const (
	Warming  Lifecycle = "warming"
	Ready    Lifecycle = "ready"
	Cordoned Lifecycle = "cordoned"
	Draining Lifecycle = "draining"
	Drained  Lifecycle = "drained"
)

// Health is what the health lease holder last concluded.
type Health string

// Health states. The zero value is healthy: an instance nobody judged yet.
const (
	Healthy Health = ""
	Suspect Health = "suspect"
	Down    Health = "down"
)

// Breaker is the state of an instance's circuit breaker, as the health lease holder
// keeps it.
type Breaker string

// States of a breaker. The zero value is closed: nobody has complained yet.
const (
	BreakerClosed    Breaker = ""
	BreakerOpen      Breaker = "open"
	BreakerTrial     Breaker = "trial"     // takes the one request that was granted
	BreakerSaturated Breaker = "saturated" // open for load alone
)

// Verdict is what the health lease holder concluded of a boot: all that the others
// decide by, and all that the next holder needs to go on.
type Verdict struct {
	Health  Health  `json:"health,omitempty"`
	Flaps   int     `json:"flaps,omitempty"` // departures in a row, none of them forgiven yet
	Breaker Breaker `json:"breaker,omitempty"`
	// TrialTo is the process that may send the trial numbered Trial, empty while
	// nobody may. One that was used once is used up.
	TrialTo  string `json:"trial_to,omitempty"`
	Trial    uint64 `json:"trial,omitempty"`
	Openings int    `json:"openings,omitempty"` // of the breaker, in a row
	// RampPercent is the part of the weight that is in force, 1 to 100; 0 is all
	// of it, and less is none.
	RampPercent int `json:"ramp_percent,omitempty"`
	// Weighed is the weight that RampPercent is of; 0 if that is not known.
	Weighed int `json:"weighed,omitempty"`
	// Out says that it took no new sessions when it was judged, and has to be let in
	// before it does again: RampPercent is then what it will begin with.
	Out bool `json:"out,omitempty"`
	// Returns says that it took new sessions before, and has yet to be let in again.
	Returns bool `json:"returns,omitempty"`
	// Gained is what it was given of the key space by joining lately, in millionths:
	// at least all of the last minute.
	Gained int `json:"gained,omitempty"`
	// Heard says that the boot gave a sign of life since it was displaced, which ends
	// that. It is told and not kept: no instance has it.
	Heard bool `json:"-"`
}

// InstanceSpec is what a worker tells at registration.
type InstanceSpec struct {
	ID            string            `json:"id"`
	Pool          string            `json:"pool"`
	Incarnation   string            `json:"incarnation"` // digest
	Address       string            `json:"address"`     // ip:port
	Scheme        string            `json:"scheme,omitempty"`
	Weight        int               `json:"weight"`
	Zone          string            `json:"zone,omitempty"`
	Rank          *int              `json:"rank,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Compat        map[string]any    `json:"compat,omitempty"`
	MaxRunning    int               `json:"max_running,omitempty"`
	Probe         bool              `json:"probe,omitempty"`
	ReportsCached bool              `json:"reports_cached,omitempty"`
}

// Heartbeat is what a worker tells every few seconds.
type Heartbeat struct {
	Ready         bool    `json:"ready,omitempty"`
	Running       int     `json:"running"`
	Waiting       int     `json:"waiting"`
	MaxRunning    int     `json:"max_running,omitempty"`
	KVUsage       float64 `json:"kv_usage,omitempty"` // 0 to 1
	KVGeneration  uint64  `json:"kv_generation,omitempty"`
	PrefixQueries uint64  `json:"prefix_queries,omitempty"` // tokens, cumulative
	PrefixHits    uint64  `json:"prefix_hits,omitempty"`    // tokens, cumulative
}

// Beat is a heartbeat of one boot.
type Beat struct {
	By Owner
	Heartbeat
}

// BeatAnswer is the instance after its beat, or why the beat does not count:
// ErrUnknownInstance or ErrStaleIncarnation.
type BeatAnswer struct {
	Instance Instance
	Err      error
}

// Override is an operator's word, which wins over the worker's until it is nil.
// An empty set of labels is a word too, and has to be told from none when stored.
type Override struct {
	Weight *int              `json:"weight,omitempty"`
	Labels map[string]string `json:"labels"`
}

// OverrideChange replaces what it names of an operator's word and leaves the rest: two
// operators who change different members at once both have their way.
type OverrideChange struct {
	Override
	SetWeight, SetLabels bool
}

// To is the word o after the change.
func (c OverrideChange) To(o Override) Override {
	if c.SetWeight {
		o.Weight = c.Weight
	}
	if c.SetLabels {
		o.Labels = c.Labels
	}
	return o
}

// Instance is one registered replica.
type Instance struct {
	InstanceSpec
	Verdict             // of this incarnation
	Lifecycle Lifecycle `json:"lifecycle"`
	Job       string    `json:"job,omitempty"` // that drains it
	Override  Override  `json:"override"`

	DownSince Millis `json:"down_since,omitempty"` // 0: it is not down
	// Displaced says that another instance registered with this one's address and
	// rank since this one was last heard of: addresses are reused.
	Displaced bool `json:"displaced,omitempty"`

	Beats    uint64    `json:"beats"` // heartbeats of this incarnation
	LastBeat Heartbeat `json:"last_beat"`

	Registered Millis `json:"registered"` // this incarnation
	BeatAt     Millis `json:"beat_at"`    // 0: never
}

// RampQueued is the RampPercent of a boot that nobody has let in yet: none of its
// weight.
const RampQueued = -1

// NextBoot is how another boot of the instance begins, or the first one: with
// nothing of the last but the operator's word, and without a part of the ring until
// the health lease holder lets it in.
func (i *Instance) NextBoot(now Millis) Instance {
	return Instance{Lifecycle: Warming, Override: i.Override, Registered: now, Verdict: Verdict{RampPercent: RampQueued}}
}

// Owner is the instance's present boot.
func (i *Instance) Owner() Owner { return Owner{Instance: i.ID, Incarnation: i.Incarnation} }

// Standing is the health that decisions go by: who was displaced is suspect at
// best, whatever the health lease holder concluded from what it heard before.
func (i *Instance) Standing() Health {
	if i.Displaced && i.Health == Healthy {
		return Suspect
	}
	return i.Health
}

// GoneFor is how long the instance has been down without being heard of, 0 if it is
// not or was.
func (i *Instance) GoneFor(now Millis) time.Duration {
	if i.Health != Down || i.DownSince == 0 || i.BeatAt > i.DownSince {
		return 0
	}
	return max(0, now.Sub(i.DownSince))
}

// Hear lets the instance be heard of, and reports whether that changes more than
// its heartbeats: a ready one ends warming, any ends displacement.
func (i *Instance) Hear(b *Heartbeat) bool {
	starts := b.Ready && i.Lifecycle == Warming
	if starts {
		i.Lifecycle = Ready
	}
	changed := starts || i.Displaced
	i.Displaced = false
	return changed
}

// Judge gives the instance a verdict, and reports whether that changes anything.
func (i *Instance) Judge(v Verdict, now Millis) bool {
	changed := v.Heard && i.Displaced
	i.Displaced = i.Displaced && !v.Heard
	v.Heard = false
	if v == i.Verdict {
		return changed
	}
	if v.Health != i.Health {
		i.DownSince = 0
		if v.Health == Down {
			i.DownSince = now
		}
	}
	i.Verdict = v
	return true
}

// SamePlace reports whether both say that they are reached at the same address and
// rank.
func (s *InstanceSpec) SamePlace(o *InstanceSpec) bool {
	sameRank := s.Rank == nil && o.Rank == nil || s.Rank != nil && o.Rank != nil && *s.Rank == *o.Rank
	return s.Address == o.Address && sameRank
}

// EffectiveWeight is the operator's weight, or else the worker's.
func (i *Instance) EffectiveWeight() int {
	if i.Override.Weight != nil {
		return *i.Override.Weight
	}
	return i.Weight
}

// FleetView is all instances and policies at one moment. Equal versions are equal
// views but for Now, above all equal tables of loads. Views share what they hold,
// and nobody changes it.
type FleetView struct {
	// Version grows with every change, Members only with those that are more
	// than a heartbeat.
	Version, Members uint64
	Instances        []Instance        // ordered by id
	Policies         map[string]Policy // by pool, of every pool that is there
	Now              Millis
}

// Fleet is the registry. Instance ids are unique across pools: registering an
// id again in another pool moves it there.
type Fleet interface {
	// Register adds an instance, and its pool if that is not there, updates it when the incarnation is the present
	// one, and begins a new life (warming, no beats, no override lost) when it
	// is another. Those of others that still have the same address and rank are
	// displaced with it, until a heartbeat or a registration of their own, or a
	// verdict that they were heard of.
	Register(ctx context.Context, spec InstanceSpec, others ...Owner) (Instance, error)
	// Heartbeats counts beats in their order, and answers each. It is one write of
	// a few bytes a beat, whatever else an instance has. After an error some of
	// them may have been counted: the next ones say the same.
	Heartbeats(ctx context.Context, beats []Beat) ([]BeatAnswer, error)
	// Heartbeat is Heartbeats of one.
	Heartbeat(ctx context.Context, by Owner, beat Heartbeat) (Instance, error)
	// Deregister removes the instance. With an incarnation, only while that is
	// the present one (ErrStaleIncarnation); without, whoever it is.
	Deregister(ctx context.Context, who Owner) error
	// SetLifecycle changes the state if it is one of change.From (any when
	// empty) and the incarnation is still the present one; otherwise
	// InstanceChangedError, ErrStaleIncarnation or ErrUnknownInstance.
	SetLifecycle(ctx context.Context, who Owner, change LifecycleChange) (Instance, error)
	// SetVerdicts replaces verdicts, as the holder of a lease; a lower token than
	// the highest seen is a LeaseHeldError. Unknown or stale instances are
	// left out silently: they are gone.
	SetVerdicts(ctx context.Context, l Lease, verdicts map[Owner]Verdict) error
	// RemoveGone removes those of the boots that have been down for at least that
	// long and sent no heartbeat since, and returns them. It is fenced as SetVerdicts
	// is.
	RemoveGone(ctx context.Context, l Lease, boots []Owner, after time.Duration) ([]Owner, error)
	// SetOverride changes the operator's word.
	SetOverride(ctx context.Context, id string, o OverrideChange) (Instance, error)
	// FleetView reads everything at one moment. It costs little while only
	// heartbeats change, and next to nothing while nothing does.
	FleetView(ctx context.Context) (FleetView, error)
}

// LifecycleChange is one change of a lifecycle.
type LifecycleChange struct {
	From []Lifecycle
	To   Lifecycle
	Job  JobRef // the job that does it: recorded, and fenced by its token
}

// JobRef names a holding of a job: the job and the token of its lease.
type JobRef struct {
	ID    string
	Token uint64
}
