package services

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/routing"
)

// Rebuilding the rings of a large fleet takes milliseconds, and a rollout changes
// it many times a second: a process spends a restShare-th of its time on that at
// most. What is registered is known at once all the same; only where new sessions
// go follows a little later.
const (
	largeFleet  = 100 // instances
	restShare   = 10
	longestRest = 500 * time.Millisecond
)

// run keeps the image fresh until ctx ends.
func (f *fleet) run(ctx context.Context, onError func(error)) {
	tick := time.NewTicker(fleetPoll)
	defer tick.Stop()
	var due routing.Debounce
	for {
		if err := f.poll(ctx); err != nil && ctx.Err() == nil {
			onError(err)
		}
		if i := f.now(); i.built != i.view.Members {
			f.nudge() // it waits for its turn
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.wake:
			due.Window = time.Duration(f.rest.Load())
			if rebuild, wait := due.Due(time.Since(f.epoch), true); !rebuild && pause(ctx, wait) {
				due.Due(time.Since(f.epoch), true)
			}
		}
	}
}

// rested reports whether pools that changed may be built at once.
func (f *fleet) rested() bool {
	return time.Since(f.epoch) >= time.Duration(f.ended.Load()+f.rest.Load())
}

// tire notes what building the pools of a fleet cost.
func (f *fleet) tire(instances int, took time.Duration) {
	f.rest.Store(0)
	if instances >= largeFleet {
		f.rest.Store(int64(min(restShare*took, longestRest)))
	}
	f.ended.Store(int64(time.Since(f.epoch)))
}

// nudge makes run read soon.
func (f *fleet) nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// poll reads the registry on nobody's behalf, and returns also what is wrong with
// what it found.
func (f *fleet) poll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fleetTimeout)
	defer cancel()
	known := f.now().broken
	if err := f.refresh(ctx); err != nil {
		return err
	}
	var news []error
	for name, err := range f.now().broken {
		if known[name] == nil {
			news = append(news, fmt.Errorf("pool %s: %w", name, err))
		}
	}
	return errors.Join(news...)
}
