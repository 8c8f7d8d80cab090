package migrations

import (
	"context"
	"iter"
	"time"

	"berth/statestore"
)

// Store is what a runner needs of the store.
type Store interface {
	fleetStore
	sessionStore
	taskStore
	statestore.Jobs
	statestore.Leases
	statestore.Fences
}

// fleetStore tells of instances and changes their lifecycle.
type fleetStore interface {
	FleetView(ctx context.Context) (statestore.FleetView, error)
	SetLifecycle(ctx context.Context, who statestore.Owner, change statestore.LifecycleChange) (statestore.Instance, error)
}

// sessionStore finds sessions and moves them.
type sessionStore interface {
	SessionsOf(ctx context.Context, pool, instance string) iter.Seq2[statestore.View, error]
	CountSessions(ctx context.Context) (map[statestore.InstanceName]int, error)
	List(ctx context.Context, q statestore.SessionQuery) ([]statestore.View, string, error)
	Lookup(ctx context.Context, key statestore.SessionKey) (statestore.View, error)
	Reserve(ctx context.Context, r statestore.Reserve) error
	Move(ctx context.Context, m statestore.Move) (statestore.Moved, error)
	Claim(ctx context.Context, c statestore.Claim) (statestore.Claimed, error)
}

// taskStore asks workers and hears their answers.
type taskStore interface {
	PutTasks(ctx context.Context, tasks []statestore.Task, deadline time.Duration) error
	ReadTasks(ctx context.Context, ids []string) ([]statestore.Task, error)
	DropTasks(ctx context.Context, job string) error
}
