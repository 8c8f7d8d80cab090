package migrations

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"berth/statestore"
)

// Kinds of the jobs that this package runs.
const (
	KindDrain     = "drain"
	KindRebalance = "rebalance"
	KindErase     = "erase"
)

// Mode says what a drain does with the sessions of its instances.
type Mode string

// Modes of a drain.
const (
	ModeMigrate Mode = "migrate" // move them to other instances
	ModeLinger  Mode = "linger"  // wait until they lapse
	ModeDetach  Mode = "detach"  // leave them stored and ownerless
)

// AtDeadline says what becomes of sessions that a drain has not moved when its
// time runs out.
type AtDeadline string

// Choices at the deadline.
const (
	// DeadlineCommit commits those that are not in flight cold, in the last tenth
	// of the time, or so early that instances can be safe to stop by its end.
	DeadlineCommit AtDeadline = "commit"
	// DeadlineLeave leaves them where they are.
	DeadlineLeave AtDeadline = "leave"
)

// Defaults of a drain.
const (
	DefaultDeadline      = 10 * time.Minute
	DefaultInFlightGrace = 30 * time.Second
	DefaultIdleBelow     = 10 * time.Minute
	DefaultConcurrency   = 16
	DefaultPerTarget     = 4
)

// Limits of a drain.
const (
	maxInstances   = 1000
	maxNamed       = 1000 // sessions of a rebalance
	maxDeadline    = 7 * 24 * time.Hour
	maxConcurrency = 1024
)

// DrainSpec is the request for a drain, as POST /v1/drains takes it. Members that
// are left out get the defaults above; a pointer tells 0 from "left out", and where
// there is none a minimum keeps a 0 that was written from being taken for it.
type DrainSpec struct {
	Instances       []string          `json:"instances" doc:"1 to 1000 ids, all of one pool"`
	Mode            Mode              `json:"mode,omitempty" doc:"migrate (default): move the sessions; linger: wait until they lapse; detach: leave them stored and ownerless"`
	DeadlineMS      int64             `json:"deadline_ms,omitempty" minimum:"1" doc:"time until the job ends, at most 7 days; default 600000"`
	InFlightGraceMS *int64            `json:"in_flight_grace_ms,omitempty" doc:"how long a session counts as in flight after its last turn was stored; 0: none does, and no worker is waited for; default 30000"`
	AtDeadline      AtDeadline        `json:"at_deadline,omitempty" doc:"of sessions that have not moved: commit (default) moves those that are not in flight cold, in the last tenth of the time or as early as instances need to be safe to stop by its end, about 17 s, at most half of it: with less than 40 s it ends partial; leave lets them be"`
	Avoid           map[string]string `json:"avoid,omitempty" doc:"instances with all of these labels get sessions only when no other has room"`
	Pace            Pace              `json:"pace,omitzero" doc:"how fast the job goes"`
	Prewarm         Prewarm           `json:"prewarm,omitzero" doc:"which sessions their target prefills before they move"`
}

// DrainOf is what a job was asked for, with its defaults; nil for one that is no drain.
func DrainOf(job *statestore.Job) *DrainSpec {
	spec := new(DrainSpec)
	if job.Kind != KindDrain || json.Unmarshal(job.Spec, spec) != nil {
		return nil
	}
	return spec
}

// Pace bounds how fast a job goes. Zero is no bound, but for the concurrencies,
// where it is the default.
type Pace struct {
	SessionsPerS float64 `json:"sessions_per_s,omitempty" doc:"sessions a second; 0: no bound"`
	BytesPerS    float64 `json:"bytes_per_s,omitempty" doc:"bytes of stored context a second; 0: no bound"`
	TokensPerS   float64 `json:"tokens_per_s,omitempty" doc:"tokens of context a second, which targets prefill sooner or later; 0: no bound"`
	Concurrency  int     `json:"concurrency,omitempty" minimum:"1" doc:"moves under way at once, 1 to 1024; default 16"`
	PerTarget    int     `json:"per_target,omitempty" minimum:"1" doc:"of them to one target, 1 to 1024; default 4"`
	Retries      int     `json:"retries,omitempty" doc:"of a session that is blocked by more than its own turns; 0: until the deadline"`
}

