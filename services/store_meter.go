package services

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/statestore"
)

// storeCall is a call of the store, as metrics name it.
type storeCall uint8

const (
	callLookup storeCall = iota
	callAppend
	callReplace
	callClaim
	callMove
	callReserve
	callFinish
	callDelete
	callBind
	callPutPlacements
	callLoad
	callLoadTurns
	callSessionsOf
	callCountSessions
	callList
	callSweep
	callRegister
	callHeartbeats
	callHeartbeat
	callDeregister
	callSetLifecycle
	callSetVerdicts
	callRemoveGone
	callSetOverride
	callFleetView
	callFence
	callAcquireLease
	callReleaseLease
	callPutPolicy
	callDeletePool
	callSigningKeys
	callPutNote
	callNotes
	callWatch
	callDescribe
	callCreateJob
	callAcquireJob
	callSaveJob
	callControlJob
	callJob
	callJobs
	callPurgeJobs
	callPutTasks
	callLeaseTasks
	callOpenTasks
	callFinishTask
	callReadTasks
	callTasksOf
	callDropTasks
)

var storeCalls = [...]string{
	callLookup:        "lookup",
	callAppend:        "append",
	callReplace:       "replace",
	callClaim:         "claim",
	callMove:          "move",
	callReserve:       "reserve",
	callFinish:        "finish",
	callDelete:        "delete",
	callBind:          "bind",
	callPutPlacements: "put_placements",
	callLoad:          "load",
	callLoadTurns:     "load_turns",
	callSessionsOf:    "sessions_of",
	callCountSessions: "count_sessions",
	callList:          "list",
	callSweep:         "sweep",
	callRegister:      "register",
	callHeartbeats:    "heartbeats",
	callHeartbeat:     "heartbeat",
	callDeregister:    "deregister",
	callSetLifecycle:  "set_lifecycle",
	callSetVerdicts:   "set_verdicts",
	callRemoveGone:    "remove_gone",
	callSetOverride:   "set_override",
	callFleetView:     "fleet_view",
	callFence:         "fence",
	callAcquireLease:  "acquire_lease",
	callReleaseLease:  "release_lease",
	callPutPolicy:     "put_policy",
	callDeletePool:    "delete_pool",
	callSigningKeys:   "signing_keys",
	callPutNote:       "put_note",
	callNotes:         "notes",
	callWatch:         "watch",
	callDescribe:      "describe",
	callCreateJob:     "create_job",
	callAcquireJob:    "acquire_job",
	callSaveJob:       "save_job",
	callControlJob:    "control_job",
	callJob:           "job",
	callJobs:          "jobs",
	callPurgeJobs:     "purge_jobs",
	callPutTasks:      "put_tasks",
	callLeaseTasks:    "lease_tasks",
	callOpenTasks:     "open_tasks",
	callFinishTask:    "finish_task",
	callReadTasks:     "read_tasks",
	callTasksOf:       "tasks_of",
	callDropTasks:     "drop_tasks",
}

// storeMeter is a store that measures every call of another. It changes nothing of
// what is asked and answered; a call costs it two looks at the clock and a few
// additions. The methods that pass calls on stand in store_calls.go and
// store_calls_fleet.go.
type storeMeter struct {
	store statestore.Store
	times [len(storeCalls)]prometheus.Observer // looked up once
	fails *prometheus.CounterVec               // by call and error
	away  *outages                             // of the registry
}

func newStoreMeter(store statestore.Store, registry prometheus.Registerer, away *outages) *storeMeter {
	m := &storeMeter{store: store, away: away, fails: newCounter(registry, "store_errors_total",
		"Store calls that were not answered, by call and error; canceled ones are those whose caller went away first. A refusal, such as not_owner, is an answer and no error.",
		"call", "error")}
	times := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "berth_store_call_duration_seconds",
		Help:    "Seconds that the store took to answer a call, or to fail, by call; of load_turns and sessions_of, which read page by page, until the first page was there.",
		Buckets: prometheus.ExponentialBuckets(1e-4, 4, 9),
	}, []string{"call"})
	registry.MustRegister(times)
	for call, name := range storeCalls {
		m.times[call] = times.WithLabelValues(name)
	}
	return m
}

// took counts a call that began then and ends now.
func (m *storeMeter) took(call storeCall, began time.Time, err *error) {
	m.times[call].Observe(time.Since(began).Seconds())
	m.failed(call, *err)
}

func (m *storeMeter) failed(call storeCall, err error) {
	if word := storeFailure(err); word != "" {
		m.fails.WithLabelValues(storeCalls[call], word).Inc()
	}
}

// storeFailures are the errors of a store that did not do what was asked, in the
// order in which they are looked for: an unknown outcome may be a timeout as well.
var storeFailures = [...]struct {
	word string
	is   func(error) bool
}{
	{"canceled", isError(context.Canceled)},
	{"outcome_unknown", asError[*statestore.OutcomeUnknownError]},
	{"not_durable", asError[*statestore.NotDurableError]},
	{"timeout", isError(context.DeadlineExceeded)},
	{"full", isError(statestore.ErrFull)},
	{"unavailable", isError(statestore.ErrUnavailable)},
}

// storeAnswers are the errors that a store answers with: it judged what was asked,
// and refused it.
var storeAnswers = [...]func(error) bool{
	isError(statestore.ErrInvalid), isError(statestore.ErrNotFound), isError(statestore.ErrChanged),
	isError(statestore.ErrUnknownInstance), isError(statestore.ErrStaleIncarnation),
	asError[*statestore.EndedError], asError[*statestore.StoreBehindError], asError[*statestore.OpForgottenError],
	asError[*statestore.OpReusedError], asError[*statestore.NotOwnerError], asError[*statestore.StaleHandleError],
	asError[*statestore.VersionConflictError], asError[*statestore.TooLargeError], asError[*statestore.LeaseHeldError],
	asError[*statestore.FencedTargetError], asError[*statestore.InstanceChangedError],
}

func isError(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func asError[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// storeFailure is the word for what kept the store from doing what was asked, empty
// for an answer.
func storeFailure(err error) string {
	if err == nil {
		return ""
	}
	for _, f := range storeFailures {
		if f.is(err) {
			return f.word
		}
	}
	for _, answered := range storeAnswers {
		if answered(err) {
			return ""
		}
	}
	return "other"
}

// measured yields what a call's sequence does, and measures the time until the first
// of it is there: the clock is too dear to be asked at every turn, and what passes
// between two of them may be the reader's time.
func measured[T any](m *storeMeter, call storeCall, seq iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		began, first := time.Now(), true
		answered := func() {
			if first {
				m.times[call].Observe(time.Since(began).Seconds())
			}
			first = false
		}
		for v, err := range seq {
			answered()
			m.failed(call, err)
			if !yield(v, err) {
				return
			}
		}
		answered()
	}
}
