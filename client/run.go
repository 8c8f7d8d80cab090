package client

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// Bounds of the time between two heartbeats, whatever Berth says, and that time
// before Berth has said it.
const (
	minBeat   = 50 * time.Millisecond
	maxBeat   = time.Minute
	firstBeat = 2 * time.Second
)

// RunConfig is how a worker lives.
type RunConfig struct {
	// Load is asked before each heartbeat. It must not block.
	Load func() Load
	// Tasks do what Berth asks of the instance. A worker without any neither polls
	// nor answers, and its sessions move without its help.
	Tasks TaskHandlers
	// TasksAtOnce is how many tasks are done at the same time, DefaultTasksAtOnce
	// when zero. Handlers are called from as many goroutines.
	TasksAtOnce int
}

// Run registers the instance and beats for it until ctx ends, which is no error.
// It registers again when Berth does not know the instance any more, and beats
// as often as Berth asks. It gives up with ErrStaleIncarnation, when another
// boot of the instance has taken over: then this one must stop. It does not
// deregister.
func (w *Worker) Run(ctx context.Context, cfg RunConfig) error {
	t := newTaskRunner(w, cfg.Tasks, cfg.TasksAtOnce)
	if err := w.registerUntilKnown(ctx); err != nil {
		return unlessEnded(ctx, err)
	}
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.beat(gctx, cfg.Load, t) })
	if cfg.Tasks.any() {
		group.Go(func() error { return t.poll(gctx) })
	}
	err := group.Wait()
	t.wait()
	return unlessEnded(ctx, err)
}

// unlessEnded drops the error that is only the end of ctx.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func (w *Worker) registerUntilKnown(ctx context.Context) error {
	for {
		err := w.Register(ctx)
		var silent *UnansweredError
		if !errors.As(err, &silent) || ctx.Err() != nil {
			return err
		}
	}
}

// beat sends heartbeats, each as long after the last as that one's answer said.
func (w *Worker) beat(ctx context.Context, load func() Load, t *taskRunner) error {
	every, failures := firstBeat, backoff{}
	for {
		var l Load
		if load != nil {
			l = load()
		}
		answer, err := w.heartbeat(ctx, l, max(every, time.Second))
		var pause time.Duration // none after a registration: the first beat says whether it is ready
		switch {
		case err == nil:
			every = min(max(ms(answer.NextMS), minBeat), maxBeat)
			pause, failures.rounds = every, 0
			if t.handlers.any() {
				t.start(ctx, answer.Tasks)
			}
		case errors.Is(err, ErrUnknownInstance):
			w.conn.log().InfoContext(ctx, "berth does not know this instance, registering again", "instance", w.instance.ID)
			if err := w.registerUntilKnown(ctx); err != nil {
				return err
			}
		case errors.Is(err, ErrStaleIncarnation), ctx.Err() != nil:
			return err
		default:
			w.conn.log().WarnContext(ctx, "heartbeat failed", "instance", w.instance.ID, "error", err)
			pause = min(failures.next(), every)
			failures.rounds++
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}