// Prewarm says which sessions are worth a prefill on their target before they move.
type Prewarm struct {
	IdleBelowMS *int64  `json:"idle_below_ms,omitempty" doc:"sessions idle for less than this; 0: none; default 600000"`
	MaxTokens   uint64  `json:"max_tokens,omitempty" doc:"tokens of the whole job; 0: no bound"`
	TokensPerS  float64 `json:"tokens_per_s,omitempty" doc:"tokens a second; 0: no bound"`
}

// RebalanceSpec is the request for a rebalance, as POST /v1/rebalances takes it: of
// a whole pool, of one instance, or of named sessions.
type RebalanceSpec struct {
	Instance string   `json:"instance,omitempty" doc:"the only one that is relieved; absent: all of the pool that are over their bound"`
	Sessions []string `json:"sessions,omitempty" doc:"1 to 1000 session ids of the caller's tenant; not together with instance; absent: by load"`
	Target   string   `json:"target,omitempty" doc:"the only instance that may get them"`

	DeadlineMS      int64   `json:"deadline_ms,omitempty" minimum:"1" doc:"time until the job ends, at most 7 days; default 600000"`
	InFlightGraceMS *int64  `json:"in_flight_grace_ms,omitempty" doc:"as in a drain; default 30000"`
	Pace            Pace    `json:"pace,omitzero" doc:"how fast the job goes"`
	Prewarm         Prewarm `json:"prewarm,omitzero" doc:"which sessions their target prefills before they move"`
}

func (s *RebalanceSpec) deadline() time.Duration {
	return time.Duration(s.DeadlineMS) * time.Millisecond
}

func (s *RebalanceSpec) grace() time.Duration {
	return millisOr(s.InFlightGraceMS, DefaultInFlightGrace)
}

// withDefaults fills in what the request left out.
func (s RebalanceSpec) withDefaults() RebalanceSpec {
	s.DeadlineMS = cmp.Or(s.DeadlineMS, DefaultDeadline.Milliseconds())
	s.InFlightGraceMS = cmp.Or(s.InFlightGraceMS, new(DefaultInFlightGrace.Milliseconds()))
	s.Pace, s.Prewarm = s.Pace.withDefaults(), s.Prewarm.withDefaults()
	return s
}

func (s *RebalanceSpec) validate() error {
	switch {
	case s.Instance != "" && len(s.Sessions) > 0:
		return invalid("sessions", "may not come together with an instance")
	case s.Sessions != nil && len(s.Sessions) == 0:
		return invalid("sessions", "must name some; without it a rebalance goes by load")
	case len(s.Sessions) > maxNamed:
		return invalid("sessions", "must be at most %d", maxNamed)
	case s.Instance != "" && s.Instance == s.Target:
		return invalid("target", "must be another instance than the one that is relieved")
	}
	for _, m := range []struct{ name, id string }{{"instance", s.Instance}, {"target", s.Target}} {
		if m.id == "" {
			continue
		}
		if err := validateInstance(m.name, m.id); err != nil {
			return err
		}
	}
	for i, id := range s.Sessions {
		if slices.Contains(s.Sessions[:i], id) {
			return invalid(fmt.Sprintf("sessions[%d]", i), "is named twice")
		}
	}
	return validateTimes(s.DeadlineMS, *s.InFlightGraceMS, &s.Pace, &s.Prewarm)
}

func (s *DrainSpec) deadline() time.Duration {
	return time.Duration(s.DeadlineMS) * time.Millisecond
}

func (s *DrainSpec) grace() time.Duration {
	return millisOr(s.InFlightGraceMS, DefaultInFlightGrace)
}

func (p *Prewarm) idleBelow() time.Duration { return millisOr(p.IdleBelowMS, DefaultIdleBelow) }

