package storetest

import (
	"fmt"
	"time"

	"berth/statestore"
)

func moveTraces() []trace {
	return []trace{
		{"a move changes the owner and renews nothing", moveCommits},
		{"a move is of the owner and the epoch it was planned for", movePlanned},
		{"a move repeated names the owner it made", moveRepeated},
		{"the tail appends after one move", tailAfterOne},
		{"the tail appends after two moves, and the owner between does not", tailAfterTwo},
		{"the tail ends when the new owner writes", tailEndsByWrite},
		{"the tail ends when another claims", tailEndsByClaim},
		{"the tail ends when the new owner releases the session", tailEndsByFinish},
		{"the tail outlives a claim by the present owner", tailOutlivesOwnersClaim},
		{"the tail never uses a base and never replaces", tailNeverRewrites},
		{"the tail appends at its own epoch only", tailOwnEpoch},
		{"a late append of the tail moves the end of its epoch", tailMovesEnd},
		{"a detached session takes the late appends of its last owner", tailAfterDetach},
		{"a move back leaves the first owner as tail and owner", moveBack},
		{"a late first append of the tail does not undo the move", tailFirstAppend},
		{"a reservation binds nobody, and ends by itself or by its job", reserves},
		{"a reservation of another job stands until it is over", reserveHeld},
		{"a reservation keeps other jobs from moving the session, but for who may pass over it", reserveOver},
		{"a session that is gone can be neither moved nor reserved", moveOfNothing},
		{"a fenced instance gets nobody by claim or move", fenceRefuses},
		{"a first append from a fenced instance is stored and bound to nobody", fencedFirstAppend},
		{"a fence is of one boot and can be dropped", fenceDropped},
		{"a fence is forgotten with its job once its boot is not registered any more", fenceForgotten},
		{"a job runner that paused past its lease cannot write", tokenFenced},
	}
}

var job = statestore.JobRef{ID: "job-1", Token: 1}

// planned prepares the move of the session to a worker, or to nobody.
func (w *world) planned(to *worker) statestore.Move {
	w.Helper()
	v := w.view()
	m := statestore.Move{Key: w.key, From: v.Owner, Epoch: v.Epoch, Job: job, Lifetimes: w.lives}
	if to != nil {
		m.To = to.by
	}
	return m
}

// move commits a move, where it must succeed; change may alter the request.
func (w *world) move(to *worker, change func(*statestore.Move)) statestore.Moved {
	w.Helper()
	m := w.planned(to)
	if change != nil {
		change(&m)
	}
	moved, err := w.store.Move(w.ctx, m)
	w.ok("move the session", err)
	return moved
}

func (w *world) detach() {
	w.Helper()
	w.move(nil, nil)
}

// fence changes the fences of the session's pool.
func (w *world) fence(f statestore.Fence) {
	w.Helper()
	f.Pool = w.key.Pool
	w.ok("fence", w.store.Fence(w.ctx, f))
}

func moveCommits(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	before := w.view()
	m := w.move(b, nil)
	now := w.view()
	if now.Owner != b.by || now.Epoch <= before.Epoch || m.Epoch != now.Epoch || m.Version != 1 {
		w.Fatalf("move: %+v, then %+v", m, now.Record)
	}
	equal(w, "the reason", w.lastChange().Reason, statestore.ChangeMoved)
	equal(w, "the tail", now.Tail, &statestore.Tail{Owner: a.by, Epoch: before.Epoch})
	equal(w, "affinity and end", [2]statestore.Millis{now.AffinityUntil, now.Expires}, [2]statestore.Millis{before.AffinityUntil, before.Expires})
	b.routed().says("op-2", "two")
	w.holds("one", "two")
}

func movePlanned(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	m := w.planned(b)
	b.routed().claims()
	a.routed().claims() // the same owner as planned, at another epoch
	w.unchanged(func() {
		_, err := w.store.Move(w.ctx, m)
		refused(w, err, w.stale())
		m.Epoch, m.From = w.view().Epoch, b.by
		_, err = w.store.Move(w.ctx, m)
		refused(w, err, w.stale())
	})
}

// The answer to a commit was lost. Asked again, the store names the target as
// owner, which counts as done.
func moveRepeated(w *world) {
	w.worker("a").routed().says("op-1", "one")
	b := w.worker("b")
	m := w.planned(b)
	_, err := w.store.Move(w.ctx, m)
	w.ok("move", err)
	w.unchanged(func() {
		_, err = w.store.Move(w.ctx, m)
		refused(w, err, &statestore.StaleHandleError{Owner: b.by, Epoch: w.view().Epoch})
	})
}

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

