// Package client talks to Berth on behalf of inference workers and gateways. It
// imports nothing of the server, only the standard library and golang.org/x/sync.
//
// # What it is for
//
// A [Gateway] asks where a session belongs ([Gateway.Route]) and reports how
// requests ended ([Gateway.Outcomes], [Reporter]). A [Worker] speaks for one
// instance: it registers it, beats for it, takes tasks ([Worker.Run]) and opens
// sessions ([Worker.Open]). A [Session] is one conversation as its worker knows
// it:
//
//	request ──▶ Offer(hint) ──▶ Current? ──no──▶ Recover(claim) ──▶ serve ──▶ Append
//	                               └────────────yes──────────────────▲
//
// # What it promises
//
//   - The newest handle is the one presented, and never an older one again
//     (TestNewestHandleIsKept). Handles are opaque; their order is that of the
//     epochs and versions that came with them.
//   - A write is repeated with the same op, handle and body until it is
//     answered, at most for an hour (TestAppendRepeatsTheSameBytesUntilAnswered),
//     on another process where one does not answer (TestFailsOverBetweenProcesses).
//   - After a conflict it reads what came first and writes under the same op, if
//     that is still meant (TestConflict).
//   - Accepted writes are kept until they are durable. A store that went back
//     gets them again, oldest first, each with its own op and its own handle
//     (TestRepairRepeatsLostWritesInOrder). Whatever connections and stores do,
//     nothing that was acknowledged is lost in silence or stored twice
//     (TestNothingLostOrDoubledByOneWriter, …ByParallelWriters, TestNothingLostInSilence).
//   - Turns come back as the bytes that were sent (TestTurnsComeBackAsTheBytesThatWereSent).
//   - Contents, handles, incarnations, tokens and session ids reach no log
//     (TestNothingSecretIsLogged).
//
// # Refusals
//
// A refusal is a [*Problem]; errors.Is compares it with a code such as
// [ErrNotOwner]. A write's error is a [*WriteError], which names the op: to go
// on with a write later, write the same again under it. [AnswerNotOwner] and
// [Forwarder] are what a worker does with a request whose session another
// instance owns.
//
// # What it does not do
//
// It keeps no context: turns are the caller's. It keeps no journal on disk: a
// worker that dies leaves to the store what it was not told to be durable. Two
// Sessions of one session do not know of each other. A write that was given up
// by its context is nobody's: if it was stored after all, the next one meets it
// as a conflict; and if the store then loses it, what came after it cannot be
// repaired from here, which the error says.
package client
