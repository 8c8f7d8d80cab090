package migrations

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"berth/statestore"
)

// KindDrain is the kind of the jobs that this package runs.
const KindDrain = "drain"

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
	grace, idle := s.grace().Milliseconds(), s.Prewarm.idleBelow().Milliseconds()
	s.InFlightGraceMS, s.Prewarm.IdleBelowMS = &grace, &idle
	s.Pace.Concurrency = cmp.Or(s.Pace.Concurrency, DefaultConcurrency)
	s.Pace.PerTarget = cmp.Or(s.Pace.PerTarget, DefaultPerTarget)
	return s
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
	case s.DeadlineMS <= 0 || s.deadline() > maxDeadline:
		return invalid("deadline_ms must be 1 to %d", maxDeadline.Milliseconds())
	case s.grace() < 0 || s.grace() > maxDeadline:
		return invalid("in_flight_grace_ms must be 0 to %d", maxDeadline.Milliseconds())
	case s.Prewarm.idleBelow() < 0 || s.Prewarm.TokensPerS < 0:
		return invalid("no part of prewarm may be negative")
	}
	return s.Pace.validate()
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
