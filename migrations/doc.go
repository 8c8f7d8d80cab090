// Package migrations moves sessions: off instances before those go away, and off
// instances that have too much to do. It also ends those of an affinity key.
//
// A drain, a rebalance or an erase is a job: stored, leased, fenced, and ended by its deadline. Any number
// of processes run a [Runner] on one store; each adopts the jobs whose lease is
// free, and none is special.
//
//	pending ─▶ planning ─▶ running ◀─▶ paused
//	                          │  ╲________ cancelling ─▶ cancelled
//	                          ▼
//	             succeeded, partial, failed
//
// The planner (planner.go), the order of "drained" (source.go) and the reading of
// fates (fate.go) decide and do nothing else: what they need comes as arguments.
//
// # What a job promises
//
//   - Commit is the only step that changes truth. Before it everything can be
//     dropped, after it everything can be done again: killed at any call, a job is
//     resumed by another process within a lease and ends the same
//     (TestResumeAfterDeathAtAnyStep, TestUnknownOutcomes).
//   - What is counted is read off the sessions. A commit is on record before it is
//     sent, and whoever holds the job next looks at that session to learn whether
//     it happened, so nothing counts twice (TestDeathRightAfterTheCommit).
//   - A holder that was paused past its lease can write nothing: the next one puts
//     its higher token into every partition before it acts
//     (TestPausedHolderCannotCommit).
//   - From the answer to the request on, nobody new is bound to the instance, and
//     who has moved does not come back (TestDrainedIsStrict).
//   - Cancelled means that nothing moves any more, within seconds, and that the
//     instance is what it was before (TestCancelHalfWay).
//
// # Rebalancing
//
// A rebalance moves sessions off instances that are over their bound, until what
// they have left would be below it, to instances that stay below theirs (shift.go).
// How many have to leave is measured once, at the begin, because load follows a move
// only with the next turns: an instance is never relieved twice of the same load
// (TestRebalanceRelievesAHotInstance). Sessions that an operator names move wherever
// they are. A drain takes what a rebalance has reserved
// (TestDrainTakesFromARebalance). Both can be previewed (preview.go).
//
// # Erasing
//
// An erase ends every session of an affinity key, as a job like the others (erase.go):
// it was asked for when somebody's data has to go, so it counts as done only when a
// whole scan finds nothing, and names what is left otherwise.
//
// # Drained
//
// An instance is said to be drained, safe to stop, only after all of this, in this
// order: its fence is in every partition; a whole scan found nobody bound to it;
// those moves have the pool's durability; the longest hint has passed since; and a
// heartbeat that was sent after that says that nothing runs and nothing waits.
// Heartbeats carry no time of sending, so the second that arrives is the proof:
// a worker sends it after the first was answered. An instance that never sent one,
// or is down, gets the in-flight grace instead. TestSourceFollowsTheStrictOrder
// plays every way through.
//
// # Handing over
//
// Workers pull tasks and are never called. A session that was active lately is
// handed over: its source puts the KV cache where others can read it (offload), its
// target builds its own (prewarm), its source lets the running turn end and says
// what it has saved (release), the owner is changed, and both are told
// (TestHandOffInItsOrder). A session that is written meanwhile is prewarmed once
// more and not a third time. Whoever does not pull, declines or does not answer
// within the in-flight grace is passed over; only a turn that still runs is waited
// for (handoff_test.go).
//
// # What counts as in flight
//
// Nobody tells Berth when a turn of one session begins; the store knows when one
// ended. A session counts as in flight while its last write is younger than the
// in-flight grace, unless its instance has sent a heartbeat since that says
// running 0 and waiting 0, or answers a release of this session. A turn that runs
// longer than the grace, on a session that was quiet before and whose instance
// pulls no tasks, is not seen: its session moves under it, and its save lands all
// the same, because a move leaves the last owner the right to append (the tail of
// package statestore, TestDrainOfPassiveWorkers). Sessions in flight are tried again
// until the deadline, where they are left, named, and the job is partial
// (TestDeadlineLeavesWhatIsInFlight). Sessions of a boot that is gone or down wait
// for nobody (TestSourcesThatAreNoMore).
package migrations
