package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"berth/statestore"
)

func byteTraces() []trace {
	return []trace{
		{"every byte comes back as it came", byteExact},
		{"names and ops of every allowed form are told apart", namesTold},
		{"turns of every size around a chunk come back", sizesAroundChunks},
		{"a turn of 16 MiB is stored, one byte more is refused", turnLimit},
		{"a session of 64 MiB is stored, one byte more is refused", sessionLimit},
		{"meta of 64 KiB is stored, one byte more is refused", metaLimit},
		{"a load torn by a base ends with changed and never mixes", tornByBase},
		{"a load torn by a replace ends with changed and never mixes", tornByReplace},
		{"a load torn by an end of the session ends with changed", tornByDelete},
		{"a load that an append overtakes ends where it began to read", overtakenLoad},
		{"a load that is broken off disturbs nobody", brokenLoad},
		{"a large write that is given up is there once or not at all", givenUp},
		{"what can never be accepted is invalid", invalidInput},
	}
}

// T11, and what else a store could take for its own syntax.
func exactValues() map[string]string {
	return map[string]string{
		"NUL":                 "\"a\x00b\"",
		"escaped NUL":         `"a\u0000b"`,
		"CRLF and a bulk":     "\"\r\n$5\r\nhello\r\n*1\r\n\"",
		"emoji":               `"😀🚀"`,
		"ZWJ family":          "\"👨\u200d👩\u200d👧\u200d👦\"",
		"lone surrogate":      `"\ud83d"`,
		"lone surrogate pair": `"\udc00\ud83d"`,
		"line separator":      "\"\u2028\u2029\"",
		"byte order mark":     "\ufeff{}",
		"large integers":      `[9007199254740993, 18446744073709551617, -9223372036854775809, 1e400, 0.1e-7]`,
		"white space":         " \t\r\n{ \"a\" :\n[ ] }\n ",
		"duplicate keys":      `{"a":1,"a":2}`,
		"escapes":             `"\/\b\f\u00e9é\\"`,
		"empty":               "",
		"not UTF-8":           "\xff\xfe\xc3\x28\x00",
		"braces and percent":  `{p0001}%2F%s%d{{.}}`,
		"like zstd":           "\x28\xb5\x2f\xfd\x00\x00\x00",
		"one letter":          strings.Repeat("a", 70_000),
	}
}

func byteExact(w *world) {
	a := w.worker("a").routed()
	var want []statestore.Turn
	for name, value := range exactValues() {
		for _, typ := range []statestore.TurnType{statestore.TurnJSON, statestore.TurnBytes} {
			req := a.write(fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "-"), typ))
			req.Turns = []statestore.Turn{{Type: typ, Value: []byte(value), Tokens: uint64(len(value))}}
			if len(value) > 0 && len(value) <= statestore.MaxMetaBytes {
				req.Meta = []byte(value)
			}
			a.sent(req)
			want = append(want, req.Turns[0])
			if r, _ := w.load(0); req.Meta != nil && string(r.Meta) != value {
				w.Fatalf("%s as meta: %q, want %q", name, r.Meta, value)
			}
		}
	}
	_, got := w.load(0)
	w.sameTurns(got, want)
	all := a.rewrite("all-at-once")
	all.Turns = want
	a.replaced(all)
	_, got = w.load(0)
	w.sameTurns(got, want)

	b := w.worker("b").routed()
	b.claims()
	late := a.write("late")
	late.Turns = want
	a.late(late, true)
	w.sameTurns(w.parked()[0].Turns, want)
}

