// Package line lets processes that share a store do something one after the other,
// where each has to see what the one before did.
//
// Whoever's turn it is holds a lease, for twice as long as it may act: a process that
// died in its turn keeps others waiting for the length of the lease, and one that is
// only slow has given up before the next one begins. What it had sent by then may
// still land late; that is told by no lease.
package line

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"berth/statestore"
)

// Times of a turn.
const (
	Lease = 10 * time.Second
	Turn  = Lease / 2    // until what is done in a turn is given up
	Wait  = Lease + Turn // for a turn
)

// Pauses between looks whether it is one's turn.
const (
	shortestPause = 5 * time.Millisecond
	longestPause  = 100 * time.Millisecond
)

// releaseTime bounds giving the turn back; it ends by itself.
const releaseTime = 10 * time.Second

// Place is a turn at something.
type Place struct {
	leases statestore.Leases
	held   statestore.Lease
	until  time.Time
}

// Join waits for the turn at what the lease's name stands for. Callers within one
// process wait for each other, too. When nobody gives way in time that is a
// [statestore.ErrUnavailable].
func Join(ctx context.Context, leases statestore.Leases, name, process string) (Place, error) {
	waiting, stop := context.WithTimeout(ctx, Wait)
	defer stop()
	holder, next := process+"/"+rand.Text(), shortestPause
	for {
		until := time.Now().Add(Turn)
		lease, err := leases.AcquireLease(ctx, name, holder, Lease)
		var held *statestore.LeaseHeldError
		switch {
		case err == nil:
			return Place{leases, lease, until}, nil
		case !errors.As(err, &held):
			return Place{}, fmt.Errorf("wait in line for %s: %w", name, err)
		}
		select {
		case <-waiting.Done():
			return Place{}, fmt.Errorf("wait in line for %s: %w: %w", name, statestore.ErrUnavailable, context.Cause(waiting))
		case <-time.After(next/2 + mathrand.N(next/2+1)): //nolint:gosec // spreads looks, keeps no secret
			next = min(2*next, longestPause)
		}
	}
}

// Do acts in the turn, and gives it back.
func (p Place) Do(ctx context.Context, act func(context.Context) error) error {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		_ = p.leases.ReleaseLease(ctx, p.held) // it ends by itself
	}()
	ctx, cancel := context.WithDeadline(ctx, p.until)
	defer cancel()
	return act(ctx)
}
