// Package redisstore keeps sessions in Redis 7.0 or later: standalone, behind
// Sentinel, or in a Cluster. Several processes share one store; none is special.
//
// # Where a decision is made
//
// Every transition of a session is one script, in lua/, that runs where the data
// is: it reads the record, judges the call in the order that package statestore
// states, and writes only when nothing is left to refuse. The scripts say in Lua
// what package rules says in Go; storetest holds both to the same answers, on a
// standalone server and on a Cluster of three primaries (TestStandalone,
// TestCluster).
//
//	          call                 KEYS of one session, one slot
//	Append ──────────▶ append.lua ─┬─ record      one packed string
//	        frames                 ├─ open tail   what is not yet a chunk
//	        in pieces              ├─ log         chunks, directory, meta
//	                               └─ due, index, fences of its partition
//
// # What an answer means
//
// A call that Redis did not answer is sent again, by this package and never by
// the client library. A repeated op is known by its record; any other change
// carries a random call number that the record, the tombstone or the fleet's
// transaction log remembers. So a change is made once however often it is sent
// (TestLostReply, TestLateReply, TestEveryChangeIsMadeOnce), and if no answer
// comes it is a [statestore.OutcomeUnknownError].
//
// [statestore.LevelFsynced] is said only when every server confirmed
// `appendfsync always`, or WAITAOF did for this write (TestKilledServerKeepsWhatItAcknowledged).
//
// # The log of a session
//
// The context is one stream of frames. It is cut into chunks whose sizes fit the
// allocator, wherever frames begin and end; what follows the last chunk is the
// open tail. Small writes travel in the script's call; large ones are staged as
// chunks of their own before, and linked by the script. So the cost of an append
// does not grow with its session (TestAppendCostIsFlat, BenchmarkAppend), and a session takes
// little more than its bytes (TestMemory). A chunk's name is never given twice: a
// load that finds one reads what was written under it, and one that does not is
// [statestore.ErrChanged].
//
// # When memory is full
//
// Appends are refused as a whole, with [statestore.ErrFull]; loads, claims, moves,
// deletes and fences still work (TestFullMemory). A server that evicts keys is
// refused at start (TestEvictionIsRefused).
package redisstore
