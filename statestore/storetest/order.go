package storetest

import (
	"fmt"
	"time"

	"berth/statestore"
)

// Each of these violates two neighbours in the order of checks, and must get the
// refusal of the earlier one.
func orderTraces() []trace {
	return []trace{
		{"an ended life comes before a known op", endedBeforeOp},
		{"an ended life comes before lineage and owner", endedBeforeLineage},
		{"a known op comes before forgotten ones, fences, owner, epoch and version", opBeforeRest},
		{"lineage comes before the content of a known op", lineageBeforeContent},
		{"forgotten comes before lineage", forgottenBeforeLineage},
		{"lineage comes before fence, owner, epoch and version", lineageBeforeRest},
		{"fence comes before owner and epoch", fenceBeforeOwner},
		{"owner and epoch come before version", ownerBeforeVersion},
		{"the end of a session comes before the token of a job", endedBeforeToken},
	}
}

func endedBeforeOp(w *world) {
	a := w.worker("a").routed()
	first := a.write("op-1", "one")
	a.sent(first)
	_, err := a.erase()
	w.ok("delete", err)
	again := first
	again.Handle, again.Recreate = a.routed().handle, true
	a.sent(again) // the same op made version 1 of the new life, too
	w.unchanged(func() {
		_, err = a.send(first)
		refused(w, err, &statestore.EndedError{Reason: statestore.Deleted, Epoch: w.view().Before.Epoch})
	})
}

func endedBeforeLineage(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	old := a.at(statestore.Floor{Epoch: a.handle.Epoch, Version: 9, Op: statestore.DigestOp("never")})
	_, err := a.erase()
	w.ok("delete", err)
	gone := &statestore.EndedError{Reason: statestore.Deleted, Epoch: w.view().Tombstone.Epoch}
	check := func() {
		w.Helper()
		refused(w, second(old.send(old.write("op-2", "x"))), gone)
		refused(w, second(old.claim(old.take())), gone)
		refused(w, second(old.finish()), gone)
		refused(w, second(old.erase()), gone)
	}
	check()
	b := w.worker("b").routed()
	again := b.write("op-2", "anew")
	again.Recreate = true
	b.sent(again)
	check()
}

func opBeforeRest(w *world) {
	a := w.worker("a").routed()
	a.says("op-0", "zero")
	for range statestore.OpsRemembered {
		a.says(fmt.Sprintf("op-%d", w.view().Version), "more")
	}
	first := a.write("op-known", "one")
	a.sent(first)
	b := w.worker("b").routed()
	b.claims()
	w.fence(statestore.Fence{Add: []statestore.Owner{a.by}})
	first.Handle = statestore.Presented{} // older than memory, of no epoch, by no owner
	w.unchanged(func() {
		if r := a.sent(first); !r.Duplicate || r.Owner != b.by {
			w.Fatalf("a known op: %+v, want a repeat", r)
		}
	})
}

func lineageBeforeContent(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	off := a.at(statestore.Floor{Epoch: a.handle.Epoch, Version: 1, Op: statestore.DigestOp("another")})
	_, err := off.send(off.write("op-1", "other content"))
	refused(w, err, w.behind(1))
	_, err = off.send(off.write("op-1", "one"))
	refused(w, err, w.behind(1))
}

func forgottenBeforeLineage(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	a.outlast()
	off := w.worker("b").at(statestore.Floor{Epoch: a.handle.Epoch + 7, Version: 1, Op: statestore.DigestOp("another")})
	refused(w, second(off.finish()), w.behind(1))
	_, err := off.send(off.write("op-x", "x"))
	refused(w, err, &statestore.OpForgottenError{Version: w.view().Version})
}

func lineageBeforeRest(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	b := w.worker("b").at(statestore.Floor{Epoch: 1, Version: 9, Op: statestore.DigestOp("never")})
	b.handle.Named = true
	w.fence(statestore.Fence{Add: []statestore.Owner{b.by}})
	w.noticed(b, 9)
	equal(w, "parked", w.parkedOps(), []string{})
}

func fenceBeforeOwner(w *world) {
	a, b := w.worker("a").routed(), w.worker("b").routed()
	a.says("op-1", "one")
	w.fence(statestore.Fence{Add: []statestore.Owner{b.by}, Job: statestore.JobRef{ID: job.ID, Token: 2}})
	w.unchanged(func() {
		_, err := b.claim(b.take()) // its handle is of epoch 0
		refused(w, err, w.notOwner(statestore.WhyFenced, false))

		m := w.planned(b)
		m.Epoch, m.From = m.Epoch-1, b.by
		_, err = w.store.Move(w.ctx, m)
		refused(w, err, &statestore.LeaseHeldError{Name: job.ID, Token: 2})
		m.Job.Token = 2
		_, err = w.store.Move(w.ctx, m)
		refused(w, err, &statestore.FencedTargetError{Target: b.by})
		m.To = w.worker("c").by
		_, err = w.store.Move(w.ctx, m)
		refused(w, err, w.stale())

		v := statestore.Reserve{Key: w.key, Epoch: m.Epoch, Target: b.by, Job: job, For: time.Hour}
		refused(w, w.store.Reserve(w.ctx, v), &statestore.LeaseHeldError{Name: job.ID, Token: 2})
		v.Job.Token = 2
		refused(w, w.store.Reserve(w.ctx, v), &statestore.FencedTargetError{Target: b.by})
	})
}

func ownerBeforeVersion(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	old := a.at(a.handle.Floor)
	a.says("op-2", "two")
	b := w.worker("b").at(old.handle.Floor)
	w.unchanged(func() {
		_, err := b.send(b.write("op-3", "x"))
		refused(w, err, w.notOwner(statestore.WhyFailover, true))
		_, err = b.send(based(b.write("op-4", "x"), 9))
		refused(w, err, w.notOwner(statestore.WhyFailover, true))
		_, err = old.send(old.write("op-5", "x"))
		refused(w, err, w.conflict())
	})
	w.worker("b").routed().claims()
	a.routed().claims()
	w.unchanged(func() { // the owner at an epoch that is over
		_, err := old.send(old.write("op-6", "x"))
		refused(w, err, w.notOwner(statestore.WhyFailover, true))
	})
}

func endedBeforeToken(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	m := w.planned(b)
	_, err := a.erase()
	w.ok("delete", err)
	w.fence(statestore.Fence{Add: []statestore.Owner{b.by}, Job: statestore.JobRef{ID: job.ID, Token: 2}})
	_, err = w.store.Move(w.ctx, m)
	refused(w, err, &statestore.EndedError{Reason: statestore.Deleted, Epoch: w.view().Tombstone.Epoch})
}
