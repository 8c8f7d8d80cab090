// Package storetest is the conformance suite of package statestore: every
// backend that passes [Run] gives the same answers (R16). Names like R16 and T03
// in comments are those of the cases from the field that a trace plays.
//
// The suite has two halves. Traces are short stories with a name that reads as a
// specification; each plays one way in which a turn was once lost, doubled or
// owned twice. The machine in machine.go drives random sequences of every write,
// with lost replies, late copies, fences, expiries and stores that go back in
// time, and compares each answer with a model that knows nothing of the rules'
// code: model.go is written from the contract in the plainest form, over the
// complete history of a session.
//
// A backend's own test hands over a [Backend] and adds only what this suite
// cannot see from outside: its files, its scripts, its failures.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Backend{Open: open, Advance: advance})
//	}
package storetest