func namesTold(w *world) {
	long := strings.Repeat("x", statestore.MaxSessionID-1)
	ids := []string{"a", "A", "a ", "a/b", "a%2Fb", "{a}", "a:b", "å", "a\u030a", "😀", "..", "*", "\\", "\"", long + "1", long + "2", "default"}
	a := w.worker(strings.Repeat("i", statestore.MaxInstanceID))
	for _, tenant := range []string{"t", "t.t", strings.Repeat("T", statestore.MaxName)} {
		for _, pool := range []string{"p", "t"} {
			for _, id := range ids {
				w.key = statestore.SessionKey{Tenant: tenant, Pool: pool, ID: id}
				a.routed().says("op", tenant, pool, id)
			}
		}
	}
	for _, tenant := range []string{"t", "t.t", strings.Repeat("T", statestore.MaxName)} {
		for _, pool := range []string{"p", "t"} {
			for _, id := range ids {
				w.key = statestore.SessionKey{Tenant: tenant, Pool: pool, ID: id}
				w.holds(tenant, pool, id)
				equal(w, "the key in the record", w.view().Key, w.key)
			}
		}
	}
	for _, op := range []string{"!", "~", "{op}", "op%00", strings.Repeat("o", statestore.MaxOpID)} {
		req := a.routed().write(op, "more")
		a.sent(req)
		if r := a.sent(req); !r.Duplicate {
			w.Fatalf("op %q repeated: %+v", op, r)
		}
	}
}

// noise is content that does not compress; equal seeds are equal bytes.
func noise(seed uint64, size int) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1})
	b := make([]byte, size)
	_, _ = r.Read(b) // never fails
	return b
}

// prose is content that compresses.
func prose(seed uint64, size int) []byte {
	line := fmt.Appendf(nil, "This is line %d of a conversation about ships and berths. ", seed)
	return bytes.Repeat(line, size/len(line)+1)[:size]
}

func sizesAroundChunks(w *world) {
	a := w.worker("a").routed()
	var want []statestore.Turn
	for i, size := range []int{0, 1, 255, 256, 4095, 4096, 15_999, 16_000, 16_001, 16_384, 32_768, 64_999, 65_000, 65_536, 65_537, 131_072, 200_003} {
		seed := uint64(i)
		req := a.write(fmt.Sprintf("op-%d", i))
		req.Turns = []statestore.Turn{
			{Type: statestore.TurnBytes, Value: noise(seed, size)}, {Type: statestore.TurnBytes, Value: prose(seed, size)},
		}
		a.sent(req)
		want = append(want, req.Turns...)
	}
	_, got := w.load(0)
	w.sameTurns(got, want)
	for _, from := range []uint64{1, 7, 20, 33} {
		_, got = w.load(from)
		w.sameTurns(got, want[from:])
	}
}

// tooLarge fails unless the write was refused for its size and left nothing.
func (w *world) tooLarge(what string, limit, size uint64, act func() error) {
	w.Helper()
	before := w.view()
	refused(w, act(), &statestore.TooLargeError{What: what, Limit: limit, Size: size})
	after := w.view()
	equal(w, "the record after a refusal", after.Record, before.Record)
	equal(w, "whether there is a session", after.Exists, before.Exists)
}

func turnLimit(w *world) {
	if testing.Short() {
		w.notTested("turns of 16 MiB, in short mode")
	}
	a := w.worker("a").routed()
	most := prose(1, statestore.MaxTurnBytes)
	req := a.write("op-1")
	req.Turns = []statestore.Turn{{Type: statestore.TurnBytes, Value: append(bytes.Clone(most), 'x')}}
	w.tooLarge("turn", statestore.MaxTurnBytes, statestore.MaxTurnBytes+1, func() error { return second(a.send(req)) })
	req.Turns[0].Value = most
	a.sent(req)
	_, got := w.load(0)
	w.sameTurns(got, req.Turns)
}

