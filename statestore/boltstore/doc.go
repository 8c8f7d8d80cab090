// Package boltstore keeps sessions in one file, for one process: what runs when
// no Redis is named.
//
// # What an answer means
//
// A write is answered after fsync, never before: its [statestore.Durability] is
// LevelFsynced. TestKillLosesNothing kills the process at random moments and
// looks for what it acknowledged. Writes that wait at the same time share one
// transaction and one fsync (TestWaitingWritesShareATransaction); each is judged
// in its turn by [berth/statestore/internal/rules], sees what those before it
// did, and is refused without harm to the others (TestRefusalsHarmNoNeighbour).
//
// A commit that fails is told apart by what the file shows afterwards: the old
// state is a definite refusal ([statestore.ErrFull] or [statestore.ErrUnavailable]),
// the new one was written but perhaps not synced, which is a
// [statestore.OutcomeUnknownError].
//
// No transaction waits for a client. A load reads its turns in pages, each in a
// transaction of its own, and notices by the record when a write shortened,
// replaced or ended what it reads (ErrChanged). A delete or an expiry in the
// middle of a load is ErrChanged too: loading again says how the session ended.
//
// # The file
//
// bbolt buckets, one key space each; integers in keys are big-endian:
//
//	meta         name                             format, clock, fleet counters
//	sessions     digest                           record or tombstone (codec.go)
//	turns        digest, number                   frame
//	contexts     digest                           the context's meta
//	parked       digest, op digest                parked append
//	placements   digest, instance NUL incarnation age and descriptors
//	owned        pool NUL instance NUL digest     the instance index
//	counts       pool NUL instance                sessions in the index
//	due          ms, digest                       when to look whether it ended
//	fences       pool NUL instance NUL incarnation
//	jobfences    job                              token
//	beats        instance                         row of its heartbeats
//
// and JSON values in instances, leases, jobs, tasks, policies and keys. The due
// entry of a session may be early, never late: an append, which only moves the
// end away, leaves it, and the sweep files it again.
//
// # Time
//
// The store's clock never goes back, also not over a restart: the last moment of
// every commit is in the file (TestClockSurvivesRestart).
package boltstore
