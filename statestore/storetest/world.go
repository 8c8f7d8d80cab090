package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"time"

	"berth/statestore"
)

// world is one store, and one session in it that the trace is about.
type world struct {
	testing.TB
	backend Backend
	store   statestore.Store
	other   statestore.Store // of another process, where a race wants one
	ctx     context.Context
	key     statestore.SessionKey
	lives   statestore.Lifetimes
}

// patience is how long what takes a moment may take on a busy machine.
const patience = 2 * time.Minute

// Lifetimes that no trace outlives by accident.
var longLives = statestore.Lifetimes{Affinity: 30 * time.Minute, Retention: 24 * time.Hour, Tombstone: 25 * time.Hour}

func newWorld(t testing.TB, b Backend) *world {
	t.Helper()
	return &world{
		TB: t, backend: b, store: b.Open(t), ctx: t.Context(),
		key:   statestore.SessionKey{Tenant: "acme", Pool: "llama", ID: "conversation 1 ✓"},
		lives: longLives,
	}
}

// shorten gives the session lifetimes that pass can outlive.
func (w *world) shorten() {
	unit := 10 * time.Minute
	if w.backend.Advance == nil {
		unit = 500 * time.Millisecond
	}
	w.lives = statestore.Lifetimes{Affinity: unit, Retention: 3 * unit, Tombstone: 6 * unit}
}

// now is the store's clock, read where it disturbs no session of the trace.
func (w *world) now() statestore.Millis {
	w.Helper()
	v, err := w.store.Lookup(w.ctx, statestore.SessionKey{Tenant: "clock", Pool: "clock", ID: "clock"})
	w.ok("read the store's clock", err)
	return v.Now
}

// pass lets d go by on the store's clock.
func (w *world) pass(d time.Duration) {
	w.Helper()
	w.passUntil(w.now().Add(d))
}

// passUntil returns when the store's clock has reached the moment.
func (w *world) passUntil(moment statestore.Millis) {
	w.Helper()
	if w.backend.Advance != nil {
		if left := moment.Sub(w.now()); left > 0 {
			w.backend.Advance(w, w.store, left)
		}
	}
	w.eventually("the store's clock moves on", func() bool { return w.now() >= moment })
}

// sweep ends everything whose time is over.
func (w *world) sweep() (ended int) {
	w.Helper()
	for range 1000 {
		n, err := w.store.Sweep(w.ctx, 100)
		w.ok("sweep", err)
		if n == 0 {
			return ended
		}
		ended += n
	}
	w.Fatal("the sweep finds no end")
	return 0
}

// goBack brings an earlier copy of the store back. The clock has gone on past
// every epoch that was issued since.
func (w *world) goBack(restore func() statestore.Store, issued uint64) {
	w.Helper()
	w.ok("close the store", w.store.Close())
	w.store = restore()
	w.passUntil(statestore.Millis(issued) + 1)
}

// eventually polls until something that nothing announces has happened.
func (w *world) eventually(what string, happened func() bool) {
	w.Helper()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !happened() {
		select {
		case <-poll.C:
		case <-limit.C:
			w.Fatalf("after %s still not: %s", patience, what)
		}
	}
}

// view looks the session up.
func (w *world) view() statestore.View {
	w.Helper()
	v, err := w.store.Lookup(w.ctx, w.key)
	w.ok("look up the session", err)
	return v
}

// load reads the session and all its turns from the from-th.
func (w *world) load(from uint64) (statestore.Reading, []statestore.Turn) {
	w.Helper()
	r, err := w.store.Load(w.ctx, w.key, from)
	w.ok("load the session", err)
	var turns []statestore.Turn
	for t, err := range r.Turns {
		w.ok("read a turn", err)
		if want := from + uint64(len(turns)); t.N != want {
			w.Fatalf("turn %d came where turn %d belongs", t.N, want)
		}
		turns = append(turns, t.Turn)
	}
	return r, turns
}

// holds fails unless the session holds exactly these turns of text.
func (w *world) holds(texts ...string) {
	w.Helper()
	_, turns := w.load(0)
	w.sameTurns(turns, says(texts...))
}

func (w *world) sameTurns(got, want []statestore.Turn) {
	w.Helper()
	if len(got) != len(want) {
		w.Fatalf("%d turns, want %d\n got %s\nwant %s", len(got), len(want), brief(got), brief(want))
	}
	for i := range got {
		if got[i].Type != want[i].Type || !bytes.Equal(got[i].Value, want[i].Value) || got[i].Tokens != want[i].Tokens {
			w.Fatalf("turn %d is not what was written\n got %s\nwant %s", i, brief(got[i:i+1]), brief(want[i:i+1]))
		}
	}
}

// brief prints turns for people.
func brief(turns []statestore.Turn) string {
	var b bytes.Buffer
	for _, t := range turns {
		value, more := t.Value, ""
		if len(value) > 40 {
			value, more = value[:40], "…"
		}
		fmt.Fprintf(&b, "[%d: %q%s %d bytes, %d tokens]", t.Type, value, more, len(t.Value), t.Tokens)
	}
	return b.String()
}

// says turns texts into turns of one JSON string each.
func says(texts ...string) []statestore.Turn {
	turns := make([]statestore.Turn, 0, len(texts))
	for _, s := range texts {
		turns = append(turns, statestore.Turn{Type: statestore.TurnJSON, Value: []byte(strconv.Quote(s)), Tokens: uint64(len(s))})
	}
	return turns
}

// ok fails on an error of an act that must succeed.
func (w *world) ok(act string, err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", act, err)
	}
}

// equal fails unless both are the same in every member.
func equal[T any](w *world, what string, got, want T) {
	w.Helper()
	if !reflect.DeepEqual(got, want) {
		w.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// refused fails unless err is the refusal want, with all its members.
func refused[E error](w *world, err error, want E) {
	w.Helper()
	var got E
	if !errors.As(err, &got) {
		w.Fatalf("got %T (%v), want %T %+v", err, err, want, want)
	}
	equal(w, fmt.Sprintf("members of %T", want), got, want)
}

// refusedAs fails unless err wraps the sentinel.
func (w *world) refusedAs(err, want error) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Fatalf("got %T (%v), want %q", err, err, want)
	}
}

// unchanged runs act and fails if it changed anything that is kept of the
// session but parked writes.
func (w *world) unchanged(act func()) {
	w.Helper()
	before, turns := w.load(0)
	act()
	after, turnsAfter := w.load(0)
	equal(w, "the record after a refusal", after.Record, before.Record)
	equal(w, "the tombstone after a refusal", after.Tombstone, before.Tombstone)
	equal(w, "meta after a refusal", string(after.Meta), string(before.Meta))
	w.sameTurns(turnsAfter, turns)
}

// notTested skips the trace and says what it leaves open.
func (w *world) notTested(what string) {
	w.Helper()
	w.Skipf("not tested: %s", what)
}
