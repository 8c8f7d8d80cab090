package statestore

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinels that callers branch on.
var (
	// ErrInvalid: the input can never be accepted, whatever the store holds.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: there is no such job, task or policy. Sessions that are not
	// there are views with Exists false, not errors.
	ErrNotFound = errors.New("not found")
	// ErrChanged: a base or a replace came between two pages of a load.
	ErrChanged = errors.New("the context was rewritten while it was read")
	// ErrFull: the store has no memory or disk left; nothing was stored.
	ErrFull = errors.New("the store is full")
	// ErrUnavailable: the store was not reached, and nothing was asked of it that
	// could have changed it.
	ErrUnavailable = errors.New("the store is unavailable")
	// ErrUnknownInstance: no such instance is registered.
	ErrUnknownInstance = errors.New("unknown instance")
	// ErrStaleIncarnation: the instance has registered again since.
	ErrStaleIncarnation = errors.New("stale incarnation")
	// ErrInUse: the embedded store is open in another process.
	ErrInUse = errors.New("the store is in use by another process")
)

// PoolInUseError: the pool has instances, or jobs that have not ended.
type PoolInUseError struct{ Instances, Jobs int }

func (e *PoolInUseError) Error() string {
	var uses []string
	if e.Instances > 0 {
		uses = append(uses, fmt.Sprintf("registered instances: %d", e.Instances))
	}
	if e.Jobs > 0 {
		uses = append(uses, fmt.Sprintf("jobs under way: %d", e.Jobs))
	}
	return "the pool is in use: " + strings.Join(uses, ", ")
}

// EndedError: the session expired or was deleted; Epoch is its tombstone's.
type EndedError struct {
	Reason EndReason
	Epoch  uint64
}

func (e *EndedError) Error() string { return "the session is " + string(e.Reason) }

// StoreBehindError: the store holds less than the caller was promised, or
// another history. It is what a lost write looks like from outside.
type StoreBehindError struct {
	HaveVersion, HaveTurns uint64
	WantVersion            uint64
}

func (e *StoreBehindError) Error() string {
	return fmt.Sprintf("the store is at version %d (%d turns) of another history than version %d that was promised",
		e.HaveVersion, e.HaveTurns, e.WantVersion)
}

// OpForgottenError: the op is unknown and its handle is older than what is
// remembered, so that nobody can tell whether it was stored.
type OpForgottenError struct{ Version uint64 }

func (e *OpForgottenError) Error() string {
	return fmt.Sprintf("the op is older than the last %d writes, which end at version %d", OpsRemembered, e.Version)
}

// OpReusedError: the op was accepted before, with other content.
type OpReusedError struct{ Version uint64 }

func (e *OpReusedError) Error() string {
	return fmt.Sprintf("the op made version %d with other content", e.Version)
}

// NotOwnerWhy says why somebody else may write.
type NotOwnerWhy string

// Reasons of a NotOwnerError.
const (
	WhyMoved    NotOwnerWhy = "moved"
	WhyFailover NotOwnerWhy = "failover"
	WhyReplaced NotOwnerWhy = "replaced"
	WhyUnbound  NotOwnerWhy = "unbound"
	WhyFenced   NotOwnerWhy = "fenced"
)

// NotOwnerError: the caller does not own the session at the epoch it named.
type NotOwnerError struct {
	Why    NotOwnerWhy
	Owner  Owner // zero: nobody
	Epoch  uint64
	Parked bool // the append is kept for the owner
}

func (e *NotOwnerError) Error() string {
	return fmt.Sprintf("not the owner at epoch %d (%s)", e.Epoch, e.Why)
}

// StaleHandleError: a claim, move, finish or delete named an epoch that is over.
type StaleHandleError struct {
	Owner Owner
	Epoch uint64
}

func (e *StaleHandleError) Error() string {
	return fmt.Sprintf("the session has gone on to epoch %d", e.Epoch)
}

// VersionConflictError: the append was made for a version that is not current.
type VersionConflictError struct{ Version, Turns uint64 }

func (e *VersionConflictError) Error() string {
	return fmt.Sprintf("the session is at version %d", e.Version)
}

// TooLargeError: the write would pass a limit; nothing was stored. Sizes in bytes.
type TooLargeError struct {
	What        string // turn, session, meta, kv
	Limit, Size uint64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s of %d bytes, at most %d are allowed", e.What, e.Size, e.Limit)
}

// OutcomeUnknownError: the write was sent and no answer came, also not to a
// repetition. It may be stored; repeating the same op settles it.
type OutcomeUnknownError struct{ Err error }

func (e *OutcomeUnknownError) Error() string { return "the outcome is unknown: " + e.Err.Error() }
func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

// NotDurableError: the write is stored and visible, but did not reach the
// durability asked for in time. Repeating the op waits again.
type NotDurableError struct {
	Reached Durability
	Receipt Receipt
}

func (e *NotDurableError) Error() string {
	return "stored, but only " + e.Reached.String()
}

// LeaseHeldError: somebody else holds the lease, or took it over.
type LeaseHeldError struct {
	Name   string
	Holder string
	Token  uint64 // of the present holder, or the highest that is fenced
}

func (e *LeaseHeldError) Error() string {
	return fmt.Sprintf("lease %s is held by %s (token %d)", e.Name, e.Holder, e.Token)
}

// FencedTargetError: the instance is draining or drained, and nobody is bound to
// it any more.
type FencedTargetError struct{ Target Owner }

func (e *FencedTargetError) Error() string {
	return fmt.Sprintf("instance %s is fenced", e.Target.Instance)
}

// InstanceChangedError: the instance is not in a state that allows the change.
type InstanceChangedError struct{ State Lifecycle }

func (e *InstanceChangedError) Error() string { return "the instance is " + string(e.State) }
