package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"berth/statestore"
)

func settingsTraces() []trace {
	return []trace{
		{"a policy is replaced and its version grows by one", policies},
		{"the first caller makes the key that signs, and it stays", signingKeys},
		{"callers at the same time get the same key", signingKeysTogether},
		{"a process's note is read by all until it is replaced or its time is over", notes},
		{"the feed tells of owners, ends and expiries, or of a gap", feedTells},
		{"the feed ends with its context", feedEnds},
		{"a backend says what it is and what an answer means", describes},
		{"every answer says the durability that it reached", durabilitySaid},
		{"a write that does not reach its minimum is stored and says so", durabilityShort},
		{"another process finds what was acknowledged", reopened},
	}
}

func policies(w *world) {
	equal(w, "policies of an empty store", len(w.fleet().Policies), 0)
	for i, doc := range []string{`{ "max_age_ms": 1 }`, `{}`} {
		p, err := w.store.PutPolicy(w.ctx, "llama", []byte(doc))
		w.ok("put", err)
		equal(w, "the answer", p, statestore.Policy{Version: uint64(i) + 1, Doc: []byte(doc)})
	}
	_, err := w.store.PutPolicy(w.ctx, "other", []byte(`{"x":1}`))
	w.ok("put", err)
	want := map[string]statestore.Policy{"llama": {Version: 2, Doc: []byte(`{}`)}, "other": {Version: 1, Doc: []byte(`{"x":1}`)}}
	equal(w, "policies", w.fleet().Policies, want)
}

func notes(w *world) {
	w.shorten()
	life := w.lives.Retention
	put := func(process, text string) {
		w.Helper()
		w.ok("put a note", w.store.PutNote(w.ctx, process, []byte(text), life))
	}
	read := func() map[string]string {
		w.Helper()
		all, err := w.store.Notes(w.ctx)
		w.ok("read the notes", err)
		texts := map[string]string{}
		for process, text := range all {
			texts[process] = string(text)
		}
		return texts
	}
	equal(w, "notes of an empty store", len(read()), 0)
	put("a", "\x00 one")
	put("b", "two")
	put("a", "three")
	equal(w, "notes", read(), map[string]string{"a": "three", "b": "two"})
	put("b", "")
	equal(w, "notes without b's", read(), map[string]string{"a": "three"})
	w.pass(life * 2 / 3)
	put("c", "later")
	w.pass(life / 2)
	equal(w, "notes whose time is not over", read(), map[string]string{"c": "later"})
	var large *statestore.TooLargeError
	if err := w.store.PutNote(w.ctx, "a", make([]byte, statestore.MaxNoteBytes+1), time.Second); !errors.As(err, &large) {
		w.Fatalf("a large note: %v", err)
	}
	if err := w.store.PutNote(w.ctx, "", []byte("x"), time.Second); !errors.Is(err, statestore.ErrInvalid) {
		w.Fatalf("a note of nobody: %v", err)
	}
}

func signingKeys(w *world) {
	keys, err := w.store.SigningKeys(w.ctx)
	w.ok("read keys", err)
	if len(keys) != 1 || len(keys[0].Secret) != 32 {
		w.Fatalf("%d keys, want one of 32 bytes", len(keys))
	}
	again, err := w.store.SigningKeys(w.ctx)
	w.ok("read keys", err)
	equal(w, "the same keys", again, keys)
	other, err := w.backend.Open(w).SigningKeys(w.ctx)
	w.ok("read keys of another store", err)
	if string(other[0].Secret) == string(keys[0].Secret) {
		w.Fatal("two stores made the same secret")
	}
}

func signingKeysTogether(w *world) {
	keys := make([][]statestore.SigningKey, 8)
	errs := make([]error, len(keys))
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() { keys[i], errs[i] = w.store.SigningKeys(w.ctx) })
	}
	all.Wait()
	for i := range keys {
		w.ok("read keys", errs[i])
		equal(w, "the keys", keys[i], keys[0])
	}
}

// feedTells waits after each act for its event. A gap instead is allowed: after
// it the replica reads everything anew.
func feedTells(w *world) {
	w.shorten()
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	events, err := w.store.Watch(ctx)
	w.ok("watch", err)
	heard := func(what string, fits func(statestore.Event) bool) {
		w.Helper()
		limit := time.NewTimer(patience)
		defer limit.Stop()
		for {
			select {
			case e, open := <-events:
				if !open {
					w.Fatalf("the feed ended before it told of: %s", what)
				}
				if e.Kind == statestore.EventGap || fits(e) {
					return
				}
			case <-limit.C:
				w.Fatalf("the feed does not tell of: %s", what)
			}
		}
	}
	ofSession := func(e statestore.Event) bool {
		return e.Kind == statestore.EventSession && e.Session == w.key.Digest() && e.Epoch == w.view().Floor().Epoch
	}
	a, b := w.worker("a").routed(), w.worker("b")
	a.says("op-1", "one")
	heard("a first append", ofSession)
	b.routed().claims()
	heard("a claim", ofSession)
	w.move(a, nil)
	heard("a move", ofSession)
	w.ok("finish", second(a.routed().finish()))
	heard("a finish", ofSession)
	w.ok("delete", second(w.store.Delete(w.ctx, statestore.Delete{Key: w.key, Lifetimes: w.lives})))
	heard("a delete", ofSession)
	w.key.ID = "another"
	a.routed().says("op-1", "one")
	heard("a first append", ofSession)
	w.expire()
	w.sweep()
	heard("an expiry", ofSession)
	i := w.register(spec("a"))
	heard("a registration", func(e statestore.Event) bool { return e.Kind == statestore.EventFleet })
	w.putTasks(time.Hour, w.task("1", i.Owner()))
	heard("a task", func(e statestore.Event) bool { return e.Kind == statestore.EventTasks && e.Instance == "a" })
	j := w.job("drain")
	heard("a job", func(e statestore.Event) bool { return e.Kind == statestore.EventJob && e.Job == j.ID })
	w.ok("put a policy", second(w.store.PutPolicy(w.ctx, "llama", []byte(`{}`))))
	heard("a policy", func(e statestore.Event) bool { return e.Kind == statestore.EventFleet })
}

