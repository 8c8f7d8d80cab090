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

// A boot that was drained and is gone for ever leaves no fence behind when the job
// is forgotten; one that is still there remains fenced.
func fenceForgotten(w *world) {
	var boots []*worker
	var sources []statestore.Owner
	for _, id := range []string{"gone", "rebooted", "there"} {
		boot := w.worker(id)
		s := spec(id)
		s.Incarnation = boot.by.Incarnation
		w.register(s)
		boots, sources = append(boots, boot), append(sources, boot.by)
	}
	j, _, err := w.store.CreateJob(w.ctx, statestore.Job{
		ID: "job-drains", Kind: "drain", Pool: w.key.Pool, Sources: sources, Spec: []byte(`{}`),
	}, time.Hour)
	w.ok("create the job", err)
	held := w.acquired(j, "one")
	w.fence(statestore.Fence{Add: sources, Job: held.Ref()})
	w.ok("deregister", w.store.Deregister(w.ctx, sources[0]))
	again := spec("rebooted")
	again.Incarnation = boots[1].reboot().by.Incarnation
	w.register(again)

	purge := func(want int) {
		w.pass(2 * time.Millisecond)
		n, err := w.store.PurgeJobs(w.ctx, 0)
		w.ok("purge", err)
		equal(w, "purged", n, want)
	}
	w.worker("first").routed().says("op-1", "one")
	fenced := func(boots ...*worker) {
		w.Helper()
		for _, boot := range boots {
			_, err := boot.claim(boot.routed().take())
			refused(w, err, w.notOwner(statestore.WhyFenced, false))
		}
	}
	purge(0)
	fenced(boots...)
	w.ok("end", second(w.store.SaveJob(w.ctx, held.Ref(), statestore.JobSucceeded, nil, time.Hour)))
	purge(1)
	fenced(boots[2])
	for _, boot := range boots[:2] {
		boot.routed().claims()
		equal(w, "the owner", w.view().Owner, boot.by)
	}
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
