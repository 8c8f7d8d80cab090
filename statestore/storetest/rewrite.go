package storetest

import (
	"crypto/sha1" // the digest of a history, not a secret
	"slices"

	"berth/statestore"
)

func rewriteTraces() []trace {
	return []trace{
		{"an append at the end needs no current version", appendAtEnd},
		{"a base keeps that many turns and appends after them", baseKeeps},
		{"a base of all turns is a plain append", baseOfAll},
		{"a base above what is there is a version conflict", baseAbove},
		{"a base with a first append starts from nothing", baseOnFirst},
		{"a replace swaps the whole context at once", replaceSwaps},
		{"a replace can begin a session", replaceFirst},
		{"the record counts turns, tokens and bytes through every kind of write", counts},
		{"the digest chains all accepted writes", digestChains},
		{"a copy knows how many of its turns still hold", copyHolds},
		{"meta is replaced when given and stays when absent", metaStays},
		{"a load starts at any turn", loadFrom},
	}
}

// Parallel requests of one owner: each knows only the version it began at.
func appendAtEnd(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	p, q := a.write("op-p", "p"), a.write("op-q", "q")
	p.At, q.At = statestore.AtEnd, statestore.AtEnd
	a.sent(p)
	if r := a.sent(q); r.Version != 3 || r.Turns != 3 {
		w.Fatalf("the second parallel append: %+v, want version 3 of 3 turns", r)
	}
	w.holds("one", "p", "q")
	if r := a.sent(p); !r.Duplicate || r.Version != 2 {
		w.Fatalf("the first one repeated: %+v, want a repeat of version 2", r)
	}
}

func based(req statestore.Append, k uint64) statestore.Append {
	req.Base = &k
	return req
}

func baseKeeps(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one", "two", "three")
	a.says("op-2", "four")
	r := a.sent(based(a.write("op-3", "other two"), 1))
	if r.Version != 3 || r.Turns != 2 {
		w.Fatalf("append after a base: %+v, want version 3 of 2 turns", r)
	}
	w.holds("one", "other two")
	v := w.view()
	equal(w, "the rewriting version", v.Rewritten, uint64(3))
	equal(w, "the remembered op", v.Ops[2].Kept, uint64(1))

	a.sent(based(a.write("op-4", "all anew"), 0))
	w.holds("all anew")
	a.says("op-5", "and on")
	w.holds("all anew", "and on")
	equal(w, "the rewriting version", w.view().Rewritten, uint64(4))
}

func baseOfAll(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one", "two")
	a.sent(based(a.write("op-2", "three"), 2))
	w.holds("one", "two", "three")
	equal(w, "the rewriting version", w.view().Rewritten, uint64(0))
}

func baseAbove(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one", "two")
	w.unchanged(func() {
		_, err := a.send(based(a.write("op-2", "x"), 3))
		refused(w, err, w.conflict())
	})
}

func baseOnFirst(w *world) {
	a := w.worker("a").routed()
	_, err := a.send(based(a.write("op-1", "x"), 1))
	refused(w, err, &statestore.VersionConflictError{})
	if w.view().Exists {
		w.Fatal("a refused first append left a session")
	}
	a.sent(based(a.write("op-2", "one"), 0))
	w.holds("one")
}

func replaceSwaps(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one", "two", "three")
	stale := a.rewrite("op-x", "x")
	a.says("op-2", "four")
	w.unchanged(func() {
		_, err := a.replace(stale)
		refused(w, err, w.conflict())
	})
	req := a.rewrite("op-3", "a summary", "four")
	if r := a.replaced(req); r.Version != 3 || r.Turns != 2 {
		w.Fatalf("replace: %+v, want version 3 of 2 turns", r)
	}
	if r := a.replaced(req); !r.Duplicate || r.Version != 3 {
		w.Fatalf("the replace again: %+v, want a repeat", r)
	}
	w.holds("a summary", "four")
	equal(w, "the rewriting version", w.view().Rewritten, uint64(3))
	a.routed().says("op-4", "five")
	w.holds("a summary", "four", "five")
}

func replaceFirst(w *world) {
	a := w.worker("a").routed()
	a.replaced(a.rewrite("op-1", "imported", "turns"))
	w.holds("imported", "turns")
	equal(w, "the owner", w.view().Owner, a.by)
}