func feedEnds(w *world) {
	ctx, cancel := context.WithCancel(w.ctx)
	events, err := w.store.Watch(ctx)
	w.ok("watch", err)
	cancel()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case _, open := <-events:
			if !open {
				return
			}
		case <-limit.C:
			w.Fatal("the feed outlives its context")
		}
	}
}

func describes(w *world) {
	d, err := w.store.Describe(w.ctx)
	w.ok("describe", err)
	if d.Backend == "" || d.Durability == statestore.LevelUnknown || d.Partitions < 1 {
		w.Fatalf("description %+v", d)
	}
}

func durabilitySaid(w *world) {
	d, err := w.store.Describe(w.ctx)
	w.ok("describe", err)
	atLeast := func(act string, got statestore.Durability) {
		w.Helper()
		if got.Level < d.Durability {
			w.Fatalf("%s reached %s, the store gives %s", act, got, d.Durability)
		}
	}
	a, b := w.worker("a").routed(), w.worker("b")
	req := a.write("op-1", "one")
	atLeast("append", a.sent(req).Durability)
	atLeast("its repeat", a.sent(req).Durability)
	atLeast("replace", a.replaced(a.rewrite("op-2", "short")).Durability)
	atLeast("claim", b.routed().claims().Durability)
	atLeast("move", w.move(a, nil).Durability)
	r, err := a.routed().finish()
	w.ok("finish", err)
	atLeast("finish", r.Durability)
	e, err := w.store.Delete(w.ctx, statestore.Delete{Key: w.key, Lifetimes: w.lives})
	w.ok("delete", err)
	atLeast("delete", e.Durability)
}

func durabilityShort(w *world) {
	all := statestore.Requirement{Level: statestore.LevelReplicated, Wait: 20 * time.Millisecond}
	a := w.worker("a").routed()
	req := a.write("op-1", "one")
	req.Require = all
	r, err := a.send(req)
	if err == nil {
		w.notTested("a minimum that is not reached: this store reaches " + r.Durability.String())
	}
	for _, repeated := range []bool{false, true} {
		_, err = a.send(req)
		var short *statestore.NotDurableError
		if !errors.As(err, &short) || short.Reached.Level == statestore.LevelUnknown || all.MetBy(short.Reached) {
			w.Fatalf("an append that asks for all replicas: %v", err)
		}
		if short.Receipt.Version != 1 || !short.Receipt.Duplicate {
			w.Fatalf("the receipt of its repeat (%v): %+v", repeated, short.Receipt)
		}
	}
	w.holds("one")
	req.Require = statestore.Requirement{}
	if r := a.sent(req); !r.Duplicate || r.Version != 1 {
		w.Fatalf("the op repeated without a minimum: %+v", r)
	}
}

// T08: what one process stored, another loads, in the right order.
func reopened(w *world) {
	if w.backend.Reopen == nil {
		w.notTested("a store that another process opens")
	}
	a := w.worker("a")
	const sessions = 50
	for i := range sessions {
		w.key.ID = fmt.Sprintf("s-%d", i)
		a.routed()
		for j := range 3 {
			a.says(fmt.Sprintf("op-%d", j), fmt.Sprintf("turn %d of %d", j, i))
		}
	}
	before := w.view()
	i := w.register(spec("a"))
	keys, err := w.store.SigningKeys(w.ctx)
	w.ok("read keys", err)
	w.store = w.backend.Reopen(w, w.store)
	equal(w, "the record", w.view().Record, before.Record)
	for i := range sessions {
		w.key.ID = fmt.Sprintf("s-%d", i)
		w.holds(fmt.Sprintf("turn 0 of %d", i), fmt.Sprintf("turn 1 of %d", i), fmt.Sprintf("turn 2 of %d", i))
	}
	equal(w, "the index", len(w.named(w.key.Pool, "a")), sessions)
	equal(w, "the instance", w.instance("a"), i)
	again, err := w.store.SigningKeys(w.ctx)
	w.ok("read keys", err)
	equal(w, "the keys", again, keys)
}
