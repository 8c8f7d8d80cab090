package storetest

import (
	"fmt"

	"berth/statestore"
)

func lossTraces() []trace {
	return []trace{
		{"a version above the store's is noticed by everything that presents a handle", lossVersionAbove},
		{"a session that is lost as a whole is noticed", lossTotal},
		{"another op at that version is noticed", lossOtherOp},
		{"an old epoch that ended below that version is noticed", lossOldEpoch},
		{"an epoch that the store never saw is noticed", lossUnknownEpoch},
		{"a second floor and the floor of a copy are held as the handle's own", lossOtherFloors},
		{"a known op does not hide a loss", lossBeforeKnownOp},
		{"the lost writes again, oldest first, repair the session", lossRepaired},
		{"a repair where another owner has come since is parked for it", lossParked},
		{"a lost first append is repaired at the epoch of its repetition", lossOfFirst},
		{"an accepted loss is told, kept, and no new alarm", lossAccepted},
		{"a loss can be accepted by a claimant that is not the owner", lossAcceptedByOther},
		{"an owner that is fenced may accept a loss", lossAcceptedByFenced},
		{"accepting where nothing is lost changes nothing", lossAcceptedForNothing},
		{"a session that is lost as a whole can be accepted as lost", lossAcceptedTotal},
		{"a second accepted loss hides nothing that the first did not", lossAcceptedTwice},
		{"an epoch is never issued twice, not even after its issue was lost", lossOfEpoch},
		{"a copy of an ended life is no loss", lossOfEndedLife},
	}
}

// lossy prepares to bring back the store as it is at the call.
func (w *world) lossy() (lose func()) {
	w.Helper()
	if w.backend.Snapshot == nil {
		w.notTested("a store that goes back in time: this backend gives no snapshots")
	}
	restore := w.backend.Snapshot(w, w.store)
	return func() {
		w.Helper()
		w.goBack(restore, w.view().Floor().Epoch)
	}
}

// behind is the refusal of a store that was asked for more than it has.
func (w *world) behind(want uint64) *statestore.StoreBehindError {
	w.Helper()
	v := w.view()
	return &statestore.StoreBehindError{HaveVersion: v.Version, HaveTurns: v.Turns, WantVersion: want}
}

// noticed fails unless every call that takes a handle notices the loss.
func (w *world) noticed(a *worker, want uint64) {
	w.Helper()
	w.unchanged(func() {
		w.Helper()
		for act, err := range map[string]error{
			"append":  second(a.send(a.write("op-x", "x"))),
			"replace": second(a.replace(a.rewrite("op-y", "y"))),
			"claim":   second(a.claim(a.take())),
			"finish":  second(a.finish()),
			"delete":  second(a.erase()),
		} {
			if err == nil {
				w.Fatalf("%s did not notice the loss", act)
			}
			refused(w, fmt.Errorf("%s: %w", act, err), w.behind(want))
		}
	})
}

// lostTwo is a session of one turn whose second and third turn were lost, with
// the worker that wrote them.
func (w *world) lostTwo() *worker {
	w.Helper()
	a := w.worker("a").routed()
	a.says("op-1", "one")
	lose := w.lossy()
	a.says("op-2", "two")
	a.says("op-3", "three")
	lose()
	return a
}

func lossVersionAbove(w *world) {
	a := w.lostTwo()
	w.noticed(a, 3)
	w.holds("one")
	equal(w, "parked", w.parkedOps(), []string{})
}

func lossTotal(w *world) {
	a := w.worker("a").routed()
	lose := w.lossy()
	a.says("op-1", "one")
	a.says("op-2", "two")
	lose()
	w.noticed(a, 2)
}

func lossOtherOp(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	lose := w.lossy()
	other := a.at(a.handle.Floor)
	a.says("op-2", "two")
	lose()
	other.says("op-2b", "zwei")
	w.noticed(a, 2)
	other.says("op-3b", "drei")
	w.noticed(a, 2)
	w.holds("one", "zwei", "drei")
}

// outlast writes more than the store remembers.
func (a *worker) outlast() {
	a.w.Helper()
	for i := range statestore.OpsRemembered + 4 {
		a.says(fmt.Sprintf("more-%d", i), "more")
	}
}

// forgottenButNoticed holds what does not look for an op first.
func (w *world) forgottenButNoticed(a *worker, want uint64) {
	w.Helper()
	refused(w, second(a.claim(a.take())), w.behind(want))
	refused(w, second(a.finish()), w.behind(want))
	refused(w, second(a.erase()), w.behind(want))
	_, err := a.send(a.write("op-x", "x"))
	refused(w, err, &statestore.OpForgottenError{Version: w.view().Version})
}

func lossOldEpoch(w *world) {
	a := w.lostTwo()
	b := w.worker("b").routed()
	b.claims()
	b.outlast()
	w.forgottenButNoticed(a, 3)
	a.keep(statestore.Floor{Epoch: a.handle.Epoch, Version: 1, Op: statestore.DigestOp("op-1")})
	_, err := a.finish() // what it was told first still holds
	refused(w, err, w.stale())
}

