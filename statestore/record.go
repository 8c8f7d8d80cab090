package statestore

import "time"

// What a record remembers, per session.
const (
	OpsRemembered     = 32
	ChangesRemembered = 16
	ParkedLimit       = 8
)

// Millis is a moment on the store's clock, in ms since the Unix epoch. It is
// never compared with a clock outside the store.
type Millis int64

// Add moves a moment; fractions of a millisecond are cut off.
func (m Millis) Add(d time.Duration) Millis { return m + Millis(d.Milliseconds()) }

// Sub is the time from earlier to m.
func (m Millis) Sub(earlier Millis) time.Duration {
	return time.Duration(m-earlier) * time.Millisecond
}

// Floor is what a caller was last told of a session: its epoch, its version and
// the op that made that version. Version 0 has no op.
type Floor struct {
	Epoch   uint64
	Version uint64
	Op      OpDigest
}

// Presented is what a verified handle proves about its holder.
type Presented struct {
	Floor
	// Second is a floor that left the record's lineage before the handle was
	// made; it is checked beside Floor.
	Second *Floor
	// Named says that the handle may claim and names the caller.
	Named bool
	// AffinityKey travels from the route that hinted a new session to the
	// append that creates it.
	AffinityKey AffinityKey
}

// Record is what a store holds of a session besides its turns.
type Record struct {
	Key         SessionKey
	AffinityKey AffinityKey

	Owner   Owner
	Epoch   uint64
	Version uint64 // accepted writes to the context
	Turns   uint64
	Tokens  uint64 // as told by the writers
	Bytes   uint64 // of the turns' values, as their writers sent them

	// Digest chains the digests of all accepted writes: records with equal
	// digests were written by the same history.
	Digest Digest
	// Rewritten is the version of the last write that shortened or replaced
	// what was there; 0 if none did. It tears loads that began before it.
	Rewritten uint64

	Created       Millis
	LastTurn      Millis
	BoundAt       Millis
	AffinityUntil Millis
	Expires       Millis

	Ops     []Op          // oldest first, one a version, the last OpsRemembered
	Changes []OwnerChange // oldest first, the last ChangesRemembered

	// Tail is the last owner before a row of moves; nil when nobody may still
	// append for it.
	Tail *Tail
	// Before is the tombstone that this session was created over.
	Before Tombstone
	// Lost is the loss that a claimant accepted, if one did.
	Lost *AcceptedLoss
	// Reserved is the move that a job plans for this session.
	Reserved *Reservation
}

// Digest is a SHA-1, the one digest that a script inside Redis can compute. It
// tells histories apart; it authenticates nothing.
type Digest [20]byte

// Op is one remembered write.
type Op struct {
	Op      OpDigest
	Content ContentDigest
	Version uint64 // the version it made
	Kept    uint64 // how many leading turns it left untouched
}

// OwnerChange says from which version on whom the session belonged to.
type OwnerChange struct {
	Epoch    uint64
	Version  uint64 // the version at which the epoch before this one ended
	Instance string // empty: nobody
	Reason   ChangeReason
	At       Millis
}

// ChangeReason says why an owner changed.
type ChangeReason string

// Reasons of a change of owner.
const (
	ChangeCreated  ChangeReason = "created"  // first append
	ChangeReported ChangeReason = "reported" // a gateway told who served, before any turn was stored
	ChangeClaimed  ChangeReason = "claimed"  // another instance took it over
	ChangeReplaced ChangeReason = "replaced" // a new boot of the same instance took it over
	ChangeLost     ChangeReason = "lost"     // claimed with an accepted loss
	ChangeMoved    ChangeReason = "moved"    // a job moved it
	ChangeDetached ChangeReason = "detached" // a job unbound it
	ChangeFinished ChangeReason = "finished" // the owner released it
)

// Tail is an owner whose late appends are still taken after a planned move.
type Tail struct {
	Owner Owner
	Epoch uint64
}

// AcceptedLoss covers floors of before: those below Epoch, up to version Want.
type AcceptedLoss struct {
	Epoch uint64
	Want  uint64
}

// Reservation is a job's claim on the next owner of a session. It binds nobody.
type Reservation struct {
	Job    JobRef
	Target Owner
	Until  Millis
}

// EndReason says how a session ended.
type EndReason string

// Ends of a session.
const (
	Expired EndReason = "expired"
	Deleted EndReason = "deleted"
)

// Tombstone stays where a session was. The zero value is no tombstone.
type Tombstone struct {
	Epoch  uint64
	Reason EndReason
}

// View is what one read of the store saw of a session.
type View struct {
	Record // zero unless Exists
	Exists bool
	// Tombstone is set where a session was and is no more.
	Tombstone Tombstone
	// Now is the store's clock at the read.
	Now Millis
}

// Live reports whether the session is bound and its affinity holds.
func (v View) Live() bool { return v.Exists && !v.Owner.IsZero() && v.Now < v.AffinityUntil }

// BindingAge is the time since the present owner was bound.
func (v View) BindingAge() time.Duration { return v.Now.Sub(v.BoundAt) }

// AffinityLeft is the time until the binding lapses, 0 when it has.
func (v View) AffinityLeft() time.Duration { return max(0, v.AffinityUntil.Sub(v.Now)) }

// Idle is the time since the last accepted write.
func (v View) Idle() time.Duration { return v.Now.Sub(v.LastTurn) }

// Floor is what a new handle says of the session: for one that is not stored,
// version 0 at the epoch of its tombstone.
func (v View) Floor() Floor {
	if !v.Exists {
		return Floor{Epoch: v.Tombstone.Epoch}
	}
	return v.Record.Floor()
}

// Floor is the newest thing a caller can be told of the record.
func (r *Record) Floor() Floor {
	f := Floor{Epoch: r.Epoch, Version: r.Version}
	if n := len(r.Ops); n > 0 {
		f.Op = r.Ops[n-1].Op
	}
	return f
}
