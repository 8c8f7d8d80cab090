package storetest

import "berth/statestore"

func bindTraces() []trace {
	return []trace{
		{"a report binds a session without stored turns", bindReports},
		{"a report at another epoch binds nothing", bindStale},
		{"a report never moves a session with turns", bindStored},
		{"a first append by another wins over a report", bindLoses},
		{"a first append wins whichever report its handle has seen", bindTwice},
		{"the affinity key travels from the hint to the record", affinityKey},
	}
}

// bound reports that the worker served, with its newest handle, and fails unless
// the answer is want.
func (w *world) bound(a *worker, want bool) {
	w.Helper()
	got, err := w.store.Bind(w.ctx, statestore.Bind{Key: w.key, Owner: a.by, Handle: a.handle, Lifetimes: w.lives})
	w.ok("bind to "+a.by.Instance, err)
	if got != want {
		w.Fatalf("bind to %s: %v, want %v", a.by.Instance, got, want)
	}
}

// R20: a hint names one instance, another serves.
func bindReports(w *world) {
	b := w.worker("b").routed()
	w.bound(b, true)
	v := w.view()
	if !v.Live() || v.Owner != b.by || v.Version != 0 || v.Turns != 0 || w.lastChange().Reason != statestore.ChangeReported {
		w.Fatalf("after a report: %+v", v.Record)
	}
	r, turns := w.load(0)
	if !r.Exists || len(turns) > 0 {
		w.Fatalf("a bound session without turns: %+v with %d turns", r.View, len(turns))
	}
}

func bindStale(w *world) {
	a, b := w.worker("a").routed(), w.worker("b").routed()
	w.bound(b, true)
	w.unchanged(func() {
		w.bound(a, false)
		a.keep(statestore.Floor{Epoch: w.view().Epoch, Version: 1, Op: statestore.DigestOp("lost")})
		w.bound(a, false)
	})
	w.bound(a.routed(), true)
	equal(w, "the owner", w.view().Owner, a.by)
}

func bindStored(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	b := w.worker("b").routed()
	w.unchanged(func() {
		w.bound(b, false)
		b.keep(statestore.Floor{Epoch: b.handle.Epoch})
		w.bound(b, false)
	})
}

func bindLoses(w *world) {
	a, b := w.worker("a").routed(), w.worker("b").routed()
	w.bound(a, true)
	bound := w.view()
	b.says("op-1", "from b")
	v := w.view()
	if v.Owner != b.by || v.Epoch <= bound.Epoch || v.Version != 1 {
		w.Fatalf("first append over a report: %+v", v.Record)
	}
	_, err := a.send(a.write("op-2", "from a"))
	refused(w, err, w.notOwner(statestore.WhyFailover, true))
	w.bound(a, false)
}

// The gateway reports who served before that worker saves, with the handle that
// the request itself travelled with.
func bindTwice(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	w.bound(a, true)
	b.routed()
	w.bound(b, true)
	b.says("op-1", "from b")
	equal(w, "the owner", w.view().Owner, b.by)
	w.holds("from b")
}

func affinityKey(w *world) {
	key := statestore.AffinityKey{1, 2, 3, 15: 9}
	a := w.worker("a").routed()
	a.handle.AffinityKey = key
	a.says("op-1", "one")
	equal(w, "the record's affinity key", w.view().AffinityKey, key)
	b := w.worker("b").routed()
	b.claims()
	equal(w, "the affinity key after a claim", w.view().AffinityKey, key)

	w.key.ID = "another"
	a.routed().handle.AffinityKey = key
	w.bound(a, true)
	equal(w, "the affinity key after a report", w.view().AffinityKey, key)
}