// T13: the size of what is there counts, and no write is stored in part.
func sessionLimit(w *world) {
	if testing.Short() {
		w.notTested("sessions of 64 MiB, in short mode")
	}
	a := w.worker("a").routed()
	value := prose(1, statestore.MaxTurnBytes)
	turn := statestore.Turn{Type: statestore.TurnBytes, Value: value}
	for i := range statestore.MaxSessionBytes / statestore.MaxTurnBytes {
		req := a.write(fmt.Sprintf("op-%d", i))
		req.Turns = []statestore.Turn{turn}
		a.sent(req)
	}
	over := a.write("op-over", "")
	over.Turns[0].Value = []byte("x")
	const limit = statestore.MaxSessionBytes
	w.tooLarge("session", limit, limit+1, func() error { return second(a.send(over)) })
	over = based(over, 3)
	over.Turns = []statestore.Turn{{Type: statestore.TurnBytes, Value: value[1:]}, {Type: statestore.TurnBytes, Value: []byte("xy")}}
	w.tooLarge("session", limit, limit+1, func() error { return second(a.send(over)) })
	whole := a.rewrite("op-whole")
	whole.Turns = []statestore.Turn{turn, turn, turn, turn, {Type: statestore.TurnBytes, Value: []byte("x")}}
	w.tooLarge("session", limit, limit+1, func() error { return second(a.replace(whole)) })
	shorter := based(a.write("op-shorter"), 2)
	shorter.Turns = []statestore.Turn{turn, turn}
	a.sent(shorter)
	v := w.view()
	equal(w, "bytes and turns", [2]uint64{v.Bytes, v.Turns}, [2]uint64{limit, 4})
}

func metaLimit(w *world) {
	a := w.worker("a").routed()
	req := a.write("op-1", "one")
	req.Meta = prose(1, statestore.MaxMetaBytes+1)
	w.tooLarge("meta", statestore.MaxMetaBytes, statestore.MaxMetaBytes+1, func() error { return second(a.send(req)) })
	req.Meta = req.Meta[1:]
	a.sent(req)
	r, _ := w.load(0)
	if !bytes.Equal(r.Meta, req.Meta) {
		w.Fatal("meta of 64 KiB is not what was written")
	}
}

// tall is a session that no page holds.
func (w *world) tall() (a *worker, turns []statestore.Turn) {
	w.Helper()
	a = w.worker("a").routed()
	for i := range uint64(8) {
		req := a.write(fmt.Sprintf("op-%d", i))
		for j := range uint64(8) {
			req.Turns = append(req.Turns, statestore.Turn{Type: statestore.TurnBytes, Value: noise(8*i+j, 128<<10)})
		}
		a.sent(req)
		turns = append(turns, req.Turns...)
	}
	return a, turns
}

// torn reads one turn, lets act rewrite the session, and reads on. What came must
// be of the old context, and the end must say that it changed.
func (w *world) torn(old []statestore.Turn, act func()) {
	w.Helper()
	r, err := w.store.Load(w.ctx, w.key, 0)
	w.ok("load", err)
	var got []statestore.Turn
	var end error
	for t, err := range r.Turns {
		if err != nil {
			end = err
			break
		}
		got = append(got, t.Turn)
		if len(got) == 1 {
			act()
		}
	}
	if !errors.Is(end, statestore.ErrChanged) || len(got) >= len(old) {
		w.Fatalf("a torn load ended after %d of %d turns with %v, want %q", len(got), len(old), end, statestore.ErrChanged)
	}
	w.sameTurns(got, old[:len(got)])
}

func tornByBase(w *world) {
	a, turns := w.tall()
	w.torn(turns, func() { a.sent(based(a.write("base", "new"), 2)) })
	_, got := w.load(0)
	w.sameTurns(got, append(turns[:2:2], says("new")...))
}

func tornByReplace(w *world) {
	a, turns := w.tall()
	longer := a.rewrite("replace")
	for i := range turns {
		longer.Turns = append(longer.Turns, statestore.Turn{Type: statestore.TurnBytes, Value: noise(uint64(1000+i), 128<<10)})
	}
	w.torn(turns, func() { a.replaced(longer) })
	_, got := w.load(0)
	w.sameTurns(got, longer.Turns)
}

func tornByDelete(w *world) {
	a, turns := w.tall()
	w.torn(turns, func() {
		_, err := a.erase()
		w.ok("delete", err)
		req := a.routed().write("anew", "new")
		req.Recreate = true
		a.sent(req)
	})
}