func millisOr(ms *int64, otherwise time.Duration) time.Duration {
	if ms == nil {
		return otherwise
	}
	return time.Duration(min(*ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// withDefaults fills in what the request left out.
func (s DrainSpec) withDefaults() DrainSpec {
	s.Mode = cmp.Or(s.Mode, ModeMigrate)
	s.AtDeadline = cmp.Or(s.AtDeadline, DeadlineCommit)
	s.DeadlineMS = cmp.Or(s.DeadlineMS, DefaultDeadline.Milliseconds())
	s.InFlightGraceMS = cmp.Or(s.InFlightGraceMS, new(DefaultInFlightGrace.Milliseconds()))
	s.Pace, s.Prewarm = s.Pace.withDefaults(), s.Prewarm.withDefaults()
	return s
}

func (p Pace) withDefaults() Pace {
	p.Concurrency = cmp.Or(p.Concurrency, DefaultConcurrency)
	p.PerTarget = cmp.Or(p.PerTarget, DefaultPerTarget)
	return p
}

func (p Prewarm) withDefaults() Prewarm {
	p.IdleBelowMS = cmp.Or(p.IdleBelowMS, new(DefaultIdleBelow.Milliseconds()))
	return p
}

// validate holds a request with its defaults to its limits. Its errors are
// [InvalidError].
func (s *DrainSpec) validate() error {
	if n := len(s.Instances); n == 0 || n > maxInstances {
		return invalid("instances", "must be 1 to %d", maxInstances)
	}
	for i, id := range s.Instances {
		member := fmt.Sprintf("instances[%d]", i)
		if err := validateInstance(member, id); err != nil {
			return err
		}
		if slices.Contains(s.Instances[:i], id) {
			return invalid(member, "%s is named twice", id)
		}
	}
	switch {
	case !slices.Contains([]Mode{ModeMigrate, ModeLinger, ModeDetach}, s.Mode):
		return invalid("mode", "must be migrate, linger or detach")
	case !slices.Contains([]AtDeadline{DeadlineCommit, DeadlineLeave}, s.AtDeadline):
		return invalid("at_deadline", "must be commit or leave")
	}
	if _, nameless := s.Avoid[""]; nameless {
		return invalid("avoid", "must have no label without a name")
	}
	return validateTimes(s.DeadlineMS, *s.InFlightGraceMS, &s.Pace, &s.Prewarm)
}

func validateInstance(member, id string) error {
	if statestore.ValidateInstanceID(id) != nil {
		return invalid(member, "must be 1 to %d letters, digits, '.', '_' and '-'", statestore.MaxInstanceID)
	}
	return nil
}

// validateTimes holds what all jobs have in common to its limits. It takes
// milliseconds as they came: as a duration, one that is far too long may look like
// another.
func validateTimes(deadlineMS, graceMS int64, pace *Pace, prewarm *Prewarm) error {
	longest := maxDeadline.Milliseconds()
	switch {
	case deadlineMS < 1 || deadlineMS > longest:
		return invalid("deadline_ms", "must be 1 to %d", longest)
	case graceMS < 0 || graceMS > longest:
		return invalid("in_flight_grace_ms", "must be 0 to %d", longest)
	case *prewarm.IdleBelowMS < 0:
		return invalid("prewarm.idle_below_ms", "must not be negative")
	case prewarm.TokensPerS < 0:
		return invalid("prewarm.tokens_per_s", "must not be negative")
	}
	return pace.validate()
}

func (p *Pace) validate() error {
	switch {
	case p.SessionsPerS < 0:
		return invalid("pace.sessions_per_s", "must not be negative")
	case p.BytesPerS < 0:
		return invalid("pace.bytes_per_s", "must not be negative")
	case p.TokensPerS < 0:
		return invalid("pace.tokens_per_s", "must not be negative")
	case p.Retries < 0:
		return invalid("pace.retries", "must not be negative")
	case p.Concurrency < 1 || p.Concurrency > maxConcurrency:
		return invalid("pace.concurrency", "must be 1 to %d", maxConcurrency)
	case p.PerTarget < 1 || p.PerTarget > maxConcurrency:
		return invalid("pace.per_target", "must be 1 to %d", maxConcurrency)
	}
	return nil
}

func invalid(member, format string, args ...any) error {
	return &InvalidError{Member: member, Reason: fmt.Sprintf(format, args...)}
}
