package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Instance is what a worker tells of itself. ID and Address are required.
type Instance struct {
	ID      string // 1 to 63 of A-Z a-z 0-9 . _ -
	Pool    string // "default" when empty
	Address string // ip:port that gateways reach it at, IPv6 in brackets
	Scheme  string
	Weight  *int // 100 when nil
	Zone    string
	Rank    *int // data-parallel rank
	Labels  map[string]string
	Compat  map[string]any // what its KV cache is compatible with, kv/1
	// MaxRunning is how many requests it runs at once, 0 if it does not tell.
	MaxRunning int
	// Probe asks Berth to probe it although it sends no heartbeats.
	Probe bool
	// ReportsCached says that usage without a cached count means 0.
	ReportsCached bool
	// Incarnation is that of an earlier registration by the same boot, for a
	// sidecar that restarted beside a running engine.
	Incarnation string
}

// Worker speaks for one instance: it registers it, beats for it, takes tasks and
// opens sessions. It is safe for concurrent use.
type Worker struct {
	conn     *conn
	instance Instance

	mu          sync.Mutex
	incarnation string
	status      Status
}

// Status is what Berth last said of the instance.
type Status struct {
	State string // warming, ready, suspect, down, cordoned, draining or drained; "" before the first answer
	Drain *Drain // the job that drains it, nil if none does
	Lease time.Duration
}

// Drain is a job that moves the instance's sessions away.
type Drain struct {
	Job  string
	Left time.Duration // until its deadline
}

// NewWorker makes no call.
func NewWorker(cfg Config, in Instance) (*Worker, error) {
	if in.ID == "" || in.Address == "" {
		return nil, errors.New("an instance needs an id and an address")
	}
	c, err := dial(cfg)
	if err != nil {
		return nil, err
	}
	return &Worker{conn: c, instance: in, incarnation: in.Incarnation}, nil
}

// String names the instance and nothing secret.
func (w *Worker) String() string { return "worker " + w.instance.ID }

// GoString is for %#v.
func (w *Worker) GoString() string { return w.String() }

// Incarnation is the secret of this boot, "" before it registered. Whoever holds
// it speaks for the instance.
func (w *Worker) Incarnation() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.incarnation
}

// Status is what Berth last said of the instance.
func (w *Worker) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

func (w *Worker) credentials(h Handle) credentials {
	return credentials{handle: h, instance: w.instance.ID, incarnation: w.Incarnation()}
}

func (w *Worker) call(act, method, rest string) call {
	return call{act: act, method: method, path: "/v1/instances/" + url.PathEscape(w.instance.ID) + rest}
}

type wireInstance struct {
	Pool          string            `json:"pool,omitempty"`
	Address       string            `json:"address"`
	Scheme        string            `json:"scheme,omitempty"`
	Incarnation   string            `json:"incarnation,omitempty"`
	Weight        *int              `json:"weight,omitempty"`
	Zone          string            `json:"zone,omitempty"`
	Rank          *int              `json:"rank,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Compat        map[string]any    `json:"compat,omitempty"`
	MaxRunning    int               `json:"max_running,omitempty"`
	Probe         bool              `json:"probe,omitempty"`
	ReportsCached bool              `json:"reports_cached,omitempty"`
}

// beatAnswer is what registrations and heartbeats answer.
type beatAnswer struct {
	State       string `json:"state"`
	Incarnation string `json:"incarnation"`
	NextMS      int64  `json:"next_ms"`
	LeaseMS     int64  `json:"lease_ms"`
	Drain       *struct {
		Job        string `json:"job"`
		DeadlineMS int64  `json:"deadline_ms"`
	} `json:"drain"`
	Tasks []wireTask `json:"tasks"`
}

func (b *beatAnswer) status() Status {
	s := Status{State: b.State, Lease: ms(b.LeaseMS)}
	if b.Drain != nil {
		s.Drain = &Drain{Job: b.Drain.Job, Left: ms(b.Drain.DeadlineMS)}
	}
	return s
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// Register tells Berth of the instance and keeps the incarnation. Called again
// it updates what was told, as long as Berth knows this boot. [Worker.Run]
// registers by itself.
func (w *Worker) Register(ctx context.Context) error {
	_, err := w.register(ctx)
	return err
}

func (w *Worker) register(ctx context.Context) (beatAnswer, error) {
	in := w.instance
	var answer beatAnswer
	k, err := w.call("register instance "+in.ID, http.MethodPut, "").withJSON(wireInstance{
		Pool: in.Pool, Address: in.Address, Scheme: in.Scheme, Incarnation: w.Incarnation(), Weight: in.Weight,
		Zone: in.Zone, Rank: in.Rank, Labels: in.Labels, Compat: in.Compat, MaxRunning: in.MaxRunning,
		Probe: in.Probe, ReportsCached: in.ReportsCached,
	})
	if err != nil {
		return answer, err
	}
	if _, err := w.conn.repeat(ctx, k.into(&answer)); err != nil {
		return answer, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.incarnation, w.status = answer.Incarnation, answer.status()
	return answer, nil
}

// Deregister removes the instance at once. Sessions that belong to it can then
// be claimed without a handle. An instance that is gone already is no error.
func (w *Worker) Deregister(ctx context.Context) error {
	k := w.call("deregister instance "+w.instance.ID, http.MethodDelete, "")
	k.set(headerIncarnation, w.Incarnation())
	_, err := w.conn.repeat(ctx, k)
	if errors.Is(err, ErrUnknownInstance) {
		return nil
	}
	return err
}

// Load is what an instance reports with each heartbeat.
type Load struct {
	Ready        bool    // it may serve: ends warming
	Running      int     // requests
	Waiting      int     // requests
	MaxRunning   int     // 0 if it does not tell
	KVUsage      float64 // 0 to 1
	KVGeneration uint64  // grows when the KV cache was reset
	// Tokens asked of the prefix cache and found there, since the boot.
	PrefixQueries, PrefixHits uint64
}

// heartbeat tells the load, within the time to the next one on each process. It
// is not repeated: the next one is fresher.
func (w *Worker) heartbeat(ctx context.Context, l Load, within time.Duration) (beatAnswer, error) {
	var answer beatAnswer
	k, err := w.call("heartbeat of instance "+w.instance.ID, http.MethodPost, "/heartbeat").withJSON(struct {
		Incarnation   string  `json:"incarnation"`
		Ready         bool    `json:"ready,omitempty"`
		Running       int     `json:"running"`
		Waiting       int     `json:"waiting"`
		MaxRunning    int     `json:"max_running,omitempty"`
		KVUsage       float64 `json:"kv_usage,omitempty"`
		KVGeneration  uint64  `json:"kv_generation,omitempty"`
		PrefixQueries uint64  `json:"prefix_queries,omitempty"`
		PrefixHits    uint64  `json:"prefix_hits,omitempty"`
	}{
		w.Incarnation(), l.Ready, l.Running, l.Waiting, l.MaxRunning,
		l.KVUsage, l.KVGeneration, l.PrefixQueries, l.PrefixHits,
	})
	if err != nil {
		return answer, err
	}
	k.hurry = within
	if err := w.conn.once(ctx, k.into(&answer)); err != nil {
		return answer, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = answer.status()
	return answer, nil
}