func overtakenLoad(w *world) {
	a, turns := w.tall()
	r, err := w.store.Load(w.ctx, w.key, 0)
	w.ok("load", err)
	var got []statestore.Turn
	for t, err := range r.Turns {
		w.ok("read", err)
		if len(got) == 0 {
			a.says("more", "more")
		}
		got = append(got, t.Turn)
	}
	w.sameTurns(got, turns)
}

func brokenLoad(w *world) {
	a, turns := w.tall()
	r, err := w.store.Load(w.ctx, w.key, 3)
	w.ok("load", err)
	for t, err := range r.Turns {
		w.ok("read", err)
		w.sameTurns([]statestore.Turn{t.Turn}, turns[3:4])
		break
	}
	ctx, cancel := context.WithCancel(w.ctx)
	r, err = w.store.Load(ctx, w.key, 0)
	w.ok("load", err)
	cancel()
	for _, err := range r.Turns {
		if err != nil && !errors.Is(err, context.Canceled) {
			w.Fatalf("a load whose caller went away: %v", err)
		}
	}
	a.sent(based(a.write("base", "new"), 0))
	w.holds("new")
}

// T14: the writer goes away in the middle of a large save. The version before
// stays readable, and the same save can be made at once.
func givenUp(w *world) {
	a := w.worker("a").routed()
	a.says("op-1", "one")
	req := a.write("op-2")
	for i := range uint64(16) {
		req.Turns = append(req.Turns, statestore.Turn{Type: statestore.TurnBytes, Value: noise(i, 256<<10)})
	}
	for range 5 {
		ctx, cancel := context.WithCancel(w.ctx)
		done := make(chan error, 1)
		go func() {
			_, err := w.store.Append(ctx, req)
			done <- err
		}()
		_, turns := w.load(0)
		cancel()
		if n := len(turns); n != 1 && n != 17 {
			w.Fatalf("%d turns are visible in the middle of a write", n)
		}
		w.Log("the write ended with", <-done) // stored or not: the repeat below settles it
		w.sameTurns(turns[:1], says("one"))
	}
	a.sent(req)
	r, got := w.load(0)
	w.sameTurns(got, append(says("one"), req.Turns...))
	equal(w, "version", r.Version, uint64(2))
}

func invalidInput(w *world) {
	a := w.worker("a").routed()
	for name, spoil := range map[string]func(*statestore.Append){
		"no session id":            func(r *statestore.Append) { r.Key.ID = "" },
		"a long session id":        func(r *statestore.Append) { r.Key.ID = strings.Repeat("x", statestore.MaxSessionID+1) },
		"a control character":      func(r *statestore.Append) { r.Key.ID = "a\x00b" },
		"a session id in ISO 8859": func(r *statestore.Append) { r.Key.ID = "caf\xe9" },
		"a tenant with a slash":    func(r *statestore.Append) { r.Key.Tenant = "a/b" },
		"no pool":                  func(r *statestore.Append) { r.Key.Pool = "" },
		"no op":                    func(r *statestore.Append) { r.Op = "" },
		"an op with a space":       func(r *statestore.Append) { r.Op = "op 1" },
		"nobody as writer":         func(r *statestore.Append) { r.By = statestore.Owner{} },
		"a turn of no type":        func(r *statestore.Append) { r.Turns[0].Type = 0 },
	} {
		req := a.write("op-1", "one")
		spoil(&req)
		if _, err := w.store.Append(w.ctx, req); !errors.Is(err, statestore.ErrInvalid) {
			w.Fatalf("an append with %s: %v, want %q", name, err, statestore.ErrInvalid)
		}
	}
	_, err := w.store.Lookup(w.ctx, statestore.SessionKey{})
	w.refusedAs(err, statestore.ErrInvalid)
	bare := a.take()
	bare.By = statestore.Owner{}
	w.refusedAs(second(w.store.Claim(w.ctx, bare)), statestore.ErrInvalid)
	if w.view().Exists {
		w.Fatal("invalid input left a session")
	}
}
