package storetest

import "berth/statestore"

func lossAccepted(w *world) {
	a := w.lostTwo()
	lost, before := a.handle.Floor, w.view()
	req := a.take()
	req.AcceptLost = true
	c, err := a.claim(req)
	w.ok("claim that accepts the loss", err)
	equal(w, "the loss that is told", c.Lost, &statestore.Loss{HaveVersion: 1, HaveTurns: 1, WantVersion: 3})
	now := w.view()
	if !c.Changed || now.Epoch <= before.Epoch || now.Owner != a.by || w.lastChange().Reason != statestore.ChangeLost {
		w.Fatalf("after the claim: %+v", now.Record)
	}
	equal(w, "the loss that is kept", now.Lost, &statestore.AcceptedLoss{Epoch: now.Epoch, Want: 3})

	// What was lost is no alarm any more, whoever comes with it and whatever it wants.
	old := a.at(lost)
	w.unchanged(func() {
		for _, err := range []error{
			second(old.send(old.write("op-x", "x"))), second(old.send(old.write("op-1", "one"))), second(old.claim(old.take())),
			second(old.finish()), second(old.erase()), second(old.claim(req)),
		} {
			refused(w, err, w.stale())
		}
	})
	equal(w, "parked", w.parkedOps(), []string{})
	above := a.at(statestore.Floor{Epoch: lost.Epoch, Version: 4, Op: statestore.DigestOp("op-4")})
	w.noticed(above, 4)
	a.says("op-4", "four")
	w.holds("one", "four")
	a.at(lost).routed().claims() // what a client does that lost the answer
}

func lossAcceptedByOther(w *world) {
	a := w.lostTwo()
	lost := a.handle.Floor
	b := w.worker("b").routed()
	b.handle.Second = &lost
	req := b.take()
	req.AcceptLost = true
	c, err := b.claim(req)
	w.ok("claim that accepts the loss", err)
	if c.Lost == nil || c.Lost.WantVersion != 3 || w.view().Owner != b.by {
		w.Fatalf("claim: %+v", c)
	}
	w.unchanged(func() {
		_, err := a.send(a.write("op-4", "four"))
		refused(w, err, w.stale())
	})
	// Accepting gives no right to take what is another's.
	d := w.worker("d").at(statestore.Floor{Epoch: w.view().Epoch - 1, Version: 9})
	req = d.take()
	req.AcceptLost = true
	w.unchanged(func() {
		_, err := d.claim(req)
		refused(w, err, w.stale())
	})
}

// A drain fences the owner, and binds it to nothing that it does not have.
func lossAcceptedByFenced(w *world) {
	a := w.lostTwo()
	w.fence(statestore.Fence{Add: []statestore.Owner{a.by}})
	req := a.take()
	req.AcceptLost = true
	c, err := a.claim(req)
	w.ok("claim by the owner", err)
	if !c.Changed || c.Lost == nil || c.Owner != a.by {
		w.Fatalf("claim: %+v", c)
	}
}

func lossAcceptedForNothing(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	req := a.take()
	req.AcceptLost = true
	w.unchanged(func() {
		c, err := a.claim(req)
		w.ok("claim", err)
		if c.Changed || c.Lost != nil {
			w.Fatalf("claim that has nothing to accept: %+v", c)
		}
	})
}

func lossAcceptedTotal(w *world) {
	a := w.worker("a").routed()
	lose := w.lossy()
	a.says("op-1", "one")
	a.says("op-2", "two")
	lost := a.handle.Floor
	lose()
	reqs := []statestore.Claim{a.take(), a.take()}
	reqs[1].Handle, reqs[1].Have = nil, &lost
	for _, req := range reqs {
		_, err := a.claim(req)
		refused(w, err, w.behind(2))
		req.AcceptLost = true
		c, err := a.claim(req)
		w.ok("claim that accepts the loss of everything", err)
		equal(w, "the loss that is told", c.Lost, &statestore.Loss{WantVersion: 2})
		if c.Exists || c.Changed || w.view().Exists {
			w.Fatalf("claim of nothing: %+v", c)
		}
	}
	a.says("op-3", "anew") // with the handle of the claim's answer
	w.holds("anew")
}

// A promise made after the first acceptance is lost with the second, which asks
// for less than the first did.
func lossAcceptedTwice(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	accept := func(want uint64) {
		w.Helper()
		lost := a.at(statestore.Floor{Epoch: w.view().Epoch, Version: want, Op: statestore.DigestOp("lost")})
		req := lost.take()
		req.AcceptLost = true
		_, err := lost.claim(req)
		w.ok("claim that accepts a loss", err)
	}
	accept(9)
	between := a.at(statestore.Floor{Epoch: w.view().Epoch, Version: 7, Op: statestore.DigestOp("promised")})
	accept(5)
	w.noticed(between, 7)
}
