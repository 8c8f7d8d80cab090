package storetest

import (
	"errors"
	"time"

	"berth/statestore"
)

func placementTraces() []trace {
	return []trace{
		{"each boot of an instance replaces only its own placements", placementsOwn},
		{"placements need a session and no owner", placementsNeedSession},
		{"placements come back as they came, with their age", placementsAge},
		{"a session takes 64 KiB of descriptors from all instances together", placementsLimit},
		{"placements stay through claims and moves and end with the session", placementsStay},
	}
}

func (a *worker) places(descriptors string) error {
	return a.w.store.PutPlacements(a.w.ctx, a.w.key, a.by, []byte(descriptors))
}

// placed fails unless exactly these descriptors are stored, by writer.
func (w *world) placed(want map[statestore.Owner]string) {
	w.Helper()
	r, _ := w.load(0)
	got := map[statestore.Owner]string{}
	for _, p := range r.Placements {
		if _, twice := got[p.By]; twice {
			w.Fatalf("two sets of %+v", p.By)
		}
		got[p.By] = string(p.Descriptors)
	}
	equal(w, "placements", got, want)
}

func placementsOwn(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	next := a.reboot()
	w.ok("put", a.places(`[{"tier":"gpu"}]`))
	w.ok("put", b.places(`[{"tier":"host"}]`))
	w.ok("put", next.places(`[{"tier":"disk"}]`))
	w.placed(map[statestore.Owner]string{a.by: `[{"tier":"gpu"}]`, b.by: `[{"tier":"host"}]`, next.by: `[{"tier":"disk"}]`})
	w.ok("replace", b.places(`[{"tier":"object"},{"tier":"gpu"}]`))
	w.ok("remove", next.places(`[]`))
	w.ok("remove", a.places(``))
	w.placed(map[statestore.Owner]string{b.by: `[{"tier":"object"},{"tier":"gpu"}]`})
}

func placementsNeedSession(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	w.refusedAs(a.places(`[{}]`), statestore.ErrNotFound)
	if w.view().Exists {
		w.Fatal("placements made a session")
	}
	a.says("op-1", "one")
	_, err := a.finish()
	w.ok("finish", err)
	before := w.view()
	w.ok("put", b.places(`[{}]`))
	equal(w, "the record", w.view().Record, before.Record)
}

func placementsAge(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	descriptors := "[ {\"compat\" : {\"x\u2028\":9007199254740993}},\r\n{}]"
	w.ok("put", a.places(descriptors))
	w.placed(map[statestore.Owner]string{a.by: descriptors})
	w.pass(20 * time.Millisecond)
	if r, _ := w.load(0); r.Placements[0].Age < 20*time.Millisecond {
		w.Fatalf("age %v after 20 ms", r.Placements[0].Age)
	}
}

func placementsLimit(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	sized := func(n int) string { return `["` + string(prose(1, n-4)) + `"]` }
	const half = statestore.MaxPlacementBytes / 2
	w.ok("put", a.places(sized(half)))
	w.ok("put", b.places(sized(half)))
	want := map[statestore.Owner]string{a.by: sized(half), b.by: sized(half)}
	var large *statestore.TooLargeError
	if err := b.places(sized(half + 1)); !errors.As(err, &large) || large.What != "kv" || large.Limit != statestore.MaxPlacementBytes {
		w.Fatalf("one byte above the limit: %v", err)
	}
	w.placed(want)
	w.ok("shrink", a.places(sized(half-100)))
	w.ok("grow", b.places(sized(half+100)))
}

func placementsStay(w *world) {
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	w.ok("put", a.places(`[{"tier":"gpu"}]`))
	want := map[statestore.Owner]string{a.by: `[{"tier":"gpu"}]`}
	b.routed().claims()
	w.placed(want)
	w.move(w.worker("c"), nil)
	w.placed(want)
	_, _ = b.replace(b.rewrite("op-2", "x")) // refused
	w.placed(want)
	e, err := w.store.Delete(w.ctx, statestore.Delete{Key: w.key, Lifetimes: w.lives})
	w.ok("delete", err)
	if len(e.Placements) != 1 || e.Placements[0].By != a.by {
		w.Fatalf("placements to forget: %+v", e.Placements)
	}
	req := a.routed().write("op-3", "anew")
	req.Recreate = true
	a.sent(req)
	w.placed(map[statestore.Owner]string{})
}