func lossUnknownEpoch(w *world) {
	w.worker("a").routed().says("op-1", "one")
	lose := w.lossy()
	c := w.worker("c").routed()
	c.claims()
	c.says("op-2", "two")
	lose()
	b := w.worker("b").routed()
	b.claims()
	b.outlast()
	w.forgottenButNoticed(c, 2)
}

func lossOtherFloors(w *world) {
	a := w.lostTwo()
	lost := a.handle.Floor
	b := w.worker("b").routed()
	b.handle.Second = &lost
	w.noticed(b, 3)
	b.routed()
	w.unchanged(func() {
		req := b.take()
		req.Have = &lost
		_, err := b.claim(req)
		refused(w, err, w.behind(3))
		req.Handle = nil
		_, err = b.claim(req)
		refused(w, err, w.behind(3))
	})
	holding := statestore.Floor{Epoch: lost.Epoch, Version: 1, Op: statestore.DigestOp("op-1")}
	b.handle.Second = &holding
	req := b.take()
	req.Have = &holding
	_, err := b.claim(req)
	w.ok("claim with floors that hold", err)
}

func lossBeforeKnownOp(w *world) {
	a := w.lostTwo()
	w.unchanged(func() {
		_, err := a.send(a.write("op-1", "one"))
		refused(w, err, w.behind(3))
		_, err = a.send(a.write("op-1", "other content"))
		refused(w, err, w.behind(3))
	})
}

// lostWrites is lostTwo with the requests that a client keeps for repair.
func (w *world) lostWrites() (a *worker, second, third statestore.Append) {
	w.Helper()
	a = w.worker("a").routed()
	a.says("op-1", "one")
	lose := w.lossy()
	second = a.write("op-2", "two")
	a.sent(second)
	third = a.write("op-3", "three")
	a.sent(third)
	lose()
	return a, second, third
}

func lossRepaired(w *world) {
	a, second, third := w.lostWrites()
	newest := a.handle.Floor
	_, err := a.send(third)
	refused(w, err, w.behind(2)) // oldest first
	for _, req := range []statestore.Append{second, third} {
		if r := a.sent(req); r.Duplicate {
			w.Fatalf("repair with %s: %+v", req.Op, r)
		}
	}
	w.holds("one", "two", "three")
	a.at(newest).says("op-4", "four")
	w.holds("one", "two", "three", "four")
}

func lossParked(w *world) {
	a, second, third := w.lostWrites()
	b := w.worker("b").routed()
	b.claims()
	a.late(second, true)
	_, err := a.send(third)
	refused(w, err, w.behind(2))
	equal(w, "parked", w.parkedOps(), []string{"op-2"})
	b.says("op-2", "two")
	a.late(third, true)
	b.says("op-3", "three")
	w.holds("one", "two", "three")
	equal(w, "parked", w.parkedOps(), []string{})
	if r := a.sent(third); !r.Duplicate || r.Version != 3 {
		w.Fatalf("after the repair: %+v", r)
	}
}

func lossOfFirst(w *world) {
	a := w.worker("a").routed()
	lose := w.lossy()
	first := a.write("op-1", "one")
	a.sent(first)
	second := a.write("op-2", "two")
	a.sent(second)
	lose()
	again := a.sent(first)
	// The session was created at another epoch than the second write's handle
	// names: the writer is told that it is the owner itself, takes the handle of
	// the repair, and goes on.
	_, err := a.at(second.Handle.Floor).send(second)
	refused(w, err, w.notOwner(statestore.WhyFailover, true))
	equal(w, "the owner that is named", w.view().Owner, a.by)
	second.Handle.Floor = again.Floor
	a.sent(second)
	w.holds("one", "two")
	equal(w, "parked", w.parkedOps(), []string{})
}

func lossOfEpoch(w *world) {
	w.worker("a").routed().says("op-1", "one")
	lose := w.lossy()
	b := w.worker("b").routed()
	b.claims()
	issued := w.view().Epoch
	lose()
	c := w.worker("c").routed()
	c.claims()
	if now := w.view().Epoch; now <= issued {
		w.Fatalf("epoch %d was issued after %d had been", now, issued)
	}
	_, err := b.finish()
	refused(w, err, w.stale())
}

func lossOfEndedLife(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	a.says("op-2", "two")
	old := a.handle.Floor
	_, err := a.erase()
	w.ok("delete", err)
	again := a.routed().write("op-1", "anew")
	again.Recreate = true
	a.sent(again)
	a.says("op-2", "with the ops of before")
	b := w.worker("b").routed()
	b.handle.Second = &old
	req := b.take()
	req.Have = &old
	c, err := b.claim(req)
	w.ok("claim with a copy of the life before", err)
	if base := c.Base(old, 2); base != 0 {
		w.Fatalf("base %d of a copy of the life before, want 0", base)
	}
}