func counts(w *world) {
	a := w.worker("a").routed()
	check := func(turns ...string) {
		w.Helper()
		var bytes, tokens uint64
		for _, t := range says(turns...) {
			bytes, tokens = bytes+uint64(len(t.Value)), tokens+t.Tokens
		}
		v := w.view()
		equal(w, "turns, bytes, tokens", [3]uint64{v.Turns, v.Bytes, v.Tokens}, [3]uint64{uint64(len(turns)), bytes, tokens})
	}
	a.says("op-1", "one", "twotwo")
	check("one", "twotwo")
	r := a.says("op-2", "three three three")
	check("one", "twotwo", "three three three")
	equal(w, "bytes in the answer", r.Bytes, w.view().Bytes)
	a.sent(based(a.write("op-3", "III"), 2))
	check("one", "twotwo", "III")
	a.replaced(a.rewrite("op-4", "in short"))
	check("in short")
	a.sent(based(a.write("op-5", "anew"), 0))
	check("anew")
}

// Equal digests are equal histories, on either backend.
func digestChains(w *world) {
	a := w.worker("a").routed()
	var want statestore.Digest
	link := func(kind statestore.WriteKind, base *uint64, turns []statestore.Turn) {
		content := statestore.DigestContent(kind, base, turns)
		want = sha1.Sum(slices.Concat(want[:], content[:]))
		equal(w, "digest", w.view().Digest, want)
	}
	first := a.write("op-1", "one")
	a.sent(first)
	link(statestore.KindAppend, nil, first.Turns)
	second := based(a.write("op-2", "zwei"), 1)
	a.sent(second)
	link(statestore.KindAppend, second.Base, second.Turns)
	third := a.rewrite("op-3", "drei")
	a.replaced(third)
	link(statestore.KindReplace, nil, third.Turns)
	a.sent(second) // a repeat writes nothing
	equal(w, "digest after a repeat", w.view().Digest, want)
}

// Base is computed from the record: both backends must keep what it needs.
func copyHolds(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one", "two", "three")
	old := a.handle.Floor
	base := func(f statestore.Floor, turns, want uint64) {
		w.Helper()
		v := w.view()
		equal(w, "leading turns that hold", v.Base(f, turns), want)
	}
	base(old, 3, 3)
	base(old, 5, 3) // two that were never stored
	a.says("op-2", "four")
	base(old, 3, 3)
	base(old, 4, 3)
	a.sent(based(a.write("op-3", "vier"), 2))
	base(old, 3, 2)
	base(a.handle.Floor, 3, 3)
	base(statestore.Floor{Epoch: old.Epoch, Version: 1, Op: statestore.DigestOp("another")}, 3, 0)
	a.replaced(a.rewrite("op-4", "all anew"))
	base(old, 3, 0)
}

func metaStays(w *world) {
	a := w.worker("a").routed()
	check := func(want string) {
		w.Helper()
		r, _ := w.load(0)
		equal(w, "meta", string(r.Meta), want)
	}
	a.says("op-1", "one")
	r, _ := w.load(0)
	if r.Meta != nil {
		w.Fatalf("meta is %q before any was given, want nil", r.Meta)
	}
	req := a.write("op-2", "two")
	req.Meta = []byte(`{ "tools" : ["a"] }`)
	a.sent(req)
	check(`{ "tools" : ["a"] }`)
	a.says("op-3", "three")
	check(`{ "tools" : ["a"] }`)
	re := a.rewrite("op-4", "short")
	a.replaced(re)
	check(`{ "tools" : ["a"] }`)
	re = a.rewrite("op-5", "shorter")
	re.Meta = []byte(`null`)
	a.replaced(re)
	check(`null`)
}

func loadFrom(w *world) {
	r, none := w.load(0)
	if r.Exists || len(none) > 0 {
		w.Fatalf("a session that is not there: %+v with %d turns", r.View, len(none))
	}
	a := w.worker("a").routed()
	texts := []string{"zero", "one", "two", "three", "four"}
	a.says("op-1", texts[:2]...)
	a.says("op-2", texts[2:]...)
	for from := range len(texts) + 2 {
		_, turns := w.load(uint64(from))
		w.sameTurns(turns, says(texts[min(from, len(texts)):]...))
	}
}
