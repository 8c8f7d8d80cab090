package migrations

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/statestore"
)

// Phase says what a job is busy with. A job that has ended keeps the last one.
type Phase string

// Phases of a job.
const (
	PhaseFencing   Phase = "fencing"   // the instances are being closed for new sessions
	PhasePlanning  Phase = "planning"  // it is being found out who should move
	PhaseMoving    Phase = "moving"    // sessions are leaving
	PhaseSettling  Phase = "settling"  // none is left; old hints and running requests come to their end
	PhaseErasing   Phase = "erasing"   // sessions are being ended
	PhasePaused    Phase = "paused"    // an operator asked to wait
	PhaseRestoring Phase = "restoring" // a cancelled job gives its instances back
)

// Reasons why sessions were skipped.
const (
	SkippedLapsed       = "lapsed"        // only unbound: nobody would have come back to it
	SkippedExpired      = "expired"       // ended by its retention
	SkippedDeleted      = "deleted"       // ended by somebody
	SkippedAlreadyMoved = "already_moved" // left by itself: claimed elsewhere, released, or moved by another job
)

// Reasons why sessions or instances are blocked. All are tried again.
const (
	BlockedInFlight      = "in_flight"      // see the package's comment on what can be known
	BlockedNoTarget      = "no_target"      // nobody may take it
	BlockedTargetRefused = "target_refused" // the target drains by now, or declined to prewarm
	BlockedReserved      = "reserved"       // another job has plans for it
	BlockedChanged       = "changed"        // its owner took a new epoch while it was planned
	BlockedStoreError    = "store_error"    // the store did not answer, or not clearly
	BlockedNotDurable    = "not_durable"    // moved, but not yet with the pool's durability
	BlockedDeadline      = "deadline"       // its turn did not come in time
)

// Reasons why an instance without sessions is not yet safe to stop.
const (
	BecauseSessions = "sessions"          // some are still bound to it
	BecauseHints    = "hints"             // a hint that was handed out before may still be used
	BecauseInFlight = "in_flight"         // its heartbeat says that requests run or wait
	BecauseUnknown  = "unknown_in_flight" // no heartbeat has told since
)

// Progress is what a job tells of itself. Sessions are in exactly one of queued,
// reserved, blocked (left to do), failed (given up) and moved, erased, skipped (done);
// together they are Total.
type Progress struct {
	Phase Phase `json:"phase,omitempty"`
	Total int   `json:"total"` // sessions bound to the instances when they were closed, or that a rebalance is to move, or an erase to end

	Queued   int            `json:"queued"`
	Reserved int            `json:"reserved"` // promised to a target that is being prewarmed
	Blocked  map[string]int `json:"blocked,omitempty"`
	Moved    int            `json:"moved"`
	Erased   int            `json:"erased,omitempty"` // ended, with their contexts
	Skipped  map[string]int `json:"skipped,omitempty"`
	Failed   map[string]int `json:"failed,omitempty"` // by what used up their retries

	Offloaded int `json:"offloaded"` // sources put their KV where targets can read it
	Released  int `json:"released"`  // sources said that no turn runs
	Prewarmed int `json:"prewarmed"` // of Moved
	// Unanswered are those of Moved that were to be prewarmed and went cold because
	// their target took no task, or did not answer it.
	Unanswered      int    `json:"unanswered,omitempty"`
	Bytes           uint64 `json:"bytes"`  // of Moved and Erased
	Tokens          uint64 `json:"tokens"` // of Moved and Erased: as their writers counted them, or else a quarter of the bytes
	PrewarmedTokens uint64 `json:"prewarmed_tokens"`

	RatePerS       float64        `json:"rate_per_s"`        // sessions, over the last ten seconds or so
	EtaMS          int64          `json:"eta_ms,omitempty"`  // 0: not known
	LastProgressMS int64          `json:"last_progress_ms"`  // since a session was done, when this was written
	Targets        map[string]int `json:"targets,omitempty"` // who got how many of Moved

	// FirstMoveMS and LastMoveMS are times from the creation of the job, of those moved.
	FirstMoveMS int64 `json:"first_move_ms,omitempty"`
	LastMoveMS  int64 `json:"last_move_ms,omitempty"`
	// Forecast is of drains that move sessions.
	Forecast *Forecast `json:"forecast,omitempty"`

	Instances map[string]InstanceProgress `json:"instances,omitempty" doc:"of a drain; of a cancelled one, only those that were drained or gone by then"`
	Left      []Leftover                  `json:"left,omitempty"`   // of a partial job, the first 100
	Reason    string                      `json:"reason,omitempty"` // of a failed job
}

