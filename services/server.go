package services

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"golang.org/x/sync/errgroup"

	"berth/migrations"
	"berth/statestore"
	"berth/statestore/handle"
)

// Options configure a [Server]. Zero values take the defaults of the API.
type Options struct {
	Store  statestore.Store
	Logger *slog.Logger
	// Process names this process among those that share the store.
	Process string
	Version string
	Tokens  *Tokens
	// Policies are of pools, from a file: for those that have none yet, or enforced
	// over what is stored.
	Policies        map[string]PoolPolicy
	EnforcePolicies bool
	// SessionHeaders carry the session id, in order of preference.
	SessionHeaders []string

	HintValid    time.Duration // how long a gateway may use a hint, from the store read
	CacheEntries int
	CacheTTL     time.Duration
	StoreTimeout time.Duration // of a route's read, after which it is answered degraded
	MissRate     int           // store reads a second on cache misses

	HeartbeatEvery time.Duration
	SuspectAfter   time.Duration // of silence
	DownAfter      time.Duration // of silence
	GoneAfter      time.Duration // of being down, after which an instance is removed
	TaskLease      time.Duration
	JobLease       time.Duration

	BodyTimeout    time.Duration // in which a body must come
	ContextTimeout time.Duration // in which a body with a context must come
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if len(o.SessionHeaders) == 0 {
		o.SessionHeaders = defaultSessionHeaders
	}
	orDuration(&o.HintValid, 2*time.Second)
	orDuration(&o.CacheTTL, 10*time.Second)
	orDuration(&o.StoreTimeout, 100*time.Millisecond)
	orDuration(&o.HeartbeatEvery, 2*time.Second)
	orDuration(&o.SuspectAfter, 6*time.Second)
	orDuration(&o.DownAfter, 15*time.Second)
	orDuration(&o.GoneAfter, time.Hour)
	orDuration(&o.TaskLease, time.Minute)
	orDuration(&o.JobLease, 10*time.Second)
	orDuration(&o.BodyTimeout, 5*time.Second)
	orDuration(&o.ContextTimeout, time.Minute)
	if o.CacheEntries <= 0 {
		o.CacheEntries = 200_000
	}
	if o.MissRate <= 0 {
		o.MissRate = 2000
	}
	return o
}

func orDuration(d *time.Duration, otherwise time.Duration) {
	if *d <= 0 {
		*d = otherwise
	}
}

// Server answers the API for one process.
type Server struct {
	options  Options
	store    statestore.Store
	log      *slog.Logger
	tokens   *Tokens
	headers  sessionHeaders
	handles  *handle.Codec
	fleet    *fleet
	bindings *bindings
	metrics  *metrics
	jobs     *migrations.Runner
	wakeups  *wakeups
	tallies  *tallies
	trials   *trials
	unserved *unserved
	looks    *taskLooks
	beats    *beatCounter
	slots    beatSlots
	gone     *goneWatch
	failures failureLogs
	sessions sessionStatistics
	marks    map[string]uint64 // tokens of the marks of pools whose policy a file decides
	tagKey   [sha256.Size]byte

	router      *chi.Mux
	api         huma.API
	stopping    atomic.Bool
	holdsHealth atomic.Bool // the health lease, as of the last round
}

// New makes a server. It asks the store for the keys that sign handles, and
// fails if the store does not answer.
func New(ctx context.Context, o Options) (*Server, error) {
	o = o.withDefaults()
	if o.Store == nil || o.Process == "" {
		return nil, errors.New("a server needs a store and a process name")
	}
	headers, err := newSessionHeaders(o.SessionHeaders)
	if err != nil {
		return nil, err
	}
	keys, err := o.Store.SigningKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the signing keys: %w", err)
	}
	codec, err := handle.NewCodec(keys)
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: o, log: o.Logger, tokens: o.Tokens, headers: headers, handles: codec,
		wakeups: newWakeups(), tallies: newTallies(), trials: newTrials(o.Process), gone: newGoneWatch(o.GoneAfter, o.DownAfter),
		looks: newTaskLooks(o.TaskLease), failures: newFailureLogs(), slots: beatSlots{every: o.HeartbeatEvery, begun: time.Now()},
		marks:  map[string]uint64{},
		tagKey: sha256.Sum256(append([]byte("log"), keys[len(keys)-1].Secret...)),
	}
	s.metrics = newMetrics(s)
	s.store = newStoreMeter(o.Store, s.metrics.registry, &s.metrics.knewLess.store)
	s.fleet, s.beats = newFleet(s.store), &beatCounter{store: s.store}
	if s.bindings, err = newBindings(s.store, o); err != nil {
		return nil, fmt.Errorf("make the binding cache: %w", err)
	}
	if s.unserved, err = newUnserved(); err != nil {
		return nil, err
	}
	s.jobs = migrations.New(s.store, s.migrationOptions())
	s.mount()
	return s, nil
}

