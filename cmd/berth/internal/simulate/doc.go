// Package simulate answers "what if": what would adding, draining, losing or
// overloading instances do to a pool? It plays a population of sessions in
// virtual time, without a server, through the code that decides in production:
// [routing.Decide] on snapshots, routing's breakers and ramps, and its tally for
// the targets of drains.
//
// # What is modelled
//
// Every instance runs so many requests at once and lets more wait. A turn costs
// the prompt blocks that the instance's cache lacks (package kvsim), then its
// answer. Loads are published once a second, as heartbeats do, and so are events,
// health and drains; everything else has its own moment. A gateway that meets a
// dead instance excludes it, asks again and reports the failure.
//
// Sessions come from a trace at its own times, from a synthetic population
// (workload.go says how it draws), or from a live fleet. A synthetic session
// waits for its answer, thinks, and asks again, so a slower policy is asked less;
// what is drawn for it is the same under every policy. Equal scenarios give equal
// figures (TestRunsAreEqual).
//
// # What the figures mean
//
// The load of an instance is its requests in flight, running and waiting, summed
// over the seconds it was there; its fair share is everybody's, divided by the
// weights in force. max_mean_load is the worst ratio of the two over the run, and
// stddev_mean_load how far the ratios stray from 1; the series has both for each
// stretch, and the peak is the worst of those.
//
// The hit rate is prompt blocks found in the cache ÷ all; recomputed tokens are
// those computed before somewhere and computed again. A jump is a turn served
// elsewhere than the turn before it, a live one by a session that had affinity.
// An event is charged with the jumps that it made necessary, however late they
// come, and with all others up to the next event. Its moved sessions are those
// with affinity that lost their place: all that a killed or drained instance
// held, whether they come back or not, and all others that jumped. Its moved
// share is the part of the key space whose first choice changed.
//
// # What other policies are granted
//
// They know a change the moment it happens and never ramp; a drained instance
// finishes what it serves and is gone. Random, modulo and the plain ring know no
// loads; the bounded ring places every turn under the bound, without a memory.
//
// # What it must show
//
//   - a million sessions on a hundred instances are balanced, with and without a bound: TestBalance, TestBoundUnderZipf
//   - an instance that joins takes no session with affinity, and reaches its share of new ones: TestAddMovesNobody, TestR39NewcomersGetTheirShare
//   - the death of one moves its sessions and no others: TestKillMovesItsSessionsOnly
//   - a hot set of sessions does not stay on one instance: TestR43HotSessionsSpread
package simulate
