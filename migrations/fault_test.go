package migrations

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"berth/statestore"
)

// errDead is what a process hears that is no more.
var errDead = errors.New("the process is dead")

// faulty stands between one process and the store. Its faults are asked before
// each call that writes and after it; the name is the method's. An error from
// before keeps the call from the store, one from after replaces its answer.
type faulty struct {
	statestore.Store
	before func(call string) error
	after  func(call string, err error) error
	// beforeMove is asked as well before a move.
	beforeMove func(m statestore.Move) error

	mu     sync.Mutex
	dead   bool
	frozen chan struct{} // closed to go on
}

func newFaulty(s statestore.Store) *faulty {
	return &faulty{
		Store:  s,
		before: func(string) error { return nil },
		after:  func(_ string, err error) error { return err },

		beforeMove: func(statestore.Move) error { return nil },
	}
}

// die makes every later call fail without reaching the store.
func (f *faulty) die() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
}

// freeze lets every later call wait, like SIGSTOP, and returns what ends that.
func (f *faulty) freeze() (thaw func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ice := make(chan struct{})
	f.frozen = ice
	return func() { close(ice) }
}

// alive waits while the process is frozen, and fails when it is dead.
func (f *faulty) alive() error {
	f.mu.Lock()
	ice := f.frozen
	f.mu.Unlock()
	if ice != nil {
		<-ice
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return errDead
	}
	return nil
}

func (f *faulty) write(call string, do func() error) error {
	if err := f.alive(); err != nil {
		return err
	}
	if err := f.before(call); err != nil {
		return err
	}
	// The fault may have been to freeze, or to die.
	if err := f.alive(); err != nil {
		return err
	}
	return f.after(call, do())
}

func (f *faulty) Reserve(ctx context.Context, r statestore.Reserve) error {
	return f.write("Reserve", func() error { return f.Store.Reserve(ctx, r) })
}

func (f *faulty) Move(ctx context.Context, m statestore.Move) (out statestore.Moved, err error) {
	m.Require = statestore.Requirement{} // the embedded store never replicates
	ctx = context.WithoutCancel(ctx)     // what a frozen process had sent arrives all the same
	err = f.write("Move", func() (err error) {
		if err := f.beforeMove(m); err != nil {
			return err
		}
		out, err = f.Store.Move(ctx, m)
		return err
	})
	return out, err
}

func (f *faulty) Claim(ctx context.Context, c statestore.Claim) (out statestore.Claimed, err error) {
	c.Require = statestore.Requirement{}
	err = f.write("Claim", func() (err error) { out, err = f.Store.Claim(ctx, c); return err })
	return out, err
}

func (f *faulty) Fence(ctx context.Context, v statestore.Fence) error {
	return f.write("Fence", func() error { return f.Store.Fence(ctx, v) })
}

func (f *faulty) SetLifecycle(ctx context.Context, who statestore.Owner, c statestore.LifecycleChange) (out statestore.Instance, err error) {
	err = f.write("SetLifecycle", func() (err error) { out, err = f.Store.SetLifecycle(ctx, who, c); return err })
	return out, err
}

func (f *faulty) AcquireJob(ctx context.Context, id, holder string, ttl time.Duration) (out statestore.Job, err error) {
	err = f.write("AcquireJob", func() (err error) { out, err = f.Store.AcquireJob(ctx, id, holder, ttl); return err })
	return out, err
}

func (f *faulty) SaveJob(ctx context.Context, ref statestore.JobRef, s statestore.JobState, p []byte, ttl time.Duration) (out statestore.Job, err error) {
	err = f.write("SaveJob", func() (err error) { out, err = f.Store.SaveJob(ctx, ref, s, p, ttl); return err })
	return out, err
}

func (f *faulty) PutTasks(ctx context.Context, t []statestore.Task, d time.Duration) error {
	return f.write("PutTasks", func() error { return f.Store.PutTasks(ctx, t, d) })
}

func (f *faulty) DropTasks(ctx context.Context, job string) error {
	return f.write("DropTasks", func() error { return f.Store.DropTasks(ctx, job) })
}

func (f *faulty) Lookup(ctx context.Context, key statestore.SessionKey) (statestore.View, error) {
	if err := f.alive(); err != nil {
		return statestore.View{}, err
	}
	return f.Store.Lookup(ctx, key)
}

func (f *faulty) FleetView(ctx context.Context) (statestore.FleetView, error) {
	if err := f.alive(); err != nil {
		return statestore.FleetView{}, err
	}
	return f.Store.FleetView(ctx)
}

func (f *faulty) SessionsOf(ctx context.Context, pool, instance string) iter.Seq2[statestore.View, error] {
	return func(yield func(statestore.View, error) bool) {
		if err := f.alive(); err != nil {
			yield(statestore.View{}, err)
			return
		}
		f.Store.SessionsOf(ctx, pool, instance)(yield)
	}
}

func (f *faulty) Job(ctx context.Context, id string) (statestore.Job, statestore.Millis, error) {
	if err := f.alive(); err != nil {
		return statestore.Job{}, 0, err
	}
	return f.Store.Job(ctx, id)
}
