package migrations

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"berth/routing"
	"berth/statestore"
)

// DefaultLongestHint is valid_ms and the TTL of the binding cache where nobody set them.
const DefaultLongestHint = 12 * time.Second

// Options of a runner. Snapshot, Lifetimes and Require are asked with the name of
// a pool; all three must be given.
type Options struct {
	Holder string        // names this process in leases
	Lease  time.Duration // default 10 s: how long a job waits after its holder died
	Keep   time.Duration // default 7 days: how long jobs that ended are kept
	Logger *slog.Logger  // default: none

	// Snapshot is this process's present image of a pool, nil for one not known.
	Snapshot  func(pool string) *routing.Snapshot
	Lifetimes func(pool string) statestore.Lifetimes
	Require   func(pool string) statestore.Requirement

	// Pools names the pools, and AutoRebalance says for how long an instance of one
	// may be over its bound before it is relieved, 0 for ever. Without them nothing
	// is rebalanced unasked.
	Pools         func() []string
	AutoRebalance func(pool string) time.Duration

	// Silent, when it is given, reads which boots certainly do not poll for tasks: they
	// are not waited for. nil for nothing known.
	Silent func(ctx context.Context) func(statestore.Owner) bool

	// Erase ends a session, unless its epoch has changed since it was seen, and asks
	// instances to forget what they hold of it. Without it erases are left to other
	// processes.
	Erase func(ctx context.Context, seen *statestore.View) (existed bool, err error)

	// LongestHint is how long any process may go on naming an instance after it
	// stopped being the owner: valid_ms and the TTL of the binding cache. Default
	// [DefaultLongestHint].
	LongestHint time.Duration
	// OnProgress, when it is given, is told after each save of a job held here.
	// It must not block.
	OnProgress func(statestore.Job, Progress)
}

// Runner runs stored jobs. Any number of processes may run one on the same store.
type Runner struct {
	store Store
	o     Options
	wake  chan struct{} // holds one token while jobs should be looked for at once

	totals totals

	mu   sync.Mutex
	held map[string]*keeper // by job
}

// New makes a runner; [Runner.Run] starts it.
func New(store Store, o Options) *Runner {
	o.Lease = cmp.Or(o.Lease, 10*time.Second)
	o.Keep = cmp.Or(o.Keep, 7*24*time.Hour)
	o.LongestHint = cmp.Or(o.LongestHint, DefaultLongestHint)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Runner{store: store, o: o, wake: make(chan struct{}, 1), held: map[string]*keeper{}}
}

// purgeEvery is how often ended jobs that are old enough are forgotten.
const purgeEvery = time.Hour

// Run adopts every job that has not ended and whose lease is free, several at
// once, and works on them until ctx ends. It returns when they have stopped and
// their leases are let go, so that another process goes on at once.
func (r *Runner) Run(ctx context.Context) error {
	var jobs sync.WaitGroup
	defer jobs.Wait()
	if r.o.Pools != nil && r.o.AutoRebalance != nil {
		jobs.Go(func() { r.watch(ctx) })
	}
	purge := time.NewTicker(purgeEvery)
	defer purge.Stop()
	look := time.NewTicker(r.o.Lease / 5)
	defer look.Stop()
	failing := false
	for {
		err := r.adopt(ctx, &jobs)
		if err != nil && !failing && ctx.Err() == nil {
			r.o.Logger.WarnContext(ctx, "jobs cannot be read", "reason", err.Error())
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-look.C:
		case <-purge.C:
			if _, err := r.store.PurgeJobs(ctx, r.o.Keep); err != nil {
				r.o.Logger.InfoContext(ctx, "old jobs stay", "reason", err.Error())
			}
		}
	}
}

// rouse lets Run look for jobs at once.
func (r *Runner) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// nudge lets the job hear at once what operators ask, if it is held here.
func (r *Runner) nudge(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.held[id]; k != nil {
		k.wake()
	}
}

