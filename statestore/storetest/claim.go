package storetest

import "berth/statestore"

func claimTraces() []trace {
	return []trace{
		{"a claim takes the session over at a new epoch", claimTakesOver},
		{"a claim repeated changes nothing more", claimRepeated},
		{"a claim by the owner changes nothing, whatever its handle", claimByOwner},
		{"the second of two claims with handles of one epoch is told who owns", claimSecond},
		{"a claim needs a handle that names the claimant", claimNeedsName},
		{"a claim without a handle takes only from nobody or from the gone", claimWithoutHandle},
		{"another boot of the owner claims as anybody else, and replaces it", claimByNextBoot},
		{"a claim of nothing stores nothing", claimOfNothing},
		{"a claim renews affinity and retention", claimRenews},
		{"a claim of a session without turns can be followed by its first append", claimWithoutTurns},
		{"finish releases the session and keeps the context", finishReleases},
		{"finish is the owner's, at the present epoch", finishRefused},
		{"every change of owner takes a higher epoch", epochsGrow},
	}
}

func (w *world) lastChange() statestore.OwnerChange {
	w.Helper()
	v := w.view()
	return v.Changes[len(v.Changes)-1]
}

// T04: the old owner writes its stale copy back.
func claimTakesOver(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	before := w.view()
	b := w.worker("b").routed()
	c := b.claims()

	now := w.view()
	if !c.Changed || c.Lost != nil || now.Owner != b.by || now.Epoch <= before.Epoch {
		w.Fatalf("claim: %+v, then owner %+v at epoch %d after %d", c, now.Owner, now.Epoch, before.Epoch)
	}
	equal(w, "the record in the answer", c.Record, now.Record)
	change := w.lastChange()
	want := statestore.OwnerChange{Epoch: now.Epoch, Version: 1, Instance: "b", Reason: statestore.ChangeClaimed, At: change.At}
	equal(w, "the change", change, want)
	w.unchanged(func() {
		_, err := a.send(a.write("op-2", "late"))
		refused(w, err, w.notOwner(statestore.WhyFailover, true))
	})
	b.says("op-3", "two")
	w.holds("one", "two")
}

func claimRepeated(w *world) {
	w.worker("a").routed().says("op-1", "one")
	b := w.worker("b").routed()
	req := b.take()
	_, err := b.claim(req)
	w.ok("claim", err)
	w.unchanged(func() {
		c, err := b.claim(req)
		w.ok("the claim repeated", err)
		if c.Changed {
			w.Fatal("the repeat took another epoch")
		}
	})
}

func claimByOwner(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	b := w.worker("b").routed()
	b.claims()
	a.routed().claims()
	oldest := a.at(statestore.Floor{Epoch: w.view().Changes[0].Epoch, Version: 1, Op: statestore.DigestOp("op-1")})
	w.unchanged(func() {
		for _, req := range []statestore.Claim{oldest.take(), {Key: w.key, By: a.by, Lifetimes: w.lives}} {
			c, err := w.store.Claim(w.ctx, req)
			w.ok("claim by the owner", err)
			if c.Changed || c.Owner != a.by {
				w.Fatalf("claim by the owner: %+v", c)
			}
		}
	})
}

func claimSecond(w *world) {
	w.worker("a").routed().says("op-1", "one")
	b, c := w.worker("b").routed(), w.worker("c").routed()
	b.claims()
	w.unchanged(func() {
		_, err := c.claim(c.take())
		refused(w, err, &statestore.StaleHandleError{Owner: b.by, Epoch: w.view().Epoch})
	})
}

func claimNeedsName(w *world) {
	w.worker("a").routed().says("op-1", "one")
	b := w.worker("b").routed()
	b.handle.Named = false
	w.unchanged(func() {
		_, err := b.claim(b.take())
		refused(w, err, w.stale())
	})
}

func claimWithoutHandle(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	b := w.worker("b")
	bare := statestore.Claim{Key: w.key, By: b.by, Lifetimes: w.lives}
	w.unchanged(func() {
		_, err := b.claim(bare)
		refused(w, err, w.stale())
		wrong := bare
		wrong.Gone = a.reboot().by
		_, err = b.claim(wrong)
		refused(w, err, w.stale())
	})
	gone := bare
	gone.Gone = a.by
	if _, err := b.claim(gone); err != nil {
		w.Fatalf("claim from an owner that is gone: %v", err)
	}
	_, err := b.finish()
	w.ok("finish", err)
	c := w.worker("c")
	bare.By = c.by
	if _, err := c.claim(bare); err != nil {
		w.Fatalf("claim of a session that nobody owns: %v", err)
	}
	equal(w, "the owner", w.view().Owner, c.by)
}

