// Package redisstore keeps sessions in Redis 7.0 or later: standalone, behind
// Sentinel, or in a Cluster. Several processes share one store; none is special.
//
// # Where a decision is made
//
// Every transition of a session is one function, in lua/, that runs where the data
// is: it reads the record, judges the call in the order that package statestore
// states, and writes only when nothing is left to refuse. The functions say in Lua
// what package rules says in Go; storetest holds both to the same answers, on a
// standalone server and on a Cluster of three primaries (TestStandalone,
// TestCluster).
//
//	        one call             KEYS of one session, one slot
//	Append ──────────▶ append.lua ─┬─ record      numbers, strings, the last ops
//	        turns as frames        ├─ open tail   small frames, in pieces
//	                               ├─ log         large ones in chunks, and meta
//	                               ├─ directory   where a chunk's turns begin
//	                               └─ due, index, fences of its partition
//
// They are a library that Redis keeps (FUNCTION LOAD, FCALL), and not scripts: a
// script builds its functions at every call, which costs more than what they do. A
// server that lost the library is given it again, and no caller hears of it
// (TestFlushedFunctionsAreLoadedAgain). What belongs to no session is changed by
// optimistic transactions, judged in Go and committed by commit.lua.
//
// # What an answer means
//
// A call that Redis did not answer is sent again, by this package and never by
// the client library. A repeated op is known by its record; any other change
// carries a random call number that the record, the tombstone or the fleet's
// transactions remember. So a change is made once however often it is sent
// (TestLostReply, TestLateReply, TestEveryChangeIsMadeOnce), and if no answer
// comes it is a [statestore.OutcomeUnknownError] (TestOutcomes).
//
// [statestore.LevelFsynced] is said only when every server confirmed
// `appendfsync always`, or WAITAOF did for this write
// (TestKilledServerKeepsWhatItAcknowledged); replicated only by WAIT on the
// connection that wrote (TestReplicatedWritesWaitForEveryReplica).
//
// # The log of a session
//
// The context is one stream of frames. What a write brings is stored as it came:
// its first bytes in chunks whose sizes fit the allocator, the rest in pieces.
// Nothing is joined or moved later, so the cost of an append does not grow with its
// session (TestAppendCostIsFlat, BenchmarkAppend), and a session takes little more
// than its bytes (TestMemory). Large writes are staged as chunks before, and linked
// by the call. A chunk's name is never given twice: a load that finds one reads
// what was written under it, and one that does not ends with
// [statestore.ErrChanged] (TestTornLoadEndsWithChanged).
//
// # Appends that come together
//
// Those of different sessions that wait at the same time are one call of a function
// on one server (TestAppendsThatComeTogether), after their chunks in one transaction
// (TestChunksSentForNothingAreRemoved). Plain ones are worked out here, by the record
// as it was, and stored if it still is that (TestAppendsWorkedOutLieAsJudgedOnes).
//
// # When memory is full
//
// Appends are refused as a whole, with [statestore.ErrFull]; loads, claims, moves,
// deletes and fences still work (TestFullMemory). A server that evicts keys is
// refused at start (TestEvictionIsRefused).
//
// # What the user of Redis needs
//
// Keys and the channel under the prefix, and of commands +@read +@write +@scripting
// +@transaction +@pubsub +@connection +info +time, and +cluster in a Cluster. Without +config|get nothing
// is promised beyond memory; without +wait and +waitaof nothing beyond what
// the server does anyway (TestForbiddenConfigIsNoPromise).
package redisstore