func moveBack(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	w.move(b, nil)
	w.move(a, nil)
	w.lateTurn(a, "op-2", "two") // with the handle of its first epoch
	if got := a.routed().sent(a.write("op-3", "three")); got.Arrived {
		w.Fatalf("an append of whom nothing left: %+v", got)
	}
	w.holds("one", "two", "three")
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

func (w *world) reserve(target *worker, ref statestore.JobRef, d time.Duration) error {
	w.Helper()
	return w.store.Reserve(w.ctx, statestore.Reserve{Key: w.key, Epoch: w.view().Epoch, Target: target.by, Job: ref, For: d})
}

func reserves(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	w.ok("reserve", w.reserve(b, job, time.Hour))
	v := w.view()
	equal(w, "the owner", v.Owner, a.by)
	if v.Reserved == nil || v.Reserved.Target != b.by || v.Reserved.Job != job || v.Reserved.Until <= v.Now {
		w.Fatalf("reservation %+v", v.Reserved)
	}
	a.says("op-2", "two") // the owner goes on
	if w.view().Reserved == nil {
		w.Fatal("a turn ended the reservation")
	}
	w.ok("drop the reservation", w.reserve(b, job, 0))
	if r := w.view().Reserved; r != nil {
		w.Fatalf("reservation %+v after it was dropped", r)
	}
	w.ok("reserve", w.reserve(b, job, time.Hour))
	w.move(b, nil)
	if r := w.view().Reserved; r != nil {
		w.Fatalf("reservation %+v after the commit", r)
	}
	err := w.store.Reserve(w.ctx, statestore.Reserve{Key: w.key, Epoch: v.Epoch, Target: a.by, Job: job, For: time.Hour})
	refused(w, err, w.stale())
}

func reserveHeld(w *world) {
	a, b, c := w.worker("a").routed(), w.worker("b"), w.worker("c")
	a.says("op-1", "one")
	w.shorten()
	w.ok("reserve", w.reserve(b, job, w.lives.Affinity))
	other := statestore.JobRef{ID: "job-2", Token: 9}
	refused(w, w.reserve(c, other, time.Hour), &statestore.LeaseHeldError{Name: "reservation", Holder: job.ID, Token: job.Token})
	w.ok("drop what is another's", w.reserve(c, other, 0))
	if r := w.view().Reserved; r == nil || r.Job != job {
		w.Fatalf("reservation %+v, want the first job's", r)
	}
	w.passUntil(w.view().Reserved.Until)
	w.ok("reserve what is over", w.reserve(c, other, time.Hour))
	equal(w, "the job", w.view().Reserved.Job, other)
}

func reserveOver(w *world) {
	a, b, c := w.worker("a").routed(), w.worker("b"), w.worker("c")
	a.says("op-1", "one")
	w.ok("reserve", w.reserve(b, job, time.Hour))
	other := statestore.JobRef{ID: "job-2", Token: 9}
	held := &statestore.LeaseHeldError{Name: "reservation", Holder: job.ID, Token: job.Token}
	m := w.planned(c)
	m.Job = other
	w.unchanged(func() {
		for _, over := range []string{"", "job-3"} {
			m.Over = over
			_, err := w.store.Move(w.ctx, m)
			refused(w, err, held)
		}
	})
	take := statestore.Reserve{Key: w.key, Epoch: m.Epoch, Target: c.by, Job: other, Over: job.ID, For: time.Hour}
	w.ok("take the reservation", w.store.Reserve(w.ctx, take))
	equal(w, "the job", w.view().Reserved.Job, other)
	first := w.planned(b)
	w.unchanged(func() {
		_, err := w.store.Move(w.ctx, first)
		refused(w, err, &statestore.LeaseHeldError{Name: "reservation", Holder: other.ID, Token: other.Token})
	})
	first.Over = other.ID
	_, err := w.store.Move(w.ctx, first)
	w.ok("move over the reservation", err)
	if v := w.view(); v.Owner != b.by || v.Reserved != nil {
		w.Fatalf("after the move: %+v", v.Record)
	}
}

func moveOfNothing(w *world) {
	a := w.worker("a")
	_, err := w.store.Move(w.ctx, w.planned(a))
	refused(w, err, &statestore.EndedError{Reason: statestore.Expired})
	refused(w, w.reserve(a, job, time.Hour), &statestore.EndedError{Reason: statestore.Expired})
	a.routed().says("op-1", "one")
	m := w.planned(a)
	_, err = a.erase()
	w.ok("delete", err)
	gone := &statestore.EndedError{Reason: statestore.Deleted, Epoch: w.view().Tombstone.Epoch}
	_, err = w.store.Move(w.ctx, m)
	refused(w, err, gone)
	refused(w, w.reserve(a, job, time.Hour), gone)
}
