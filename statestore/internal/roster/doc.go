// Package roster is what both backends share of the fleet's registry: the stored
// form of a heartbeat, and the registry kept decoded between reads.
//
// A heartbeat changes a [Row] of some sixty bytes and no more; the record of a
// member, which is JSON, changes with its registration, its state or a verdict.
// An [Image] holds the decoded records, so that a read which finds only other
// heartbeats decodes no JSON (TestOtherLoadsDecodeNoMember), and one that finds
// nothing new copies nothing.
package roster
