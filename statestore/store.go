package statestore

import (
	"context"
	"iter"
	"time"
)

// Store is everything a backend keeps. Consumers declare the few methods they
// need; this sum is for wiring and for the conformance suite.
type Store interface {
	Sessions
	Contexts
	Index
	Fleet
	Fences
	Leases
	Jobs
	Tasks
	Policies
	Keys
	Notes
	Feed
	// Describe says what the backend is and what it gives.
	Describe(ctx context.Context) (Description, error)
	Close() error
}

// Description is what a backend says about itself.
type Description struct {
	Backend    string // bolt, redis, redis-sentinel, redis-cluster
	Durability Level  // what an acknowledged write has reached at least
	Partitions int
	Warnings   []string // for people, at start
}

// Sessions are the writes that section "Order of checks" judges. Each is one
// atomic transition. They return the typed errors of this package; a store that
// was asked to change and did not answer, also not to a repetition, is an
// [OutcomeUnknownError].
type Sessions interface {
	// Lookup reads a record. A session that is not there is a view with Exists
	// false and its tombstone, if there is one.
	Lookup(ctx context.Context, key SessionKey) (View, error)
	Append(ctx context.Context, a Append) (Receipt, error)
	Replace(ctx context.Context, r Replace) (Receipt, error)
	Claim(ctx context.Context, c Claim) (Claimed, error)
	Move(ctx context.Context, m Move) (Moved, error)
	Reserve(ctx context.Context, r Reserve) error
	Finish(ctx context.Context, f Finish) (Receipt, error)
	Delete(ctx context.Context, d Delete) (Ended, error)
	// Bind returns false when there is nothing to bind: turns are stored, the
	// epoch has gone on, or the instance is fenced.
	Bind(ctx context.Context, b Bind) (bool, error)
	// PutPlacements replaces what by said before; an empty set removes it.
	// ErrNotFound without a session, TooLargeError over 64 KiB a session.
	PutPlacements(ctx context.Context, key SessionKey, by Owner, descriptors []byte) error
}

// Contexts read turns.
type Contexts interface {
	// Load reads the record, and the turns from the from-th (from 0) lazily. A
	// session that is not there is a reading with Exists false.
	Load(ctx context.Context, key SessionKey, from uint64) (Reading, error)
}

// Index finds sessions, and ends those whose time is over.
type Index interface {
	// SessionsOf yields the sessions that any boot of the instance owns, once
	// each unless they change hands meanwhile.
	SessionsOf(ctx context.Context, pool, instance string) iter.Seq2[View, error]
	// CountSessions counts them by pool and instance; lapsed ones count.
	CountSessions(ctx context.Context) (map[InstanceName]int, error)
	// List yields up to limit sessions of a tenant (empty: all) after the
	// cursor, and the cursor for the next call, empty at the end.
	List(ctx context.Context, q SessionQuery) ([]View, string, error)
	// Sweep ends sessions and staged writes whose time is over, at most limit
	// of each kind, and reports how many it ended.
	Sweep(ctx context.Context, limit int) (int, error)
}

// InstanceName names an instance within a pool.
type InstanceName struct{ Pool, Instance string }

// SessionQuery selects sessions for an operator. Empty fields select all.
type SessionQuery struct {
	Tenant, Pool, Instance string
	AffinityKey            AffinityKey
	Cursor                 string
	Limit                  int
}

// Fences stop writes of instances and job runners that are out of date, where
// the data is: in every partition.
type Fences interface {
	// Fence writes the change to all partitions; when it returns without error
	// every later first append, claim, reserve and move reads it.
	Fence(ctx context.Context, f Fence) error
}

// Fence is one change of the fences.
type Fence struct {
	Pool string
	Add  []Owner // nobody is bound to these any more
	Drop []Owner // these may be bound again
	// Job, unless zero, raises the job's token: lower ones are refused.
	Job JobRef
}

// Leases elect one holder by name.
type Leases interface {
	// AcquireLease takes the lease when it is free or over, or renews it for its
	// holder. A new holding gets a higher token; a renewal keeps it. Held by
	// another: LeaseHeldError.
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (Lease, error)
	// ReleaseLease ends the lease if holder still has it.
	ReleaseLease(ctx context.Context, l Lease) error
}

// Lease is a holding of a lease.
type Lease struct {
	Name, Holder string
	Token        uint64
}

// Policies are the pools' settings, kept as JSON that services understand. Where one
// is stored, there is the pool.
type Policies interface {
	// PutPolicy replaces a policy; its version grows by one. It is read in a
	// [FleetView], together with the instances that it is about.
	PutPolicy(ctx context.Context, pool string, doc []byte) (Policy, error)
	// DeletePool removes the pool, if it is there, with its policy. While an instance
	// is registered in it or a job of it has not ended: PoolInUseError.
	DeletePool(ctx context.Context, pool string) error
}

// Policy is one pool's stored settings. Version 0, without a Doc, is a pool whose
// first instance came before anybody put a policy.
type Policy struct {
	Version uint64
	Doc     []byte
}

// Keys are the secrets that sign handles.
type Keys interface {
	// SigningKeys returns the stored keys, newest first. The first caller of a
	// new store creates one.
	SigningKeys(ctx context.Context) ([]SigningKey, error)
}

// SigningKey is one secret with its id.
type SigningKey struct {
	ID     [2]byte
	Secret []byte // 32 bytes
}

// Feed tells of changes.
type Feed interface {
	// Watch yields events until ctx ends. It may lose some: then it sends a
	// [EventGap], after which nothing that was cached can be trusted.
	Watch(ctx context.Context) (<-chan Event, error)
}

// EventKind says what changed.
type EventKind uint8

// Kinds of events.
const (
	EventGap     EventKind = iota // events were lost
	EventSession                  // owner, end or first write of Session
	EventFleet                    // registry, state or policy of a pool
	EventTasks                    // a task for Instance
	EventJob                      // job Job
)

// Event is one change.
type Event struct {
	Kind     EventKind
	Session  SessionDigest
	Epoch    uint64
	Instance string
	Job      string
}
