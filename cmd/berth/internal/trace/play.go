package trace

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Player hands out the turns of a trace without waiting out the times between
// them.
type Player struct {
	// Parallel is how many turns are served at once, at least 1.
	Parallel int
	// Before runs ahead of the i-th turn, in the goroutine that hands them
	// out: an event there has one place in the trace, while turns handed out
	// earlier may still be under way, as in life.
	Before func(ctx context.Context, i int) error
	// Serve serves one turn.
	Serve func(ctx context.Context, turn Turn) error
}

// Play hands out the turns in order, and never two of one session at a time: a
// turn waits for the one before it. The first error of Before or Serve ends
// the play, as does ctx.
func (p Player) Play(ctx context.Context, turns []Turn) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(p.Parallel)
	last := make(map[int]chan struct{}) // session → closed when its newest turn is served
	for i, turn := range turns {
		if err := p.ready(ctx, i); err != nil {
			group.Go(func() error { return err })
			break
		}
		previous, served := last[turn.Session], make(chan struct{})
		last[turn.Session] = served
		group.Go(func() error {
			defer close(served)
			if previous != nil {
				<-previous // handed out earlier: it holds a place of its own or is over
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			return p.Serve(ctx, turn)
		})
	}
	return group.Wait()
}

func (p Player) ready(ctx context.Context, i int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return p.Before(ctx, i)
}
