package migrations

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"berth/statestore"
)

// Kinds of the jobs that this package runs.
const (
	KindDrain     = "drain"
	KindRebalance = "rebalance"
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
	// of the time.
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
// are left out get the defaults above; a pointer tells 0 from "left out".
type DrainSpec struct {
	Instances       []string          `json:"instances"`
	Mode            Mode              `json:"mode,omitempty"`
	DeadlineMS      int64             `json:"deadline_ms,omitempty"`
	InFlightGraceMS *int64            `json:"in_flight_grace_ms,omitempty"` // 0: nothing counts as in flight, and no worker is waited for
	AtDeadline      AtDeadline        `json:"at_deadline,omitempty"`
	Avoid           map[string]string `json:"avoid,omitempty"` // instances with all of these labels are targets only when no other has room
	Pace            Pace              `json:"pace,omitzero"`
	Prewarm         Prewarm           `json:"prewarm,omitzero"`
}

// Pace bounds how fast a job goes. Zero is no bound, but for the concurrencies,
// where it is the default.
type Pace struct {
	SessionsPerS float64 `json:"sessions_per_s,omitempty"`
	BytesPerS    float64 `json:"bytes_per_s,omitempty"`  // of stored context
	TokensPerS   float64 `json:"tokens_per_s,omitempty"` // of context, which targets prefill sooner or later
	Concurrency  int     `json:"concurrency,omitempty"`
	PerTarget    int     `json:"per_target,omitempty"`
	Retries      int     `json:"retries,omitempty"` // of a session that is blocked by more than its own turns; 0: until the deadline
}

// Prewarm says which sessions are worth a prefill on their target before they move.
type Prewarm struct {
	IdleBelowMS *int64  `json:"idle_below_ms,omitempty"` // 0: none
	MaxTokens   uint64  `json:"max_tokens,omitempty"`    // of the whole job; 0: no bound
	TokensPerS  float64 `json:"tokens_per_s,omitempty"`  // 0: no bound
}

// RebalanceSpec is the request for a rebalance, as POST /v1/rebalances takes it: of
// a whole pool, of one instance, or of named sessions.
type RebalanceSpec struct {
	Instance string   `json:"instance,omitempty"`
	Sessions []string `json:"sessions,omitempty"` // of the caller's tenant
	Target   string   `json:"target,omitempty"`   // the only instance that may get them

	DeadlineMS      int64   `json:"deadline_ms,omitempty"`
	InFlightGraceMS *int64  `json:"in_flight_grace_ms,omitempty"` // as in [DrainSpec]
	Pace            Pace    `json:"pace,omitzero"`
	Prewarm         Prewarm `json:"prewarm,omitzero"`
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
	grace := s.grace().Milliseconds()
	s.InFlightGraceMS = &grace
	s.Pace, s.Prewarm = s.Pace.withDefaults(), s.Prewarm.withDefaults()
	return s
}

func (s *RebalanceSpec) validate() error {
	switch {
	case s.Instance != "" && len(s.Sessions) > 0:
		return invalid("a rebalance takes an instance or sessions, not both")
	case len(s.Sessions) > maxNamed:
		return invalid("a rebalance takes at most %d sessions", maxNamed)
	case s.Instance != "" && s.Instance == s.Target:
		return invalid("the target must be another instance")
	}
	for _, id := range []string{s.Instance, s.Target} {
		if err := statestore.ValidateInstanceID(id); id != "" && err != nil {
			return err
		}
	}
	for i, id := range s.Sessions {
		if slices.Contains(s.Sessions[:i], id) {
			return invalid("a session is named twice")
		}
	}
	return validateTimes(s.deadline(), s.grace(), &s.Pace, &s.Prewarm)
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
	return time.Duration(*ms) * time.Millisecond
}

// withDefaults fills in what the request left out.
func (s DrainSpec) withDefaults() DrainSpec {
	s.Mode = cmp.Or(s.Mode, ModeMigrate)
	s.AtDeadline = cmp.Or(s.AtDeadline, DeadlineCommit)
	s.DeadlineMS = cmp.Or(s.DeadlineMS, DefaultDeadline.Milliseconds())
	grace := s.grace().Milliseconds()
	s.InFlightGraceMS = &grace
	s.Pace, s.Prewarm = s.Pace.withDefaults(), s.Prewarm.withDefaults()
	return s
}

func (p Pace) withDefaults() Pace {
	p.Concurrency = cmp.Or(p.Concurrency, DefaultConcurrency)
	p.PerTarget = cmp.Or(p.PerTarget, DefaultPerTarget)
	return p
}

func (p Prewarm) withDefaults() Prewarm {
	idle := p.idleBelow().Milliseconds()
	p.IdleBelowMS = &idle
	return p
}

// validate holds a request with its defaults to its limits. Its errors wrap
// [statestore.ErrInvalid].
func (s *DrainSpec) validate() error {
	if n := len(s.Instances); n == 0 || n > maxInstances {
		return invalid("a drain takes 1 to %d instances", maxInstances)
	}
	for i, id := range s.Instances {
		if err := statestore.ValidateInstanceID(id); err != nil {
			return err
		}
		if slices.Contains(s.Instances[:i], id) {
			return invalid("instance %s is named twice", id)
		}
	}
	switch {
	case !slices.Contains([]Mode{ModeMigrate, ModeLinger, ModeDetach}, s.Mode):
		return invalid("mode must be migrate, linger or detach")
	case !slices.Contains([]AtDeadline{DeadlineCommit, DeadlineLeave}, s.AtDeadline):
		return invalid("at_deadline must be commit or leave")
	}
	return validateTimes(s.deadline(), s.grace(), &s.Pace, &s.Prewarm)
}

// validateTimes holds what all jobs have in common to its limits.
func validateTimes(deadline, grace time.Duration, pace *Pace, prewarm *Prewarm) error {
	switch {
	case deadline <= 0 || deadline > maxDeadline:
		return invalid("deadline_ms must be 1 to %d", maxDeadline.Milliseconds())
	case grace < 0 || grace > maxDeadline:
		return invalid("in_flight_grace_ms must be 0 to %d", maxDeadline.Milliseconds())
	case prewarm.idleBelow() < 0 || prewarm.TokensPerS < 0:
		return invalid("no part of prewarm may be negative")
	}
	return pace.validate()
}

func (p *Pace) validate() error {
	if p.SessionsPerS < 0 || p.BytesPerS < 0 || p.TokensPerS < 0 || p.Retries < 0 {
		return invalid("no part of the pace may be negative")
	}
	if p.Concurrency < 1 || p.Concurrency > maxConcurrency || p.PerTarget < 1 || p.PerTarget > maxConcurrency {
		return invalid("concurrency and per_target must be 1 to %d", maxConcurrency)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, statestore.ErrInvalid)...)
}
