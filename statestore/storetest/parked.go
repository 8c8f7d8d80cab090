package storetest

import (
	"fmt"

	"berth/statestore"
)

func parkedTraces() []trace {
	return []trace{
		{"an append by an old owner is parked, listed and adopted", parkedAdopted},
		{"a parked append keeps base, meta, floor and writer", parkedKeeps},
		{"a refused append that is sent again is parked once", parkedOnce},
		{"eight are parked, the ninth is told that it is not", parkedFull},
		{"nothing else is parked", parkedNothingElse},
		{"an old owner that is owner again writes its parked append itself", parkedOwnAgain},
		{"parked appends end with the session", parkedEnds},
	}
}

// parked lists what is parked for the session.
func (w *world) parked() []statestore.Parked {
	w.Helper()
	r, _ := w.load(0)
	return r.Parked
}

// parkedOps lists their ops.
func (w *world) parkedOps() []string {
	w.Helper()
	ops := []string{}
	for _, p := range w.parked() {
		ops = append(ops, p.Op)
	}
	return ops
}

// late sends an append of a worker that is no longer the owner.
func (a *worker) late(req statestore.Append, parked bool) {
	a.w.Helper()
	_, err := a.send(req)
	refused(a.w, err, a.w.notOwner(statestore.WhyFailover, parked))
}

// lostSession is a session that b has claimed from a.
func (w *world) lostSession() (a, b *worker) {
	w.Helper()
	a, b = w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	b.routed().claims()
	return a, b
}

func parkedAdopted(w *world) {
	a, b := w.lostSession()
	a.late(a.write("op-2", "late"), true)
	w.holds("one")
	p := w.parked()
	if len(p) != 1 || p[0].Op != "op-2" || p[0].By != a.by {
		w.Fatalf("parked: %+v", p)
	}
	w.sameTurns(p[0].Turns, says("late"))

	adopt := b.write(p[0].Op)
	adopt.Turns = p[0].Turns
	if r := b.sent(adopt); !r.Parked || r.Duplicate || r.Version != 2 {
		w.Fatalf("adoption: %+v", r)
	}
	w.holds("one", "late")
	equal(w, "parked after adoption", w.parkedOps(), []string{})
	if r := a.sent(a.write("op-2", "late")); !r.Duplicate || r.Version != 2 || r.Owner != b.by {
		w.Fatalf("the writer asks again: %+v, want a repeat", r)
	}
}

func parkedKeeps(w *world) {
	a, _ := w.lostSession()
	req := based(a.write("op-2", "late", "and more"), 1)
	req.Meta = []byte(`{"k":  1}`)
	req.Turns[1] = statestore.Turn{Type: statestore.TurnBytes, Value: []byte{0, 1, 2, 0xff}, Tokens: 7}
	a.late(req, true)
	got := w.parked()
	if len(got) != 1 {
		w.Fatalf("%d parked, want 1", len(got))
	}
	w.sameTurns(got[0].Turns, req.Turns)
	want := statestore.Parked{
		Op: "op-2", By: a.by, Floor: req.Handle.Floor, Base: req.Base, Turns: got[0].Turns, Meta: req.Meta, Age: got[0].Age,
	}
	equal(w, "the parked append", got[0], want)
	if got[0].Age < 0 {
		w.Fatalf("age %v", got[0].Age)
	}
}

func parkedOnce(w *world) {
	a, _ := w.lostSession()
	req := a.write("op-2", "late")
	a.late(req, true)
	a.late(req, true)
	equal(w, "parked", w.parkedOps(), []string{"op-2"})
}

func parkedFull(w *world) {
	a, b := w.lostSession()
	want := []string{}
	for i := range statestore.ParkedLimit {
		op := fmt.Sprintf("late-%d", i)
		a.late(a.write(op, op), true)
		want = append(want, op)
	}
	a.late(a.write("late-8", "too late"), false)
	a.late(a.write("late-3", "late-3"), true) // is kept already
	equal(w, "parked, first come", w.parkedOps(), want)
	b.says("late-0", "late-0")
	a.late(a.write("late-8", "too late"), true)
	equal(w, "parked", w.parkedOps(), append(want[1:], "late-8"))
}

func parkedNothingElse(w *world) {
	a, b := w.lostSession()
	_, err := a.replace(a.rewrite("op-2", "x"))
	refused(w, err, w.notOwner(statestore.WhyFailover, false))
	_, err = b.send(b.at(statestore.Floor{Epoch: b.handle.Epoch}).write("op-3", "for version 0"))
	refused(w, err, w.conflict())
	off := a.at(statestore.Floor{Epoch: a.handle.Epoch, Version: 1, Op: statestore.DigestOp("never stored")})
	_, err = off.send(off.write("op-4", "of another history"))
	refused(w, err, &statestore.StoreBehindError{HaveVersion: 1, HaveTurns: 1, WantVersion: 1})
	_, err = a.send(a.write("op-1", "other content"))
	refused(w, err, &statestore.OpReusedError{Version: 1})
	c := w.worker("c").routed()
	w.fence(statestore.Fence{Add: []statestore.Owner{c.by}})
	_, err = c.claim(c.take())
	refused(w, err, w.notOwner(statestore.WhyFenced, false))
	equal(w, "parked", w.parkedOps(), []string{})
}

func parkedOwnAgain(w *world) {
	a, _ := w.lostSession()
	a.late(a.write("op-2", "late"), true)
	a.routed().claims()
	if r := a.says("op-2", "late"); !r.Parked || r.Version != 2 {
		w.Fatalf("the append of the owner again: %+v", r)
	}
	equal(w, "parked", w.parkedOps(), []string{})
}

func parkedEnds(w *world) {
	a, b := w.lostSession()
	a.late(a.write("op-2", "late"), true)
	_, err := b.erase()
	w.ok("delete", err)
	again := b.routed().write("op-3", "a new life")
	again.Recreate = true
	b.sent(again)
	equal(w, "parked in the new life", w.parkedOps(), []string{})
	_, err = a.send(a.write("op-2", "late"))
	refused(w, err, &statestore.EndedError{Reason: statestore.Deleted, Epoch: w.view().Before.Epoch})
	equal(w, "parked in the new life", w.parkedOps(), []string{})
}
