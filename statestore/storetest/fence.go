package storetest

import (
	"time"

	"berth/statestore"
)

func fenceRefuses(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	w.fence(statestore.Fence{Add: []statestore.Owner{b.by}})
	b.routed()
	w.unchanged(func() {
		_, err := b.claim(b.take())
		refused(w, err, w.notOwner(statestore.WhyFenced, false))
		_, err = w.store.Move(w.ctx, w.planned(b))
		refused(w, err, &statestore.FencedTargetError{Target: b.by})
		refused(w, w.reserve(b, job, time.Hour), &statestore.FencedTargetError{Target: b.by})
	})
	// The owner that is fenced writes on, and may ask what it owns.
	w.fence(statestore.Fence{Add: []statestore.Owner{a.by}})
	a.says("op-2", "two")
	a.claims()
	w.holds("one", "two")
}

func fencedFirstAppend(w *world) {
	a := w.worker("a")
	w.fence(statestore.Fence{Add: []statestore.Owner{a.by}})
	w.bound(a.routed(), false)
	req := a.routed().write("op-1", "one")
	r := a.sent(req)
	v := w.view()
	if !r.Owner.IsZero() || !v.Owner.IsZero() || v.Version != 1 || v.Live() {
		w.Fatalf("first append from a fenced instance: %+v, record %+v", r, v.Record)
	}
	if again := a.sent(req); !again.Duplicate || !again.Owner.IsZero() {
		w.Fatalf("repeated: %+v", again)
	}
	w.holds("one")
	b := w.worker("b").routed()
	b.claims()
	b.says("op-2", "two")
	w.holds("one", "two")
}

func fenceDropped(w *world) {
	a, b := w.worker("a").routed(), w.worker("b").routed()
	a.says("op-1", "one")
	w.fence(statestore.Fence{Add: []statestore.Owner{b.by, w.worker("c").by}})
	next := b.reboot().routed()
	next.claims()
	equal(w, "the owner", w.view().Owner, next.by)
	w.fence(statestore.Fence{Drop: []statestore.Owner{b.by}})
	b.routed().claims()
	equal(w, "the owner", w.view().Owner, b.by)
	c := w.worker("c").routed()
	_, err := c.claim(c.take())
	refused(w, err, w.notOwner(statestore.WhyFenced, false))
	elsewhere := w.key
	elsewhere.Pool = "another"
	w.key = elsewhere
	c.routed().says("op-1", "one") // a fence is of its pool
	equal(w, "the owner in the other pool", w.view().Owner, c.by)
}

// T15: a runner is paused past its lease, another takes over, the first wakes up
// in the middle of a commit.
func tokenFenced(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	paused := w.planned(b)
	taken := statestore.JobRef{ID: job.ID, Token: job.Token + 1}
	w.fence(statestore.Fence{Job: taken})
	w.unchanged(func() {
		_, err := w.store.Move(w.ctx, paused)
		refused(w, err, &statestore.LeaseHeldError{Name: job.ID, Token: taken.Token})
		refused(w, w.reserve(b, job, time.Hour), &statestore.LeaseHeldError{Name: job.ID, Token: taken.Token})
	})
	w.fence(statestore.Fence{Job: job}) // a late copy of the older fence lowers nothing
	_, err := w.store.Move(w.ctx, paused)
	refused(w, err, &statestore.LeaseHeldError{Name: job.ID, Token: taken.Token})
	w.move(b, func(m *statestore.Move) { m.Job = taken })
	w.move(a, func(m *statestore.Move) { m.Job = statestore.JobRef{ID: "job-2", Token: 1} }) // another job's tokens are its own
}