// Handler serves the API.
func (s *Server) Handler() http.Handler { return s.recovered(http.HandlerFunc(s.dispatch)) }

// Run does the background work until ctx ends: the image of the fleet, the feed,
// health, sweeping and jobs. The first look at the fleet is made before it
// returns from ready.
func (s *Server) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		s.fleet.run(ctx, s.fleetNotRead)
		return nil
	})
	group.Go(func() error { return s.follow(ctx) })
	group.Go(func() error { return s.watchHealth(ctx) })
	group.Go(func() error { return s.countSessions(ctx) })
	group.Go(func() error { return s.tell(ctx) })
	group.Go(func() error { return s.sweep(ctx) })
	group.Go(func() error { return s.jobs.Run(ctx) })
	group.Go(func() error { return s.enforce(ctx) })
	err := group.Wait()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was asked to end
	}
	return err
}

// tag names a session in a log line: a keyed hash, the same in every process of
// the store, from which nobody guesses the id.
func (s *Server) tag(d statestore.SessionDigest) string {
	m := hmac.New(sha256.New, s.tagKey[:])
	m.Write(d[:])
	return hex.EncodeToString(m.Sum(nil)[:8])
}

// Load reads the fleet once, so that the server is ready before it listens, and
// puts its policies in force.
func (s *Server) Load(ctx context.Context) error {
	if err := s.fleet.refresh(ctx); err != nil || len(s.options.Policies) == 0 {
		return err
	}
	if err := s.applyPolicies(ctx); err != nil {
		return err
	}
	return s.fleet.refresh(ctx)
}

// Stop makes readiness fail, ahead of a shutdown.
func (s *Server) Stop() { s.stopping.Store(true) }

// follow invalidates what the feed says has changed, and wakes who waits for it.
func (s *Server) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		events, err := s.store.Watch(ctx)
		if err == nil {
			// What happened until the watch stood was not told.
			s.apply(statestore.Event{Kind: statestore.EventGap})
			for e := range events {
				s.apply(e)
			}
		}
		pause(ctx, time.Second)
	}
	return nil
}

func (s *Server) apply(e statestore.Event) {
	switch e.Kind {
	case statestore.EventGap:
		s.bindings.forgetAll()
		s.fleet.nudge()
		s.looks.gap()
		s.wakeups.all()
	case statestore.EventSession:
		s.bindings.forget(e.Session)
	case statestore.EventFleet:
		s.fleet.nudge()
	case statestore.EventTasks:
		s.looks.event(e.Instance)
		s.wakeups.wake(taskTopic(e.Instance))
	case statestore.EventJob:
		s.wakeups.wake(jobTopic(e.Job))
	}
}

// sweepEvery is how often sessions whose time is over are ended; sweepLimit
// bounds one round.
const (
	sweepEvery = 5 * time.Second
	sweepLimit = 1000
)

func (s *Server) sweep(ctx context.Context) error {
	for pause(ctx, sweepEvery) {
		for {
			n, err := s.store.Sweep(ctx, sweepLimit)
			if err != nil {
				s.log.Warn("sweep not done", "error", err)
			}
			if err != nil || n < sweepLimit {
				break
			}
		}
	}
	return nil
}

// pause waits and reports whether ctx is still on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
