package storetest

import (
	"fmt"

	"berth/statestore"
)

func appendTraces() []trace {
	return []trace{
		{"a lost reply and its repeat are one write", lostReply},
		{"a repeat answers owner, epoch and sizes as of now", repeatAnswersNow},
		{"an op with other content is refused", opReused},
		{"an op older than memory is forgotten", opForgotten},
		{"a refused op goes through with a newer handle, and a late copy is a repeat", refusedOpJudgedAfresh},
		{"the first of two first appends wins", twoFirstAppends},
	}
}

// T01: the reply to an append is lost, and the worker sends it again.
func lostReply(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "hello")
	req := a.write("op-2", "how are you?")
	first := a.sent(req)
	second := a.sent(req)

	if first.Duplicate || !second.Duplicate {
		w.Fatalf("duplicate is %v, then %v", first.Duplicate, second.Duplicate)
	}
	second.Duplicate, second.Affinity = false, first.Affinity
	equal(w, "the repeated answer", second, first)
	w.holds("hello", "how are you?")
}

func repeatAnswersNow(w *world) {
	a := w.worker("a").routed()
	req := a.write("op-1", "hello")
	a.sent(req)
	b := w.worker("b").routed()
	b.claims()
	b.says("op-2", "more")

	got := a.sent(req)
	now := w.view()
	want := statestore.Receipt{
		Epoch: now.Epoch, Version: 1, Turns: 2, Bytes: now.Bytes, Owner: b.by,
		Floor:      statestore.Floor{Epoch: now.Epoch, Version: 1, Op: statestore.DigestOp("op-1")},
		Durability: got.Durability, Affinity: got.Affinity, Duplicate: true,
	}
	equal(w, "the repeat", got, want)
}

// An op stands for its kind, its base and its turns; the handle, the counts of
// tokens and meta may differ.
func opReused(w *world) {
	a := w.worker("a").routed()
	first := a.write("op-1", "hello")
	first.Meta = []byte(`{"n":1}`)
	a.sent(first)
	a.says("op-2", "there")
	reused := &statestore.OpReusedError{Version: 1}
	zero := uint64(0)

	other := a.write("op-1", "Hello")
	_, err := a.send(other)
	refused(w, err, reused)
	other = a.write("op-1", "hello")
	other.Base = &zero
	_, err = a.send(other)
	refused(w, err, reused)
	other = a.write("op-1", "hello")
	other.Turns[0].Type = statestore.TurnBytes
	_, err = a.send(other)
	refused(w, err, reused)
	_, err = a.replace(a.rewrite("op-1", "hello"))
	refused(w, err, reused)

	same := a.write("op-1", "hello")
	same.Turns[0].Tokens, same.Meta, same.At = 99, []byte(`{"n":2}`), statestore.AtEnd
	if r := a.sent(same); !r.Duplicate || r.Version != 1 {
		w.Fatalf("the same op with a newer handle: %+v, want a repeat of version 1", r)
	}
	w.holds("hello", "there")
	reading, _ := w.load(0)
	equal(w, "meta after a repeat", string(reading.Meta), `{"n":1}`)
}

func opForgotten(w *world) {
	a := w.worker("a").routed()
	first := a.write("op-1", "turn 1")
	a.sent(first)
	old := a.at(a.handle.Floor) // version 1
	for i := 2; i <= statestore.OpsRemembered; i++ {
		a.says(fmt.Sprintf("op-%d", i), fmt.Sprintf("turn %d", i))
	}
	if r := a.at(first.Handle.Floor).sent(first); !r.Duplicate {
		w.Fatalf("the oldest remembered op: %+v, want a repeat", r)
	}
	a.routed().says("op-33", "turn 33")

	_, err := a.send(first)
	refused(w, err, &statestore.OpForgottenError{Version: 33})
	// Whatever came after version 1 is remembered, so that an unknown op is new.
	_, err = old.send(old.write("op-new", "x"))
	refused(w, err, &statestore.VersionConflictError{Version: 33, Turns: 33})
	a.routed().says("op-34", "turn 34")
	w.unchanged(func() {
		_, err = old.send(old.write("op-new", "x"))
		refused(w, err, &statestore.OpForgottenError{Version: 34})
	})
}

func refusedOpJudgedAfresh(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	late := a.write("op-3", "three")
	a.says("op-2", "two")

	_, err := a.send(late)
	refused(w, err, w.conflict())
	again := late
	again.Handle = a.handle
	if r := a.sent(again); r.Duplicate || r.Version != 3 {
		w.Fatalf("the same op with the new handle: %+v, want version 3", r)
	}
	if r := a.sent(late); !r.Duplicate || r.Version != 3 {
		w.Fatalf("a late copy of the refused request: %+v, want a repeat of version 3", r)
	}
	w.holds("one", "two", "three")
}

func twoFirstAppends(w *world) {
	a, b := w.worker("a").routed(), w.worker("b").routed()
	a.says("op-a", "from a")
	_, err := b.send(b.write("op-b", "from b"))
	refused(w, err, w.notOwner(statestore.WhyFailover, true))
	w.holds("from a")
	equal(w, "the owner", w.view().Owner, a.by)
}
