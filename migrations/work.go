package migrations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"berth/statestore"
)

// work is what every kind of job is done with: one holding's hold on the job, and
// what it has learned since it took it.
type work struct {
	store  Store
	keeper *keeper
	mover  *mover
	o      *Options
	log    *slog.Logger

	job      statestore.Job
	pace     Pace
	prewarm  Prewarm
	grace    time.Duration
	deadline time.Time

	retry   backoff
	stuck   bool                             // the last turn failed, and it was logged
	refused map[statestore.SessionKey]string // targets that declined
	why     map[statestore.SessionKey]string // why sessions were blocked last
	tries   map[statestore.SessionKey]int    // in vain
	failed  map[statestore.SessionKey]string // those that are not tried any more, and why
	pledged *pledges
	counted map[string]float64 // what other jobs had promised when the plan was made
	yields  int                // passes in a row that gave way to another job's
	// handOffs is how many sessions a pass hands over.
	handOffs int
	waits    waits
	// version is that of the registry at the last look: an image of a pool that is
	// older may not know a boot that is new.
	version *atomic.Uint64
}

func (r *Runner) newWork(h *holding, pace *Pace, prewarm *Prewarm, grace time.Duration) work {
	w := work{
		store: r.store, keeper: h.keeper, o: &r.o, log: r.o.Logger,
		job: h.job, pace: *pace, prewarm: *prewarm, grace: grace,
		retry:   backoff{least: 50 * time.Millisecond, most: time.Second},
		refused: map[statestore.SessionKey]string{},
		why:     map[statestore.SessionKey]string{},
		tries:   map[statestore.SessionKey]int{},
		failed:  map[statestore.SessionKey]string{},
		pledged: &pledges{},
		waits:   waits{}, handOffs: handOffLeast,
		version: new(atomic.Uint64),
	}
	h.keeper.pledge(func() map[string]float64 { return w.pledged.all(time.Now()) })
	gone := func(who statestore.Owner) bool { return lost(r.o.Snapshot(h.job.Pool), who, w.version.Load()) }
	w.mover = &mover{
		store: r.store, keeper: h.keeper, pace: newBudgets(pace, prewarm), ref: h.job.Ref(), grace: grace,
		board: newBoard(r.store, h.job.ID, min(grace, pollPatience), gone), gone: gone,
		lives: r.o.Lifetimes(h.job.Pool), need: r.o.Require(h.job.Pool),
		takes:  func(target statestore.Owner) bool { return mayTake(r.o.Snapshot(h.job.Pool), target) },
		rounds: map[statestore.SessionKey]int{},
		over:   func(ctx context.Context, job string) bool { return r.yields(ctx, h.job.Kind, job) },
	}
	return w
}

// yields reports whether a job of the kind may take what the other has reserved: a
// drain from a rebalance, since only one of the two can wait.
func (r *Runner) yields(ctx context.Context, kind, other string) bool {
	if kind != KindDrain {
		return false
	}
	job, _, err := r.store.Job(ctx, other)
	return err == nil && job.Kind == KindRebalance || errors.Is(err, statestore.ErrNotFound)
}

// rest returns when nobody looks for answers any more.
func (w *work) rest() { w.mover.board.wait() }

// setDeadline turns the store's deadline into one on this process's monotonic
// clock, which no step of either wall clock moves.
func (w *work) setDeadline(now statestore.Millis) {
	w.deadline = time.Now().Add(w.job.Deadline.Sub(now))
}

// report logs what holds the job up, once until it goes on.
func (w *work) report(ctx context.Context, err error) {
	if err != nil && !w.stuck {
		w.log.WarnContext(ctx, "job is held up", "job", w.job.ID, "reason", err.Error())
	}
	w.stuck = err != nil
}

// insist repeats act until it succeeds, the job is lost, ctx ends, or an operator
// asks for what the caller does not want to miss.
func (w *work) insist(ctx context.Context, missed func() bool, act func(context.Context) error) error {
	for {
		err := act(ctx)
		switch {
		case err == nil, missed():
			return nil
		case errors.Is(err, errLost):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		w.report(ctx, err)
		if err := sleep(ctx, w.retry.pause()); err != nil {
			return err
		}
	}
}

// cancelled reports whether an operator asked for the end.
func (w *work) cancelled() bool { return w.keeper.asked() == statestore.ControlCancel }

func never() bool { return false }

// loop takes turns until the job ends, and returns the state it ended in. Its
// error says why the holding ended before the job.
func (w *work) loop(ctx context.Context, turn, cancel func(context.Context) (statestore.JobState, error)) (statestore.JobState, error) {
	for {
		if w.cancelled() {
			return cancel(ctx)
		}
		end, err := turn(ctx)
		switch {
		case end != "":
			return end, nil
		case errors.Is(err, errLost):
			return "", err
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		}
		w.report(ctx, err)
	}
}

// turn acts once, and waits until it is worth acting again. It is cut short,
// without an error, when an operator asks for something and when the stage of the
// job's time is over.
func (w *work) turn(outer context.Context, stage time.Duration, act func(context.Context) (statestore.JobState, time.Duration, error)) (statestore.JobState, error) {
	if w.keeper.asked() == statestore.ControlPause && time.Now().Before(w.deadline) {
		w.keeper.enter(statestore.JobPaused, PhasePaused)
		return "", w.keeper.next(outer, time.Until(w.deadline))
	}
	ctx, stop := w.keeper.working(outer, stage)
	defer stop()
	end, wait, err := act(ctx)
	cut := ctx.Err() != nil && outer.Err() == nil
	switch {
	case end != "", errors.Is(err, errLost):
		return end, err
	case cut:
		return "", nil
	}
	_ = sleep(ctx, wait) // cut short is as good as over
	return "", err
}

// reconcile settles the commits in hand while no step is under way.
func (w *work) reconcile(ctx context.Context) error {
	var inHand, unproven []intent
	w.keeper.look(func(m *memo) { inHand, unproven = m.InHand.list(), m.Unproven.list() })
	for _, in := range inHand {
		if r := w.mover.recount(ctx, in, true); r.err != nil {
			return r.err
		}
	}
	for _, in := range unproven {
		err := orLost(w.mover.prove(ctx, in))
		if errors.Is(err, errLost) {
			return err
		}
		if err == nil {
			w.keeper.update(func(m *memo) { m.Unproven.drop(in) })
		}
	}
	open := 0
	w.keeper.look(func(m *memo) { open = len(m.InHand) })
	if open > 0 {
		return fmt.Errorf("the outcome of %d commits is not known yet", open)
	}
	return nil
}
