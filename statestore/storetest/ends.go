package storetest

import (
	"time"

	"berth/statestore"
)

func endTraces() []trace {
	return []trace{
		{"a delete leaves a tombstone above the epoch it ended", deleteLeaves},
		{"a delete by handle ends only the epoch it names", deleteByHandle},
		{"an operator deletes any epoch, and what is not there", deleteByOperator},
		{"a retried append after a delete re-creates nothing", appendAfterDelete},
		{"a retried delete after re-creation ends nothing", deleteAfterRecreation},
		{"a deleted session begins anew only when asked to", recreate},
		{"an expired session is told from a deleted one", expiredTold},
		{"a session that expires between load and save is not half revived", expiryBetween},
		{"a route that finds a session expired before the sweep can begin anew", expiryBeforeSweep},
		{"appends keep the whole session alive", keptAlive},
		{"what was bound by a report ends with its affinity", boundEnds},
		{"a tombstone ends", tombstoneEnds},
	}
}

func deleteLeaves(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	w.ok("put placements", w.store.PutPlacements(w.ctx, w.key, a.by, []byte(`[{"tier":"gpu"}]`)))
	before := w.view()
	e, err := a.erase()
	w.ok("delete", err)
	after := w.view()
	if after.Exists || after.Tombstone.Reason != statestore.Deleted || after.Tombstone.Epoch <= before.Epoch {
		w.Fatalf("after the delete: %+v", after)
	}
	if !e.Existed || e.Epoch != after.Tombstone.Epoch {
		w.Fatalf("delete answered %+v, the tombstone is %+v", e, after.Tombstone)
	}
	if len(e.Placements) != 1 || e.Placements[0].By != a.by || string(e.Placements[0].Descriptors) != `[{"tier":"gpu"}]` {
		w.Fatalf("placements to forget: %+v", e.Placements)
	}
	r, turns := w.load(0)
	if r.Exists || len(turns) > 0 || r.Meta != nil || len(r.Placements) > 0 || len(r.Parked) > 0 {
		w.Fatalf("a deleted session still holds something: %+v", r)
	}
}

func deleteByHandle(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	late := a.at(a.handle.Floor)
	b := w.worker("b").routed()
	b.claims()
	w.unchanged(func() {
		_, err := late.erase()
		refused(w, err, w.stale())
	})
	_, err := b.erase()
	w.ok("delete", err)
	_, err = b.erase()
	refused(w, err, &statestore.EndedError{Reason: statestore.Deleted, Epoch: w.view().Tombstone.Epoch})
}

func deleteByOperator(w *world) {
	del := statestore.Delete{Key: w.key, Lifetimes: w.lives}
	e, err := w.store.Delete(w.ctx, del)
	w.ok("delete nothing", err)
	if e.Existed || len(e.Placements) > 0 || w.view().Tombstone != (statestore.Tombstone{}) {
		w.Fatalf("delete of nothing: %+v, tombstone %+v", e, w.view().Tombstone)
	}
	w.worker("a").routed().says("op-1", "one")
	w.worker("b").routed().claims()
	e, err = w.store.Delete(w.ctx, del)
	w.ok("delete", err)
	if !e.Existed || w.view().Exists {
		w.Fatalf("delete by an operator: %+v", e)
	}
	stone := w.view().Tombstone
	e, err = w.store.Delete(w.ctx, del)
	w.ok("delete again", err)
	if e.Existed || w.view().Tombstone != stone {
		w.Fatalf("delete again: %+v, tombstone %+v after %+v", e, w.view().Tombstone, stone)
	}
}

// The answer to an append is lost, the session is deleted, the append comes again.
func appendAfterDelete(w *world) {
	a := w.worker("a").routed()
	first := a.write("op-1", "one")
	a.sent(first)
	second := a.write("op-2", "two")
	a.sent(second)
	_, err := a.erase()
	w.ok("delete", err)
	gone := &statestore.EndedError{Reason: statestore.Deleted, Epoch: w.view().Tombstone.Epoch}
	for _, req := range []statestore.Append{first, second} {
		for _, recreate := range []bool{false, true} {
			req.Recreate = recreate
			_, err = a.send(req)
			refused(w, err, gone)
		}
	}
	_, err = a.claim(a.take())
	refused(w, err, gone)
	if w.view().Exists {
		w.Fatal("the session is there again")
	}
}

// The answer to a delete is lost, the session is begun anew, the delete comes again.
func deleteAfterRecreation(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	old := a.at(a.handle.Floor)
	_, err := old.erase()
	w.ok("delete", err)
	again := a.routed().write("op-2", "anew")
	again.Recreate = true
	a.sent(again)
	gone := &statestore.EndedError{Reason: statestore.Deleted, Epoch: w.view().Before.Epoch}
	w.unchanged(func() {
		_, err = old.erase()
		refused(w, err, gone)
		_, err = old.finish()
		refused(w, err, gone)
		_, err = old.claim(old.take())
		refused(w, err, gone)
		_, err = old.send(old.write("op-1b", "late"))
		refused(w, err, gone)
	})
	equal(w, "parked", w.parkedOps(), []string{})
	w.holds("anew")
}

