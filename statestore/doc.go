// Package statestore is the contract between Berth and the place where sessions
// live. It holds types, errors and interfaces, and nothing that acts: the two
// backends, [berth/statestore/boltstore] and [berth/statestore/redisstore],
// keep the promises below, and [berth/statestore/storetest] is the suite that
// holds both of them to the same answers.
//
// # Who may write
//
// A session is known by its [SessionKey]. Its [Record] names an owner (one
// boot of one instance) and an epoch, the fencing token. Every change of owner
// takes a new epoch, max(epoch+1, the store's clock in ms), so that a number is
// never issued twice, not even after the store lost the first issue.
//
//	           first append              move (tail stays)
//	(nothing) ─────────────▶ owned ◀───────────────────────▶ owned by the target
//	    ▲                    │  ▲                               │
//	    │ tombstone          │  └──────── claim ────────────────┤
//	    │                    ▼ finish, detach                   ▼
//	 expired, deleted ◀── ownerless ◀───────────────────────────┘
//
// # Order of checks
//
// Every write is judged in this order, atomically, by the clock of the store:
//
//	expired or deleted → known op → op forgotten → lineage → fence →
//	owner and epoch → version → size
//
// The rules themselves stand, as pure functions, in
// [berth/statestore/internal/rules].
//
// # What a handle proves
//
// A caller presents what it was last told of the session: a [Floor] of epoch,
// version and the op that made that version. A store that holds less, or
// another op there, has lost something it promised, and says so with
// [StoreBehindError] before it looks at anything else.
//
// # Time
//
// The clock is the store's. Callers pass durations; answers carry ages and
// remaining times, so that no caller compares its own clock with the store's.
package statestore
