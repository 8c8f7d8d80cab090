package storetest

import (
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
