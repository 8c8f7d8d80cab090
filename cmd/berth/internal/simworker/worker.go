// Package simworker is an inference worker without a model: it registers with
// Berth, beats, recovers and saves sessions over HTTP through package client as a
// real one would, and keeps a KV cache of block ids in place of tensors.
//
// What shapes the prompt besides the turns is stored as the session's meta: here,
// the ids of the prompt's blocks. With it a worker that was asked to prewarm a
// session knows what to compute.
package simworker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"berth/client"
	"berth/cmd/berth/internal/kvsim"
)

// blockTokens is how many tokens one block of a prompt stands for.
const blockTokens = 512

// ErrDead is a connection to a worker that was killed.
var ErrDead = errors.New("connection refused")

// Config says who the worker is.
type Config struct {
	Berth    client.Config
	Instance client.Instance
	// CacheBlocks is the capacity of its KV cache.
	CacheBlocks int
	// Prewarmed, unless nil, is told of every session whose KV cache was built
	// ahead of a move, and how many blocks were computed for it.
	Prewarmed func(session client.SessionKey, blocks int)
}

// Worker is one simulated instance.
type Worker struct {
	config  Config
	client  *client.Worker
	running atomic.Int64
	dead    atomic.Bool

	mu       sync.Mutex // guards what follows
	cache    *kvsim.Cache
	sessions map[client.SessionKey]*local // by their full keys
}

// local is what the worker holds of one session, one request at a time.
type local struct {
	mu      sync.Mutex
	session *client.Session
	turns   []client.Turn
	version uint64 // that turns stand for
	blocks  int    // of the prompt of the last turn that was saved: what the engine holds of the session
}

// New makes a worker that is not registered yet; [Worker.Run] does that.
func New(c Config) (*Worker, error) {
	w, err := client.NewWorker(c.Berth, c.Instance)
	if err != nil {
		return nil, fmt.Errorf("make worker %s: %w", c.Instance.ID, err)
	}
	return &Worker{config: c, client: w, cache: kvsim.New(c.CacheBlocks), sessions: map[client.SessionKey]*local{}}, nil
}

// ID is the instance's id.
func (w *Worker) ID() string { return w.config.Instance.ID }

// State is what Berth last said of it.
func (w *Worker) State() string { return w.client.Status().State }

// Register makes the instance known and, with the first heartbeat of Run, ready.
func (w *Worker) Register(ctx context.Context) error { return w.client.Register(ctx) }

// Run beats and does tasks until ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	return w.client.Run(ctx, client.RunConfig{
		Load: func() client.Load { return client.Load{Ready: true, Running: int(w.running.Load())} },
		Tasks: client.TaskHandlers{
			Offload: w.offload,
			Prewarm: w.prewarm,
			Release: w.release,
			Forget:  w.forget,
		},
	})
}

// Kill lets every later request fail to connect, and forgets what it held. Who
// started Run ends its context: a dead process does not beat.
func (w *Worker) Kill() {
	w.dead.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cache.Clear()
	w.sessions = map[client.SessionKey]*local{}
}

// Request is one request as a gateway hands it on.
type Request struct {
	Session client.SessionKey
	Hint    client.Hint
	Op      string
	// Turns are appended to the context once the request is served.
	Turns []client.Turn
	// Prompt returns the ids of the prompt's blocks, of blockTokens each, given
	// the turns that are stored.
	Prompt func(stored []client.Turn) []uint64
}

// Served says how a request went.
type Served struct {
	Hit       kvsim.Hit
	Blocks    int  // of the prompt
	Recovered bool // the context was rebuilt from Berth
	Turns     []client.Turn
	Receipt   client.Receipt
}

