package services_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"berth/statestore/boltstore"
)

// past is a store that can go back in time: its file as it was.
type past struct {
	t    *testing.T
	path string
}

// open starts a server on the file, and stops both at the returned close.
func (p past) open() (b *bundle, stop func()) {
	p.t.Helper()
	store, err := boltstore.Open(p.t.Context(), p.path, boltstore.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	b = setupOn(p.t, store)
	return b, func() {
		b.stop()
		if err := store.Close(); err != nil {
			p.t.Error(err)
		}
	}
}

func (p past) copy(from, to string) {
	p.t.Helper()
	in, err := os.Open(from)
	if err != nil {
		p.t.Fatal(err)
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.Create(to)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		p.t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		p.t.Fatal(err)
	}
}

// lossy is a store that went back in time below two acknowledged writes.
type lossy struct {
	*bundle
	owner, other *worker
	kept, lost   string // handles of the last write that is there, and of the last that was promised
	writes       []lostWrite
	stop         func()
}

// lostWrite is what a client repeats: the op, the turn and the handle of then.
type lostWrite struct{ op, value, handle string }

// lose makes a session of three writes and a copy of the store after the first.
func lose(t *testing.T) *lossy {
	t.Helper()
	dir := t.TempDir()
	p := past{t, filepath.Join(dir, "berth.db")}
	b, stop := p.open()
	w1, w2 := b.worker("i1"), b.worker("i2")
	owner, other := b.open("s", w1, w2)
	l := &lossy{kept: b.route("s").want(200).str("handle")}
	stop()
	p.copy(p.path, filepath.Join(dir, "copy.db"))

	b, stop = p.open()
	owner = &worker{b, owner.id, owner.incarnation}
	h := l.kept
	for i := range 2 {
		w := lostWrite{fmt.Sprint("lost-", i), fmt.Sprintf(`"turn %d"`, i), h}
		l.writes = append(l.writes, w)
		h = owner.append("s", w.op, w.handle, w.value).want(200).str("handle")
	}
	l.lost = h
	stop()
	p.copy(filepath.Join(dir, "copy.db"), p.path)

	l.bundle, l.stop = p.open()
	l.owner, l.other = &worker{l.bundle, owner.id, owner.incarnation}, &worker{l.bundle, other.id, other.incarnation}
	t.Cleanup(l.stop)
	return l
}

// behind holds an answer to what a loss must look like.
func behind(t *testing.T, what string, a answer) {
	t.Helper()
	a.refused(409, "store_behind")
	if a.str("have.version") != "1" || a.str("have.turns") != "1" || a.str("want.version") != "3" {
		t.Errorf("%s: %s", what, a.body)
	}
}

// A route given the newest handle carries it as a second floor, so that whoever
// comes with the new handle is told of the loss, whatever it does with it.
func TestALossIsSeenThroughTheRoute(t *testing.T) {
	t.Parallel()
	l := lose(t)
	for _, query := range []string{"", "&exclude=" + l.owner.id} {
		hint := l.call("GET", "/route?session=s"+query, "", "X-Berth-Handle: "+l.lost).want(200)
		if hint.str("version") != "1" {
			t.Fatalf("the route tells %s", hint.body)
		}
		h := hint.str("handle")
		behind(t, "append", l.owner.append("s", "new", h, `1`))
		behind(t, "replace", l.owner.replace("s", "new", h, `1`))
		behind(t, "claim", l.other.recover("s", h, "claim"))
		behind(t, "claim by the owner", l.owner.recover("s", h, "claim"))
		behind(t, "read", l.other.recover("s", h, "read"))
		behind(t, "prewarm", l.other.recover("s", h, "prewarm"))
		behind(t, "finish", l.owner.finish("s", h))
		behind(t, "delete", l.call("DELETE", "/v1/sessions/s", "", "X-Berth-Handle: "+h))
		// It is carried on by the next route too.
		again := l.call("GET", "/route?session=s", "", "X-Berth-Handle: "+h).want(200).str("handle")
		behind(t, "append with the next handle", l.owner.append("s", "new", again, `1`))
	}
	behind(t, "have", l.other.recover("s", "", "read", fmt.Sprintf(`"have":{"handle":%q,"turns":3}`, l.lost)))
	if l.floor("s").Version != 1 {
		t.Fatal("something was stored")
	}
}

// Repair is the lost writes again, oldest first, each with its op and its handle.
func TestALossIsRepaired(t *testing.T) {
	t.Parallel()
	l := lose(t)
	held := l.call("GET", "/route?session=s", "", "X-Berth-Handle: "+l.lost).want(200).str("handle")
	for i, w := range l.writes {
		if a := l.owner.append("s", w.op, w.handle, w.value).want(200); a.str("duplicate") != "" || a.str("version") != fmt.Sprint(i+2) {
			t.Fatalf("write %d: %s", i, a.body)
		}
	}
	// Nothing is missing any more, whichever handle comes.
	l.owner.recover("s", held, "claim").want(200)
	h := l.call("GET", "/route?session=s", "", "X-Berth-Handle: "+l.lost).want(200).str("handle")
	l.owner.append("s", "new", h, `"after"`).want(200)
	a := l.owner.recover("s", "", "read").want(200)
	for i, want := range []string{"hello", "turn 0", "turn 1", "after"} {
		if got := a.str(fmt.Sprintf("turns.%d.value", i)); got != want {
			t.Fatalf("turn %d is %q, want %q", i, got, want)
		}
	}
}

// A claimant may go on with what is there: the answer says what was lost, the
// history keeps it, and older handles are told that others decided.
func TestALossIsAccepted(t *testing.T) {
	t.Parallel()
	l := lose(t)
	hint := l.call("GET", "/route?session=s&exclude="+l.owner.id, "", "X-Berth-Handle: "+l.lost).want(200)
	a := l.other.recover("s", hint.str("handle"), "claim", `"accept_lost":true`).want(200)
	if a.str("lost.have.version") != "1" || a.str("lost.want.version") != "3" || a.str("turns.0.value") != "hello" {
		t.Fatalf("accepted: %s", a.body)
	}
	if h := l.call("GET", "/v1/sessions/s/history", "").want(200); h.str("accepted_loss.want") != "3" || h.str("changes.1.reason") != "lost" {
		t.Fatalf("history: %s", h.body)
	}
	l.other.append("s", "new", a.str("handle"), `"after"`).want(200)
	l.owner.append("s", "old", l.lost, `1`).refused(409, "stale_handle")
	// The route does not raise the alarm again.
	next := l.call("GET", "/route?session=s", "", "X-Berth-Handle: "+l.lost).want(200)
	if next.str("instance") != l.other.id {
		t.Fatalf("route: %s", next.body)
	}
	l.other.append("s", "newer", next.str("handle"), `"more"`).want(200)
}
