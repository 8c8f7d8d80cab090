package migrations

import (
	"fmt"
	"strings"

	"berth/statestore"
)

// InvalidError: a member of the request for a job can never be right. It is a
// [statestore.ErrInvalid].
type InvalidError struct {
	Member string // as in JSON: pace.retries, sessions[2]
	Reason string
}

func (e *InvalidError) Error() string { return e.Member + " " + e.Reason }
func (e *InvalidError) Unwrap() error { return statestore.ErrInvalid }

// UnknownInstanceError: an instance that the request names is not registered, or not
// in the pool. It is a [statestore.ErrUnknownInstance].
type UnknownInstanceError struct {
	Instance string
	Pool     string // empty: in any
}

func (e *UnknownInstanceError) Error() string {
	if e.Pool != "" {
		return fmt.Sprintf("instance %s is not registered in pool %s", e.Instance, e.Pool)
	}
	return fmt.Sprintf("instance %s is not registered", e.Instance)
}
func (e *UnknownInstanceError) Unwrap() error { return statestore.ErrUnknownInstance }

// NoTargetError: nobody else in the pool could take the sessions.
type NoTargetError struct {
	Candidates []string // the other instances of the pool, none of which may take sessions
	Sessions   int      // that would have to go somewhere
	// Why is set where one target was asked for, which is the only candidate: why it
	// may not take sessions.
	Why string
}

func (e *NoTargetError) Error() string {
	if e.Why != "" {
		return fmt.Sprintf("the target %s may not take sessions: %s", strings.Join(e.Candidates, ", "), e.Why)
	}
	others := "no other instance is in the pool"
	if len(e.Candidates) > 0 {
		others = "no other instance of the pool may take sessions, not " + strings.Join(e.Candidates, ", not ")
	}
	return fmt.Sprintf("%s: %d would have to move", others, e.Sessions)
}

// BusyError: another job is at work on some of the same instances, and does
// something else.
type BusyError struct {
	Job       string
	Kind      string
	Instances []string // that a drain shares with the request
}

func (e *BusyError) Error() string {
	if e.Kind == KindRebalance {
		return fmt.Sprintf("job %s rebalances the pool already", e.Job)
	}
	return fmt.Sprintf("job %s drains %s already", e.Job, strings.Join(e.Instances, ", "))
}

// DrainedError: a drain that is under way keeps an instance closed.
type DrainedError struct {
	Instance string
	Job      string
}

func (e *DrainedError) Error() string {
	return fmt.Sprintf("job %s drains instance %s: cancel it (POST /v1/jobs/%s/cancel), or wait for its end", e.Job, e.Instance, e.Job)
}

// EndedJobError: a job has ended, and can be neither paused nor resumed.
type EndedJobError struct {
	Job   string
	State statestore.JobState
}

func (e *EndedJobError) Error() string { return fmt.Sprintf("job %s has ended: %s", e.Job, e.State) }
