package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Outcome is how one request ended.
type Outcome struct {
	Session  SessionKey
	Handle   Handle // that the hint came with
	Instance string // that served, or failed
	Result   Result
	Status   int           // HTTP status, 0 if there was none
	TTFT     time.Duration // time to the first token, 0 if there was none
	// Usage is the engine's own usage object, unchanged.
	Usage json.RawMessage
}

// MarshalJSON writes the outcome as the API takes it.
func (o Outcome) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Session  string          `json:"session,omitempty"`
		Handle   string          `json:"handle,omitempty"`
		Instance string          `json:"instance"`
		Result   Result          `json:"result"`
		Status   int             `json:"status,omitempty"`
		TTFTMS   float64         `json:"ttft_ms,omitempty"`
		Usage    json.RawMessage `json:"usage,omitempty"`
	}{o.Session.ID, string(o.Handle), o.Instance, o.Result, o.Status, float64(o.TTFT) / float64(time.Millisecond), o.Usage})
}

// maxOutcomes is how many outcomes travel in one call.
const maxOutcomes = 100

// Outcomes reports how requests ended, in as few calls as their tenants and
// pools allow. Reports are hints: what could not be told is returned as an
// error and not repeated.
func (g *Gateway) Outcomes(ctx context.Context, outcomes []Outcome) error {
	_, err := g.outcomes(ctx, outcomes)
	return err
}

// outcomes also counts those that were not taken.
func (g *Gateway) outcomes(ctx context.Context, outcomes []Outcome) (untold int, err error) {
	groups := map[SessionKey][]Outcome{} // by tenant and pool
	for _, o := range outcomes {
		at := SessionKey{Tenant: o.Session.Tenant, Pool: o.Session.Pool}
		groups[at] = append(groups[at], o)
	}
	var errs []error
	for at, list := range groups {
		for batch := range slices.Chunk(list, maxOutcomes) {
			if err := g.tell(ctx, at, batch); err != nil {
				untold += len(batch)
				errs = append(errs, err)
			}
		}
	}
	return untold, errors.Join(errs...)
}

func (g *Gateway) tell(ctx context.Context, of SessionKey, outcomes []Outcome) error {
	k, err := call{act: "report outcomes", method: http.MethodPost, path: "/v1/outcomes"}.withJSON(struct {
		Outcomes []Outcome `json:"outcomes"`
	}{outcomes})
	if err != nil {
		return err
	}
	of.identify(&k)
	return g.conn.once(ctx, k)
}

// Reporter gathers outcomes and reports them in batches, so that a request never
// waits for it.
type Reporter struct {
	gateway *Gateway
	full    chan struct{}

	mu      sync.Mutex
	waiting []Outcome
	dropped int64
}

// Bounds of a reporter.
const (
	reportEvery = 200 * time.Millisecond
	maxUnsent   = 10_000
	lastReport  = 2 * time.Second
)

// NewReporter makes no call; [Reporter.Run] does.
func NewReporter(g *Gateway) *Reporter {
	return &Reporter{gateway: g, full: make(chan struct{}, 1)}
}

// Add notes an outcome. It never blocks; when too many are waiting it is
// dropped and counted.
func (r *Reporter) Add(o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) >= maxUnsent {
		r.dropped++
		return
	}
	r.waiting = append(r.waiting, o)
	if len(r.waiting) < maxOutcomes {
		return
	}
	select {
	case r.full <- struct{}{}:
	default:
	}
}

// Dropped is how many outcomes were never told: there were too many, or Berth
// did not take them.
func (r *Reporter) Dropped() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// Run reports until ctx ends, and then what is left.
func (r *Reporter) Run(ctx context.Context) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastReport)
			defer cancel()
			r.flush(last)
			return
		case <-tick.C:
		case <-r.full:
		}
		r.flush(ctx)
	}
}

func (r *Reporter) flush(ctx context.Context) {
	r.mu.Lock()
	batch := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	if untold, err := r.gateway.outcomes(ctx, batch); err != nil {
		r.gateway.conn.log().WarnContext(ctx, "outcomes were not taken", "outcomes", untold, "error", err)
		r.mu.Lock()
		r.dropped += int64(untold)
		r.mu.Unlock()
	}
}
