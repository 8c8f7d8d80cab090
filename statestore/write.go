package statestore

import (
	"fmt"
	"time"
)

// Lifetimes are how long things hold after an accepted write, by the pool's policy.
type Lifetimes struct {
	Affinity  time.Duration // idle time after which a binding lapses
	Retention time.Duration // idle time after which the session ends
	Tombstone time.Duration // how long an end is remembered: an hour longer than handles live
}

// At says where an append goes.
type At uint8

// Places of an append.
const (
	AtVersion At = iota // after the handle's version, which must be current
	AtEnd               // after whatever is there: parallel requests of one owner
)

// Append is a write of turns by an owner, or the first write of a session.
type Append struct {
	Key      SessionKey
	By       Owner
	Handle   Presented
	Op       string
	At       At
	Base     *uint64 // keep this many leading turns, drop the rest; nil keeps all
	Recreate bool    // allowed to begin anew after a delete
	Turns    []Turn
	Meta     []byte // JSON; nil leaves what is there
	Lifetimes
	Require Requirement
}

// Replace is a write of the whole context: compaction, import.
type Replace struct {
	Key      SessionKey
	By       Owner
	Handle   Presented
	Op       string
	Recreate bool
	Turns    []Turn
	Meta     []byte
	Lifetimes
	Require Requirement
}

// Receipt answers an accepted write, and a repeated one.
type Receipt struct {
	Epoch      uint64 // as of now
	Version    uint64 // the version this op made
	Turns      uint64 // as of now
	Bytes      uint64 // as of now
	Owner      Owner  // as of now
	Floor      Floor  // for the writer's next handle
	Durability Durability
	Affinity   time.Duration // left
	Duplicate  bool          // the op was known
	Moved      bool          // the writer is the tail: Owner is whom the session moved to
	Parked     bool          // the op had been parked, and is adopted by this write
	// Arrived: it is the writer's first, of a session that jobs moved to it from
	// another instance.
	Arrived bool
}

// Claim takes a session over. Handle is nil for a claimant that holds none.
type Claim struct {
	Key    SessionKey
	By     Owner
	Handle *Presented
	// Have is the floor of the claimant's own copy, if it told one.
	Have *Floor
	// Gone is an owner that the fleet lost (gone, down or another boot since).
	// While the session still belongs to it, no handle is needed.
	Gone       Owner
	AcceptLost bool
	Lifetimes
	Require Requirement
}

// Claimed answers a claim. When View.Exists is false there was nothing to claim
// and nothing was stored.
type Claimed struct {
	View
	Changed    bool  // a new epoch was taken
	Lost       *Loss // what the claimant accepted
	Durability Durability
}

// Loss says what the store held and what had been promised.
type Loss struct{ HaveVersion, HaveTurns, WantVersion uint64 }

// Move commits a planned change of owner for a job. A zero To unbinds.
type Move struct {
	Key   SessionKey
	From  Owner
	Epoch uint64 // of the session when the move was planned
	To    Owner
	Job   JobRef
	// Over is a job whose reservation this one passes over. That of any other job
	// stops the move, as a LeaseHeldError named "reservation".
	Over string
	Lifetimes
	Require Requirement
}

// Moved answers a move.
type Moved struct {
	Epoch      uint64
	Version    uint64
	Durability Durability
}

// Reserve announces a move without binding anybody; the reservation ends by
// itself, at the commit, or when Until is 0.
type Reserve struct {
	Key    SessionKey
	Epoch  uint64
	Target Owner
	Job    JobRef
	// Over is a job whose reservation this one takes away.
	Over string
	For  time.Duration
}

// Finish releases a session: owner none, context kept.
type Finish struct {
	Key    SessionKey
	By     Owner
	Handle Presented
	Lifetimes
	Require Requirement
}

// Delete ends a session. Handle is nil for an operator, who may end any epoch.
type Delete struct {
	Key    SessionKey
	Handle *Presented
	Lifetimes
	Require Requirement
}

// Ended answers a delete.
type Ended struct {
	Existed    bool
	Epoch      uint64 // of the tombstone
	Placements []PlacementSet
	Durability Durability
}

// Bind reports who served a session that has no stored turns.
type Bind struct {
	Key    SessionKey
	Owner  Owner
	Handle Presented
	Lifetimes
}

// Level is how much a write outlives.
type Level uint8

// Levels of durability, weakest first.
const (
	LevelUnknown    Level = iota
	LevelMemory           // the process of the store
	LevelFsynced          // a crash of the store's machine
	LevelReplicated       // a failover, when all replicas have it
)

var levelNames = [...]string{"unknown", "memory", "fsynced", "replicated"}

// String is the level's name in the API.
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return levelNames[0]
}

// Durability is what a write reached.
type Durability struct {
	Level    Level
	Replicas int // that have it, of Of; only for LevelReplicated
	Of       int
}

func (d Durability) String() string {
	if d.Level == LevelReplicated {
		return fmt.Sprintf("replicated to %d of %d", d.Replicas, d.Of)
	}
	return d.Level.String()
}

// Requirement is the durability that a write must reach within Wait. The zero
// value takes what the store gives.
type Requirement struct {
	Level Level
	Wait  time.Duration
}

// MetBy reports whether d is enough. Replicated means all known replicas: any
// fewer may be the ones that lose a failover.
func (r Requirement) MetBy(d Durability) bool {
	if r.Level == LevelReplicated {
		return d.Level == LevelReplicated && d.Of > 0 && d.Replicas >= d.Of
	}
	return d.Level >= r.Level
}