func recreate(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	_, err := a.erase()
	w.ok("delete", err)
	stone := w.view().Tombstone
	req := a.routed().write("op-2", "anew")
	_, err = a.send(req)
	refused(w, err, &statestore.EndedError{Reason: statestore.Deleted, Epoch: stone.Epoch})
	w.bound(a, false)
	req.Recreate = true
	a.sent(req)
	v := w.view()
	if v.Epoch <= stone.Epoch || v.Before != stone || v.Version != 1 || len(v.Ops) != 1 || len(v.Changes) != 1 {
		w.Fatalf("the new life over %+v: %+v", stone, v.Record)
	}
	w.holds("anew")
	if r := a.sent(req); !r.Duplicate {
		w.Fatalf("re-creation repeated: %+v", r)
	}
}

// expire lets the session's time pass.
func (w *world) expire() {
	w.Helper()
	w.passUntil(w.view().Expires)
}

// expired ends the session's time, and returns the worker that had it.
func (w *world) expired() *worker {
	w.Helper()
	w.shorten()
	a := w.worker("a").routed()
	a.says("op-1", "one")
	w.ok("put placements", w.store.PutPlacements(w.ctx, w.key, a.by, []byte(`[{}]`)))
	w.expire()
	return a
}

func expiredTold(w *world) {
	a := w.expired()
	v := w.view()
	if v.Exists || v.Tombstone.Reason != statestore.Expired || v.Tombstone.Epoch <= a.handle.Epoch {
		w.Fatalf("after expiry: %+v", v)
	}
	gone := &statestore.EndedError{Reason: statestore.Expired, Epoch: v.Tombstone.Epoch}
	for _, err := range []error{
		second(a.send(a.write("op-2", "late"))), second(a.replace(a.rewrite("op-3", "late"))), second(a.claim(a.take())),
		second(a.finish()), second(a.erase()), second(w.store.Move(w.ctx, statestore.Move{Key: w.key, From: a.by, Epoch: a.handle.Epoch})),
	} {
		refused(w, err, gone)
	}
	w.refusedAs(w.store.PutPlacements(w.ctx, w.key, a.by, []byte(`[{}]`)), statestore.ErrNotFound)
	a.routed().says("op-4", "anew") // no recreate needed
	equal(w, "the tombstone before", w.view().Before, v.Tombstone)
	r, _ := w.load(0)
	w.holds("anew")
	if len(r.Placements) > 0 {
		w.Fatalf("placements of the life before: %+v", r.Placements)
	}
}

func second[T any](_ T, err error) error { return err }

// T05: the time is over between load and save, and nobody has swept yet.
func expiryBetween(w *world) {
	w.shorten()
	a := w.worker("a").routed()
	a.says("op-1", "one", "two")
	w.load(0)
	w.expire()
	_, err := a.send(a.write("op-2", "three"))
	stone := w.view().Tombstone
	refused(w, err, &statestore.EndedError{Reason: statestore.Expired, Epoch: stone.Epoch})
	r, turns := w.load(0)
	if r.Exists || len(turns) > 0 {
		w.Fatalf("half a session: %+v with %d turns", r.View, len(turns))
	}
	w.sweep()
	equal(w, "the tombstone after the sweep", w.view().Tombstone, stone)
	for _, err := range w.store.SessionsOf(w.ctx, w.key.Pool, "a") {
		w.ok("read the index", err)
		w.Fatal("the index still names the session")
	}
}

// A read names the tombstone's epoch before anything was written; the first
// append that comes with it, later, must find the same.
func expiryBeforeSweep(w *world) {
	a := w.expired()
	a.routed()
	w.pass(5 * time.Millisecond)
	a.says("op-2", "anew")
	w.holds("anew")
}

// T06: appends for several times the retention; never holes.
func keptAlive(w *world) {
	w.shorten()
	a := w.worker("a").routed()
	var texts []string
	for _, op := range []string{"op-1", "op-2", "op-3", "op-4", "op-5"} {
		texts = append(texts, op)
		a.says(op, op)
		w.pass(w.lives.Retention / 2)
		w.holds(texts...)
	}
	w.expire()
	if r, turns := w.load(0); r.Exists || len(turns) > 0 {
		w.Fatalf("after the end: %+v with %d turns", r.View, len(turns))
	}
}

func boundEnds(w *world) {
	w.shorten()
	a := w.worker("a").routed()
	w.bound(a, true)
	v := w.view()
	equal(w, "end", v.Expires, v.AffinityUntil)
	w.expire()
	if v = w.view(); v.Exists || v.Tombstone.Reason != statestore.Expired {
		w.Fatalf("after the affinity of a report: %+v", v)
	}
	w.bound(a, false) // its handle is of before
	w.bound(a.routed(), true)
}

func tombstoneEnds(w *world) {
	w.expired()
	w.sweep()
	w.pass(w.lives.Tombstone + time.Millisecond)
	w.sweep()
	equal(w, "the tombstone", w.view().Tombstone, statestore.Tombstone{})
}
