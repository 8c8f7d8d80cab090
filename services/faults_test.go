package services_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"berth/statestore"
)

// faulty is a store whose calls a test can hold up or fail. Named calls go
// through before; the others pass.
type faulty struct {
	statestore.Store
	fault atomic.Pointer[func(ctx context.Context, call string) error]
	calls atomic.Int64 // lookups that reached the store
	looks atomic.Int64 // looks at open tasks
	watch atomic.Pointer[context.CancelFunc]
}

// fail makes before answer every named call from here on; nil ends the fault.
func (f *faulty) fail(before func(ctx context.Context, call string) error) {
	if before == nil {
		f.fault.Store(nil)
		return
	}
	f.fault.Store(&before)
}

func (f *faulty) before(ctx context.Context, call string) error {
	if fault := f.fault.Load(); fault != nil {
		return (*fault)(ctx, call)
	}
	return nil
}

func (f *faulty) Lookup(ctx context.Context, key statestore.SessionKey) (statestore.View, error) {
	if err := f.before(ctx, "lookup"); err != nil {
		return statestore.View{}, err
	}
	f.calls.Add(1)
	return f.Store.Lookup(ctx, key)
}

// Watch can be cut off by what it leaves in watch.
func (f *faulty) Watch(ctx context.Context) (<-chan statestore.Event, error) {
	if err := f.before(ctx, "watch"); err != nil {
		return nil, err
	}
	ctx, cut := context.WithCancel(ctx)
	f.watch.Store(&cut)
	return f.Store.Watch(ctx)
}

func (f *faulty) OpenTasks(ctx context.Context, by statestore.Owner, limit int) ([]statestore.Task, statestore.Millis, error) {
	f.looks.Add(1)
	return f.Store.OpenTasks(ctx, by, limit)
}

func (f *faulty) Append(ctx context.Context, a statestore.Append) (statestore.Receipt, error) {
	if err := f.before(ctx, "append"); err != nil {
		return statestore.Receipt{}, err
	}
	return f.Store.Append(ctx, a)
}

func (f *faulty) Claim(ctx context.Context, c statestore.Claim) (statestore.Claimed, error) {
	if err := f.before(ctx, "claim"); err != nil {
		return statestore.Claimed{}, err
	}
	return f.Store.Claim(ctx, c)
}

func (f *faulty) FleetView(ctx context.Context) (statestore.FleetView, error) {
	if err := f.before(ctx, "fleet"); err != nil {
		return statestore.FleetView{}, err
	}
	return f.Store.FleetView(ctx)
}

func (f *faulty) Load(ctx context.Context, key statestore.SessionKey, from uint64) (statestore.Reading, error) {
	if err := f.before(ctx, "load"); err != nil {
		return statestore.Reading{}, err
	}
	return f.Store.Load(ctx, key, from)
}

func (f *faulty) Bind(ctx context.Context, b statestore.Bind) (bool, error) {
	if err := f.before(ctx, "bind"); err != nil {
		return false, err
	}
	return f.Store.Bind(ctx, b)
}

// away is a store that refuses every call; hung one that never answers.
func away(context.Context, string) error {
	return fmt.Errorf("no connection: %w", statestore.ErrUnavailable)
}

func hung(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// setupFaulty is setup with a store that can fail.
func setupFaulty(t testing.TB, options ...option) (*bundle, *faulty) {
	t.Helper()
	f := &faulty{Store: openStore(t)}
	return setupOn(t, f, options...), f
}
