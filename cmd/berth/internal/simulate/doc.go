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
// A drain waits for turns under way, and prewarms, where workers cooperate. Where
// they pull no tasks it leaves a session in peace for the in-flight grace after its
// last turn, and who sends no heartbeat is safe to stop when the grace is over after
// the last hint (TestDrainsOfWorkersThatDoNotCooperate). Deadlines are not modelled.
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
//
// # What an event is charged with
//
// With what it made happen, however late and whatever else happens meanwhile:
// events may come in the same second (TestEventsCloseTogetherAreToldApart). A
// session that lost its place to a kill or a drain jumps because of that. Another
// one jumps because of what happened last to the instance that it leaves (its
// weight, its speed, a hot set on it), else because its new one joined. Under
// policies without memory only what happened since its last turn counts, and any
// change of the members may shuffle it. What remains is charged to no event: load
// is shed without any, and random jumps always.
//
// Moved sessions are those with affinity that lost their place: all that a killed
// or drained instance held, whether they come back or not, and all others that
// jumped. The moved share is the part of the key space whose first choice changed,
// told apart likewise; random has none. Recomputed tokens are those of the turns
// that lost their place, failed tries those that met the event's dead instances.
// New sessions and the hit rate are those of everybody until the next event.
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
//   - a hot set of sessions does not stay on one instance, where the policy lets go (max age) and the
//     pool has room, as it has by default: TestR43HotSessionsSpread; nor does it come back to it later: TestHotSessionsMakeNoSecondWave
package simulate
