// Package rules judges writes to a session: what is accepted, what it changes,
// and which refusal wins.
//
// Nothing here does I/O or reads a clock. A [Slot] is what a store found in the
// place of a session; each function takes it with the store's time and either
// changes it in place or returns one of the typed errors of package statestore,
// in which case the slot is as it was.
//
// boltstore calls these functions. redisstore plays the same rules in Lua, since
// they must run where the data is; the conformance suite storetest holds the two
// to the same answers, with named traces and with random sequences against a
// model of its own.
package rules