// InstanceProgress is how far one instance has come.
type InstanceProgress struct {
	State    string `json:"state"` // draining, drained or gone
	Sessions int    `json:"sessions"`
	Because  string `json:"because,omitempty"` // why it is not safe to stop yet
}

// Leftover is what a partial job left behind: a session, or a whole instance.
type Leftover struct {
	Instance string `json:"instance"`
	Tenant   string `json:"tenant,omitempty"`
	Session  string `json:"session,omitempty"`
	Reason   string `json:"reason"`
}

// leftoversKept bounds how many leftovers a job names; the counts are whole.
const leftoversKept = 100

// ParseProgress reads the progress of a stored job. A job that has not begun has
// none, which is the zero value.
func ParseProgress(doc []byte) (Progress, error) {
	m, err := parseMemo(doc)
	return m.Progress, err
}

// memo is what a job stores: its progress, and what its next holder must know.
type memo struct {
	Progress
	// Counted says that Total was measured; before, no session is touched.
	Counted bool `json:"counted,omitempty"`
	// Quota is how many sessions a rebalance takes off each instance, and Taken how
	// many it has.
	Quota map[string]int `json:"quota,omitempty"`
	Taken map[string]int `json:"taken,omitempty"`
	// Settled are the places of named sessions that need nothing more.
	Settled []int `json:"settled,omitempty"`
	// Was is what the instances were before, for a cancel.
	Was map[string]statestore.Lifecycle `json:"was,omitempty"`
	// InHand are the commits that may have been sent and are not yet counted.
	InHand intents `json:"in_hand,omitempty"`
	// Given is the load that targets were promised, or were given lately, in requests.
	Given map[string]float64 `json:"given,omitempty"`
	// Unproven are commits that are counted and not known to be durable.
	Unproven intents `json:"unproven,omitempty"`
}

func parseMemo(doc []byte) (memo, error) {
	var m memo
	if len(doc) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(doc, &m); err != nil {
		return memo{}, fmt.Errorf("parse progress of a job: %w", err)
	}
	return m, nil
}

// Open is how many sessions need something more.
func (p *Progress) Open() int { return max(0, p.Total-p.done()) }

// done is how many sessions need nothing more.
func (p *Progress) done() int { return p.Moved + p.Erased + sum(p.Skipped) }

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// take puts a commit on record before it is sent.
func (m *memo) take(in intent) { m.InHand.put(in) }

// drop forgets a commit that did not happen.
func (m *memo) drop(in intent) { m.InHand.drop(in) }

// count settles a commit that happened, once. age is the job's.
func (m *memo) count(in intent, age time.Duration) {
	m.drop(in)
	m.settle(in.Named)
	if in.Lapsed {
		m.skip(SkippedLapsed, 1)
		return
	}
	if m.LastMoveMS = age.Milliseconds(); m.Moved == 0 {
		m.FirstMoveMS = m.LastMoveMS
	}
	m.Moved++
	m.Bytes += in.Bytes
	m.Tokens += in.Tokens
	if in.Warm {
		m.Prewarmed++
	}
	if in.Unanswered {
		m.Unanswered++
	}
	if m.Quota != nil {
		increase(&m.Taken, in.From.Instance, 1)
	}
	if !in.To.IsZero() {
		increase(&m.Targets, in.To.Instance, 1)
	}
}

// settle notes that a named session needs nothing more.
func (m *memo) settle(named int) {
	if named > 0 && !slices.Contains(m.Settled, named) {
		m.Settled = append(slices.Clone(m.Settled), named)
	}
}

func (m *memo) skip(reason string, n int) { increase(&m.Skipped, reason, n) }

// increase counts in a copy: those who were told the progress hold the old map.
func increase(counts *map[string]int, key string, n int) {
	next := maps.Clone(*counts)
	if next == nil {
		next = map[string]int{}
	}
	next[key] += n
	*counts = next
}
