package demo

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"berth/client"
	"berth/cmd/berth/internal/trace"
)

// check loads every session and holds it against what was acknowledged.
func (p *performance) check(ctx context.Context, sessions int) error {
	reader, err := client.NewWorker(p.crew.berth, client.Instance{ID: "reader", Pool: tracePool, Address: "127.0.0.1:1"})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	var lost, surplus, done atomic.Int64
	for n := range sessions {
		group.Go(func() error {
			s, err := reader.Open(sessionKey(trace.Turn{Session: n}))
			if err != nil {
				return err
			}
			_, turns, err := s.Load(ctx, 0)
			if err != nil && !errors.Is(err, client.ErrNotFound) {
				return fmt.Errorf("load session %d: %w", n, err)
			}
			loaded := make([][]byte, len(turns))
			for i := range turns {
				loaded[i] = turns[i].Value
			}
			v := p.ledger.Check(n, loaded)
			lost.Add(int64(v.Lost))
			surplus.Add(int64(v.Surplus))
			if k := done.Add(1); k%100 == 0 {
				p.say.Progress("loading every session", int(k), sessions)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("check what was saved: %w", err)
	}
	p.say.Progress("loading every session", sessions, sessions)
	p.tally.Lost(int(lost.Load()))
	p.say.Say("all %d sessions loaded and compared with what was acknowledged: %d turns lost, %d doubled", sessions, lost.Load(), surplus.Load())
	if surplus.Load() > 0 {
		return fmt.Errorf("%d turns are stored that nobody acknowledged", surplus.Load())
	}
	return nil
}