// Serve serves one request: it rebuilds the session if its own copy is not
// current, looks the prompt up in its cache, and saves the turns. A refusal that
// names another owner comes back as it is, for the gateway to follow.
func (w *Worker) Serve(ctx context.Context, r Request) (Served, error) {
	if w.dead.Load() {
		return Served{}, ErrDead
	}
	w.running.Add(1)
	defer w.running.Add(-1)
	l, err := w.open(r.Session)
	if err != nil {
		return Served{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out Served
	if out.Recovered, err = l.catchUp(ctx, r.Hint); err != nil {
		return out, err
	}
	prompt := r.Prompt(l.turns)
	meta, err := json.Marshal(contextMeta{Blocks: prompt})
	if err != nil {
		return out, fmt.Errorf("render the meta of a session: %w", err)
	}
	out.Blocks = len(prompt)
	out.Hit = w.lookUp(prompt)
	if w.dead.Load() {
		return out, ErrDead // it was killed while it computed: nothing was saved
	}
	if out.Receipt, err = l.session.Append(ctx, client.Write{Op: r.Op, Turns: r.Turns, Meta: meta}); err != nil {
		return out, fmt.Errorf("save on %s: %w", w.ID(), err)
	}
	l.turns, l.version, l.blocks = append(l.turns, r.Turns...), out.Receipt.Version, len(prompt)
	out.Turns = l.turns
	return out, nil
}

// contextMeta is what the simulated engine stores beside the turns.
type contextMeta struct {
	Blocks []uint64 `json:"blocks"`
}

func (w *Worker) lookUp(prompt []uint64) kvsim.Hit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cache.Serve(prompt)
}

// open finds the worker's copy of a session, or begins one.
func (w *Worker) open(key client.SessionKey) (*local, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.sessions[full(key)]; l != nil {
		return l, nil
	}
	s, err := w.client.Open(key)
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	l := &local{session: s}
	w.sessions[full(key)] = l
	return l, nil
}

// full is the key with its defaults spelt out, as tasks name sessions.
func full(key client.SessionKey) client.SessionKey {
	key.Tenant, key.Pool = cmp.Or(key.Tenant, "default"), cmp.Or(key.Pool, "default")
	return key
}

// catchUp makes the copy current and the instance the owner, if the hint knows
// more than the copy does. It reports whether it had to ask Berth.
func (l *local) catchUp(ctx context.Context, h client.Hint) (bool, error) {
	if l.session.Current(h) {
		l.session.Offer(h)
		return false, nil
	}
	l.session.Offer(h)
	have := l.session.Have()
	if have != nil && have.Turns > len(l.turns) {
		have = nil // the copy was lost: everything is wanted
	}
	got, err := l.session.Recover(ctx, client.RecoverRequest{Mode: client.Claim, Handle: h.Handle, Have: have})
	if err != nil {
		return true, fmt.Errorf("recover: %w", err)
	}
	l.turns, l.version = append(l.turns[:min(got.Base, len(l.turns))], got.Turns...), got.Version
	return true, nil
}

// offload says where others can read the session's KV cache, once no request of it
// runs. The simulated engine copies every block to its host's memory as it computes
// it, so that there is nothing left to be done but to tell.
func (w *Worker) offload(_ context.Context, t client.Task) (client.TaskAnswer, error) {
	l := w.held(t.Session)
	if l == nil {
		return client.TaskAnswer{}, errors.New("nothing of the session is here")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blocks == 0 {
		return client.TaskAnswer{}, errors.New("no turn of the session was served here")
	}
	at := xxhash.Sum64String(t.Session.Tenant + "\x00" + t.Session.Pool + "\x00" + t.Session.ID)
	return client.TaskAnswer{KV: []client.Placement{{
		Tier: "host", URI: fmt.Sprintf("kvsim://%s/%016x", w.ID(), at),
		Tokens: int64(blockTokens * l.blocks), Version: l.version, BlockTokens: blockTokens,
	}}}, nil
}

// held is the worker's copy of a session, nil if it has none.
func (w *Worker) held(key client.SessionKey) *local {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessions[full(key)]
}

// prewarm builds the KV cache of a session that is about to move here.
func (w *Worker) prewarm(ctx context.Context, t client.Task) (client.TaskAnswer, error) {
	s, err := w.client.Open(t.Session)
	if err != nil {
		return client.TaskAnswer{}, err
	}
	got, err := s.Recover(ctx, client.RecoverRequest{Mode: client.Prewarm, Handle: t.Handle})
	if err != nil {
		return client.TaskAnswer{}, err
	}
	var meta contextMeta
	if err := json.Unmarshal(got.Meta, &meta); err != nil {
		return client.TaskAnswer{}, fmt.Errorf("read the meta of a session: %w", err)
	}
	w.mu.Lock()
	computed := w.cache.Prewarm(meta.Blocks)
	w.mu.Unlock()
	if w.config.Prewarmed != nil {
		w.config.Prewarmed(t.Session, computed)
	}
	return client.TaskAnswer{Version: got.Version}, nil
}

// release answers once no request of the session runs: everything is saved then.
func (w *Worker) release(_ context.Context, t client.Task) (client.TaskAnswer, error) {
	l := w.held(t.Session)
	if l == nil {
		return client.TaskAnswer{}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return client.TaskAnswer{Version: l.version}, nil
}

// forget drops a deleted session.
func (w *Worker) forget(_ context.Context, t client.Task) (client.TaskAnswer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sessions, full(t.Session))
	return client.TaskAnswer{}, nil
}