func claimByNextBoot(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	late := a.write("op-2", "late")
	next := a.reboot().routed()
	w.unchanged(func() {
		_, err := next.send(next.write("op-3", "too soon"))
		refused(w, err, w.notOwner(statestore.WhyReplaced, true))
	})
	next.claims()
	equal(w, "the reason", w.lastChange().Reason, statestore.ChangeReplaced)
	_, err := a.send(late)
	refused(w, err, w.notOwner(statestore.WhyReplaced, true))
}

func claimOfNothing(w *world) {
	b := w.worker("b").routed()
	c := b.claims()
	if c.Exists || c.Changed || c.Lost != nil {
		w.Fatalf("claim of nothing: %+v", c)
	}
	if w.view().Exists {
		w.Fatal("a claim of nothing stored something")
	}
	b.routed().says("op-1", "one")
}

func claimRenews(w *world) {
	w.shorten()
	w.worker("a").routed().says("op-1", "one")
	before := w.view()
	b := w.worker("b").routed()
	w.passUntil(before.AffinityUntil)
	if w.view().Live() {
		w.Fatal("the binding holds after its affinity")
	}
	b.claims()
	now := w.view()
	if !now.Live() || now.AffinityUntil <= before.AffinityUntil || now.Expires <= before.Expires {
		w.Fatalf("after the claim: affinity until %d (was %d), expires %d (was %d)",
			now.AffinityUntil, before.AffinityUntil, now.Expires, before.Expires)
	}
}

func claimWithoutTurns(w *world) {
	a := w.worker("a").routed()
	w.bound(a, true)
	b := w.worker("b").routed()
	b.claims()
	equal(w, "the owner", w.view().Owner, b.by)
	b.says("op-1", "one")
	w.holds("one")
}

func finishReleases(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	before := w.view()
	r, err := a.finish()
	w.ok("finish", err)
	now := w.view()
	if !now.Owner.IsZero() || now.Epoch <= before.Epoch || now.Live() || r.Epoch != now.Epoch || r.Floor != now.Floor() {
		w.Fatalf("after finish: %+v, answered %+v", now, r)
	}
	equal(w, "the reason", w.lastChange().Reason, statestore.ChangeFinished)
	equal(w, "expires", now.Expires, before.Expires)
	w.unchanged(func() {
		_, err := a.send(a.write("op-2", "late"))
		refused(w, err, w.notOwner(statestore.WhyUnbound, true))
	})
	w.holds("one")
	w.worker("b").routed().claims()
}

func finishRefused(w *world) {
	a := w.worker("a").routed()
	_, err := a.finish()
	refused(w, err, &statestore.EndedError{Reason: statestore.Expired})
	a.says("op-1", "one")
	stale := a.at(a.handle.Floor)
	b := w.worker("b").routed()
	w.unchanged(func() {
		_, err := b.finish()
		refused(w, err, w.stale())
	})
	b.claims()
	w.unchanged(func() {
		_, err := stale.finish()
		refused(w, err, w.stale())
	})
	_, err = b.finish()
	w.ok("finish", err)
	w.unchanged(func() { // the answer was lost, and it is asked again
		_, err := b.at(statestore.Floor{Epoch: w.view().Changes[1].Epoch, Version: 1, Op: statestore.DigestOp("op-1")}).finish()
		refused(w, err, &statestore.StaleHandleError{Epoch: w.view().Epoch})
	})
}

// Every way in which an owner changes, in one row.
func epochsGrow(w *world) {
	a, b, c := w.worker("a").routed(), w.worker("b"), w.worker("c")
	last := uint64(0)
	grew := func(act string, epoch uint64) {
		w.Helper()
		if epoch <= last {
			w.Fatalf("%s took epoch %d after %d", act, epoch, last)
		}
		last = epoch
	}
	floor := func() uint64 { return w.view().Floor().Epoch }
	w.bound(a, true)
	grew("a report", floor())
	a.routed().says("op-1", "one")
	grew("first append", floor())
	b.routed().claims()
	grew("claim", floor())
	w.move(c, nil)
	grew("move", floor())
	_, err := c.routed().finish()
	w.ok("finish", err)
	grew("finish", floor())
	w.move(a, nil)
	grew("move from nobody", floor())
	w.detach()
	grew("detach", floor())
	b.routed().claims()
	grew("claim from nobody", floor())
	_, err = b.erase()
	w.ok("delete", err)
	grew("delete", floor())
	req := a.routed().write("op-2", "again")
	req.Recreate = true
	a.sent(req)
	grew("re-creation", floor())
	if got := w.view().Changes; len(got) != 1 {
		w.Fatalf("a new life remembers %d changes of the old one", len(got)-1)
	}
	for i := range statestore.ChangesRemembered + 3 {
		[]*worker{a, b}[i%2].routed().claims()
	}
	v := w.view()
	if len(v.Changes) != statestore.ChangesRemembered {
		w.Fatalf("%d changes remembered, want the last %d", len(v.Changes), statestore.ChangesRemembered)
	}
	for i := range v.Changes {
		grew("a later change", v.Changes[i].Epoch)
	}
}