// adopt takes over what nobody holds.
func (r *Runner) adopt(ctx context.Context, jobs *sync.WaitGroup) error {
	list, now, err := r.store.Jobs(ctx)
	if err != nil {
		return fmt.Errorf("list jobs: %w", err)
	}
	for i := range list {
		j := &list[i]
		// One that was renewed later than now is asked for too: the store's clock went back.
		leased := now < j.LeaseEnd && j.Updated <= now
		if !r.runs(j.Kind) || j.State.Ended() || leased || r.holds(j.ID) {
			continue
		}
		job, err := r.store.AcquireJob(ctx, j.ID, r.o.Holder, r.o.Lease)
		switch {
		case isHeld(err), errors.Is(err, statestore.ErrNotFound), err == nil && job.State.Ended():
			continue
		case err != nil:
			return fmt.Errorf("acquire job %s: %w", j.ID, err)
		}
		h := r.hold(job)
		jobs.Go(func() {
			defer r.drop(job.ID)
			h.run(ctx)
		})
	}
	return nil
}

// runs reports whether this process works on jobs of the kind. Neighbours of another
// version may know others.
func (r *Runner) runs(kind string) bool {
	return kind == KindDrain || kind == KindRebalance || kind == KindErase && r.o.Erase != nil
}

func (r *Runner) holds(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[id] != nil
}

func (r *Runner) drop(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, id)
}

// holding is one process's hold on one job.
type holding struct {
	r      *Runner
	job    statestore.Job
	keeper *keeper
	broken error // the stored job cannot be understood
}

// hold reads what a job just acquired says.
func (r *Runner) hold(job statestore.Job) *holding {
	m, err := parseMemo(job.Progress)
	m.Reserved = 0 // whatever was promised, nobody of this holding promised it
	h := &holding{r: r, job: job, broken: err, keeper: newKeeper(r.store, &job, m, &r.o, &r.totals)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[job.ID] = h.keeper
	return h
}

// run works on the job until it ends, is lost, or ctx ends.
func (h *holding) run(ctx context.Context) {
	log := h.r.o.Logger
	log.InfoContext(ctx, "job is held", "job", h.job.ID, "pool", h.job.Pool, "attempt", h.job.Attempts)
	end, err := h.work(ctx)
	switch {
	case end != "":
		err = h.end(ctx, end)
	case !errors.Is(err, errLost):
		err = errors.Join(err, h.release(ctx))
	}
	if err != nil {
		log.InfoContext(ctx, "job is let go", "job", h.job.ID, "reason", err.Error())
		return
	}
	log.InfoContext(ctx, "job has ended", "job", h.job.ID, "state", string(end))
}

// work does the job with its lease kept.
func (h *holding) work(ctx context.Context) (statestore.JobState, error) {
	job, err := h.understand()
	if err != nil {
		h.keeper.update(func(m *memo) { m.Reason = "the stored job cannot be understood" })
		return statestore.JobFailed, nil //nolint:nilerr // it may quote what was asked
	}
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	keeping, stop := context.WithCancel(ctx)
	var keep sync.WaitGroup
	keep.Go(func() {
		if err := h.keeper.run(keeping); err != nil {
			lose(err)
		}
	})
	defer keep.Wait()
	defer stop()
	defer job.rest()
	return job.run(ctx)
}

// task is a job of one kind, as its holder works on it.
type task interface {
	// run works until the job ends and returns the state it ended in, or why the
	// holding ended before the job.
	run(ctx context.Context) (statestore.JobState, error)
	// rest returns when nothing runs on behalf of the job any more.
	rest()
}

// understand reads what the job is asked to do.
func (h *holding) understand() (task, error) {
	if h.broken != nil {
		return nil, h.broken
	}
	switch h.job.Kind {
	case KindErase:
		var order eraseOrder
		if err := json.Unmarshal(h.job.Spec, &order); err != nil {
			return nil, fmt.Errorf("parse an erase: %w", err)
		}
		return h.r.newErase(h, &order)
	case KindRebalance:
		var order rebalanceOrder
		if err := json.Unmarshal(h.job.Spec, &order); err != nil {
			return nil, fmt.Errorf("parse a rebalance: %w", err)
		}
		return h.r.newRebalance(h, order), nil
	}
	var spec DrainSpec
	if err := json.Unmarshal(h.job.Spec, &spec); err != nil {
		return nil, fmt.Errorf("parse a drain: %w", err)
	}
	return h.r.newDrain(h, spec), nil
}

// end stores the state that the job ended in. A process that is shutting down
// tries once.
func (h *holding) end(ctx context.Context, state statestore.JobState) error {
	h.keeper.conclude(state)
	if ctx.Err() != nil {
		return h.release(ctx)
	}
	return h.keeper.finish(ctx)
}

// release stores how far the job has come and lets go of its lease.
func (h *holding) release(ctx context.Context) error {
	return h.keeper.save(context.WithoutCancel(ctx), 0)
}
