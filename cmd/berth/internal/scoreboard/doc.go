// Package scoreboard compares routing policies on one trace and the same
// events: what did they cost in recomputed prompts, who jumped, what was lost.
//
// A [Tally] keeps the books of one policy, whoever plays it. Berth itself is
// played against a real server; the baselines (random, round robin, modulo and
// a consistent-hashing ring without stored bindings) are played offline by
// [Baselines] on instances with the same simulated caches. A [Report] holds
// one [Policy] for each and is written as JSON or as a table.
//
// # What the figures mean
//
// A token figure is blocks × 512, so a partly filled last block counts whole.
// The hit rate is reused prompt blocks ÷ all prompt blocks; the ideal is the
// hit rate of one unbounded cache shared by the fleet. Recomputed tokens are
// those the ideal reuses and the policy prefills again; prewarmed tokens are
// prefilled too, only earlier, and stand beside them. A jump is a turn served
// elsewhere than the turn before it, and it is avoidable when the instance it
// left was still in service.
//
// The max/fair load (max_mean_load in JSON) is, for the worst instance, the
// prompt tokens it served divided by its fair share: every turn's tokens split
// evenly among the instances in service at that moment. So an instance is
// measured only over the time it was there, and 1.0 is perfect balance. It is
// not the max/mean of berth simulate, which compares the requests in flight,
// summed over the run.
//
// # What the baselines are given
//
// Every doubt goes in favour of the baselines. Their router learns of a death
// at once and without a failed request, so failed requests are 0 by
// construction. An instance that serves a turn has the whole conversation up
// to it, as if every client sent it along. A drained instance hands its
// conversations over before it stops.
//
// What remains is what a kill does to a conversation that only instances hold:
// lost turns counts, at the moment of the kill, the turns that were answered
// and of which no other instance has a copy. A client that keeps the whole
// conversation itself can send it again; the service cannot give it back. For
// Berth it counts the acknowledged turns that are missing or differ when every
// session is loaded at the end ([Ledger]).
//
// TestBaselinesOnTheConversationTrace holds the figures of the baselines, and
// TestStickyBindingsReachTheIdeal what is to be expected of Berth.
package scoreboard
