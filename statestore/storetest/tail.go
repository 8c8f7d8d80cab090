package storetest

import (
	"fmt"

	"berth/statestore"
)

// lateTurn lets the tail append once, and holds the answer to its rule.
func (w *world) lateTurn(a *worker, op, text string) {
	w.Helper()
	before := w.view()
	r := a.says(op, text)
	now := w.view()
	if !r.Moved || r.Owner != before.Owner || r.Epoch != before.Epoch || r.Version != before.Version+1 {
		w.Fatalf("a late append of the tail: %+v", r)
	}
	equal(w, "the floor of its next handle", r.Floor, statestore.Floor{Epoch: before.Tail.Epoch, Version: r.Version, Op: statestore.DigestOp(op)})
	equal(w, "owner and tail", [2]any{now.Owner, *now.Tail}, [2]any{before.Owner, *before.Tail})
}

func tailAfterOne(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	w.move(b, nil)
	w.lateTurn(a, "op-2", "two")
	w.lateTurn(a, "op-3", "three")
	old := a.at(statestore.Floor{Epoch: a.handle.Epoch, Version: 1, Op: statestore.DigestOp("op-1")})
	w.unchanged(func() {
		_, err := old.send(old.write("op-x", "from an older version"))
		refused(w, err, w.conflict())
	})
	if got := old.sent(old.write("op-2", "two")); !got.Duplicate || !got.Moved || got.Floor.Epoch != a.handle.Epoch {
		w.Fatalf("a late append repeated: %+v", got)
	}
	if got := b.routed().sent(b.write("op-4", "four")); !got.Arrived {
		w.Fatalf("the first append after the move: %+v", got)
	}
	if got := b.sent(b.write("op-4", "four")); got.Arrived || !got.Duplicate {
		w.Fatalf("the same repeated: %+v", got)
	}
	if got := b.routed().sent(b.write("op-5", "five")); got.Arrived {
		w.Fatalf("the second append after the move: %+v", got)
	}
	w.holds("one", "two", "three", "four", "five")
}

func tailAfterTwo(w *world) {
	a, b, c := w.worker("a").routed(), w.worker("b"), w.worker("c")
	a.says("op-1", "one")
	w.move(b, nil)
	b.routed()
	w.move(c, nil)
	w.lateTurn(a, "op-2", "two")
	b.keep(statestore.Floor{Epoch: b.handle.Epoch, Version: 2, Op: statestore.DigestOp("op-2")})
	w.unchanged(func() {
		_, err := b.send(b.write("op-b", "never wrote"))
		refused(w, err, w.notOwner(statestore.WhyMoved, true))
	})
	c.routed().says("op-3", "three")
	w.holds("one", "two", "three")
}

func tailEndsByWrite(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	w.move(b, nil)
	b.routed().says("op-2", "two")
	if tail := w.view().Tail; tail != nil {
		w.Fatalf("tail %+v after the new owner wrote", tail)
	}
	w.unchanged(func() {
		_, err := a.send(a.write("op-3", "late"))
		refused(w, err, w.notOwner(statestore.WhyMoved, true))
	})
}

func tailEndsByClaim(w *world) {
	a, b, c := w.worker("a").routed(), w.worker("b"), w.worker("c")
	a.says("op-1", "one")
	w.move(b, nil)
	c.routed().claims()
	w.unchanged(func() {
		_, err := a.send(a.write("op-3", "late"))
		refused(w, err, w.notOwner(statestore.WhyFailover, true))
	})
}

func tailEndsByFinish(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	w.move(b, nil)
	_, err := b.routed().finish()
	w.ok("finish", err)
	w.unchanged(func() {
		_, err := a.send(a.write("op-3", "late"))
		refused(w, err, w.notOwner(statestore.WhyUnbound, true))
	})
}

func tailOutlivesOwnersClaim(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	w.move(b, nil)
	b.routed().claims()
	w.lateTurn(a, "op-2", "two")
}

func tailNeverRewrites(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	w.move(b, nil)
	w.unchanged(func() {
		_, err := a.send(based(a.write("op-2", "x"), 1))
		refused(w, err, w.notOwner(statestore.WhyMoved, true))
		_, err = a.replace(a.rewrite("op-3", "x"))
		refused(w, err, w.notOwner(statestore.WhyMoved, false))
	})
}

func tailOwnEpoch(w *world) {
	a, b := w.worker("a").routed(), w.worker("b").routed()
	a.says("op-1", "one")
	first := a.at(a.handle.Floor)
	b.routed().claims()
	a.routed().claims()
	w.move(b, nil)
	w.unchanged(func() {
		_, err := first.send(first.write("op-2", "of an epoch before"))
		refused(w, err, w.notOwner(statestore.WhyMoved, true))
		present := a.at(w.view().Floor())
		_, err = present.send(present.write("op-3", "of the epoch after"))
		refused(w, err, w.notOwner(statestore.WhyMoved, true))
	})
	w.lateTurn(a, "op-4", "two")
}

// The handle of a late append names the tail's epoch and a version above the one
// at which that epoch was first recorded to end. It stays on the lineage when the
// op itself is forgotten.
func tailMovesEnd(w *world) {
	a, b, c := w.worker("a").routed(), w.worker("b"), w.worker("c")
	a.says("op-1", "one")
	w.move(b, nil)
	w.move(c, nil)
	w.lateTurn(a, "op-2", "two")
	v := w.view()
	equal(w, "the ends of the epochs", [2]uint64{v.Changes[1].Version, v.Changes[2].Version}, [2]uint64{2, 2})
	late := a.at(a.handle.Floor)
	c.routed()
	for range statestore.OpsRemembered {
		c.says(fmt.Sprintf("op-%d", w.view().Version+1), "more")
	}
	v = w.view()
	if !v.Holds(late.handle.Floor) {
		w.Fatal("the floor of a late append left the lineage")
	}
	_, err := late.finish()
	refused(w, err, w.stale())
}

func tailAfterDetach(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	w.detach()
	v := w.view()
	if !v.Owner.IsZero() || w.lastChange().Reason != statestore.ChangeDetached {
		w.Fatalf("after a detach: %+v", v.Record)
	}
	w.lateTurn(a, "op-2", "two")
	w.move(w.worker("b"), nil)
	w.lateTurn(a, "op-3", "three")
}

// A session that a report bound is moved before its first turn is stored.
func tailFirstAppend(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	w.bound(a, true)
	a.routed()
	w.move(b, nil)
	w.lateTurn(a, "op-1", "one")
	b.routed().says("op-2", "two")
	w.holds("one", "two")
}
