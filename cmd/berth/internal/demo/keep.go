package demo

import (
	"context"
	"fmt"

	"berth/client"
	"berth/cmd/berth/internal/scoreboard"
)

// KeptPool is the pool of the workers that stay after the demo.
const KeptPool = "kept"

// Kept is a crew that goes on after the demo.
type Kept struct{ crew *crew }

// Keep starts three workers that beat and do tasks until closed.
func Keep(ctx context.Context, berth client.Config, fleet Fleet) (*Kept, error) {
	c := newCrew(context.WithoutCancel(ctx), berth, KeptPool, scoreboard.CacheBlocks)
	for _, id := range []string{"k1", "k2", "k3"} {
		if err := c.start(id); err != nil {
			return nil, err
		}
	}
	if err := c.awaitReady(ctx, fleet); err != nil {
		return nil, fmt.Errorf("wait for the instances: %w", err)
	}
	return &Kept{crew: c}, nil
}

// Close ends them.
func (k *Kept) Close() error { return k.crew.end() }
