// Package pause waits for a while, or until who waits gives up.
package pause

import (
	"context"
	"time"
)

// For returns after d, or earlier once ctx has ended: then with ctx's error, whatever d is.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err()
	}
}
