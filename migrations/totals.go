package migrations

import (
	"maps"
	"sync"
	"time"

	"berth/statestore"
)

// Results of sessions beside the reasons for which they are skipped.
const (
	ResultMoved     = "moved"     // cold
	ResultPrewarmed = "prewarmed" // moved, with their KV cache built on the target
	ResultErased    = "erased"    // ended, with their contexts
	ResultFailed    = "failed"    // their retries were used up, when the job ended
)

// Totals are what this process has done for all jobs of one kind since it started.
// What a job did in the hands of another process is in that one's totals.
type Totals struct {
	Sessions        map[string]int // by result
	Bytes           uint64         // of the contexts of sessions that moved, or were erased
	PrewarmedTokens uint64
	Phases          map[Phase]PhaseTotal
	Ended           map[statestore.JobState]int // jobs
}

// PhaseTotal is how often a phase has ended, and how long it took in all.
type PhaseTotal struct {
	Count int
	Time  time.Duration
}

// Held is a job that this process works on.
type Held struct {
	Kind     string
	State    statestore.JobState
	Progress Progress
	// OldestWait is how long the session that has been blocked for longest has been.
	OldestWait time.Duration
	// LastProgress is the time since a session was done.
	LastProgress time.Duration
}

// totals collects them for a runner.
type totals struct {
	mu     sync.Mutex
	byKind map[string]*Totals
}

func (t *totals) of(kind string) *Totals {
	if t.byKind == nil {
		t.byKind = map[string]*Totals{}
	}
	if t.byKind[kind] == nil {
		t.byKind[kind] = &Totals{Sessions: map[string]int{}, Phases: map[Phase]PhaseTotal{}, Ended: map[statestore.JobState]int{}}
	}
	return t.byKind[kind]
}

// saved counts what a job has done between two saves, and its end.
func (t *totals) saved(kind string, before, after *Progress, state statestore.JobState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.of(kind)
	warm := after.Prewarmed - before.Prewarmed
	sum.Sessions[ResultPrewarmed] += warm
	sum.Sessions[ResultMoved] += after.Moved - before.Moved - warm
	if erased := after.Erased - before.Erased; erased != 0 {
		sum.Sessions[ResultErased] += erased
	}
	for reason, n := range after.Skipped {
		sum.Sessions[reason] += n - before.Skipped[reason]
	}
	sum.Bytes += after.Bytes - before.Bytes
	sum.PrewarmedTokens += after.PrewarmedTokens - before.PrewarmedTokens
	if state.Ended() {
		sum.Ended[state]++
		for _, n := range after.Failed {
			sum.Sessions[ResultFailed] += n
		}
	}
}

func (t *totals) phase(kind string, p Phase, took time.Duration) {
	if p == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.of(kind)
	sum.Phases[p] = PhaseTotal{sum.Phases[p].Count + 1, sum.Phases[p].Time + took}
}

// Totals are what this process has done so far, by kind of job.
func (r *Runner) Totals() map[string]Totals {
	r.totals.mu.Lock()
	defer r.totals.mu.Unlock()
	out := map[string]Totals{}
	for kind, t := range r.totals.byKind {
		c := *t
		c.Sessions, c.Phases, c.Ended = maps.Clone(t.Sessions), maps.Clone(t.Phases), maps.Clone(t.Ended)
		out[kind] = c
	}
	return out
}

// Held are the jobs that this process works on at this moment.
func (r *Runner) Held() []Held {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Held
	for _, k := range r.held {
		out = append(out, k.standing())
	}
	return out
}

// standing is how far the job has come.
func (k *keeper) standing() Held {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := Held{Kind: k.kind, State: k.state, Progress: k.memo.Progress, LastProgress: time.Since(k.speed.last)}
	if !k.waiting.IsZero() {
		h.OldestWait = time.Since(k.waiting)
	}
	return h
}

// waits follows since when sessions have been blocked.
type waits map[statestore.SessionKey]time.Time

// planned forgets the sessions that are not in the plan any more, and begins to
// count for those that are blocked.
func (w waits) planned(now time.Time, p *plan) {
	still := map[statestore.SessionKey]bool{}
	for i := range p.waiting {
		still[p.waiting[i].key] = true
		w.blocked(now, p.waiting[i].key)
	}
	for i := range p.steps {
		still[p.steps[i].key] = true
	}
	for key := range w {
		if !still[key] {
			delete(w, key)
		}
	}
}

func (w waits) blocked(now time.Time, key statestore.SessionKey) {
	if _, known := w[key]; !known {
		w[key] = now
	}
}

// oldest is since when the session that waits for longest has been, zero if none is.
func (w waits) oldest() (oldest time.Time) {
	for _, since := range w {
		if oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	}
	return oldest
}
