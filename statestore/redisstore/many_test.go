package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"berth/integration/redistest"
	"berth/statestore"
)

// Appends that come together are one call of Redis, and each has its own end: it is
// stored, refused, answered as before, or told that its session is damaged.
func TestAppendsThatComeTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, client := open(t, server.URL), server.Client(t)
	const sessions = 64
	writers := make([]*writer, sessions)
	for i := range writers {
		writers[i] = newWriter(s, fmt.Sprint(i))
		writers[i].append(t, []byte("first"))
	}
	broken := s.keys.session(writers[13].key.Digest())[keyRecord]
	if err := client.Set(t.Context(), broken, "\x01 no record", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		var all sync.WaitGroup
		for i, w := range writers {
			all.Go(func() {
				req := statestore.Append{
					Key: w.key, By: w.by, Handle: w.handle, Op: fmt.Sprintf("round-%d", round), Lifetimes: lives,
					Turns: []statestore.Turn{{Type: statestore.TurnBytes, Value: noise(1 + 100*i)}},
				}
				switch i % 4 {
				case 1: // it says again what it said before
					req.Op, req.Turns[0].Value = "op-1", []byte("first")
				case 2: // a stranger
					req.By.Instance, req.Op = "i2", "op-of-a-stranger"
				}
				r, err := s.Append(t.Context(), req)
				var refused *statestore.NotOwnerError
				switch {
				case i == 13:
					if err == nil || !strings.Contains(err.Error(), "user_function") {
						t.Errorf("a damaged session: %v", err)
					}
				case i%4 == 1:
					if err != nil || !r.Duplicate || r.Version != 1 {
						t.Errorf("session %d, repeated: %+v, %v", i, r, err)
					}
				case i%4 == 2:
					if !errors.As(err, &refused) || !refused.Parked {
						t.Errorf("session %d, a stranger: %v", i, err)
					}
				case err != nil || r.Version != uint64(round)+2:
					t.Errorf("session %d: version %d in round %d, %v", i, r.Version, round, err)
				default:
					w.handle.Floor = r.Floor
				}
			})
		}
		all.Wait()
	}
	for i, w := range writers {
		if i%4 == 0 || i%4 == 3 {
			if got := allTexts(t, s, w.key); len(got) != 21 || len(got[20]) != 1+100*i {
				t.Errorf("session %d holds %d turns", i, len(got))
			}
		}
	}
	stats, err := client.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls, _, _ := strings.Cut(stats["Commandstats"]["cmdstat_fcall"], ",")
	var n int
	if _, err := fmt.Sscanf(calls, "calls=%d", &n); err != nil || n == 0 || n >= sessions*20 {
		t.Errorf("%d calls of functions (%v) for %d appends, want fewer: how many depends on the machine", n, err, sessions*20)
	}
}

// together sends an append of each writer as one call, and returns what Redis answers.
func together(t *testing.T, s *Store, turn []byte, writers ...*writer) []*waiting {
	t.Helper()
	batch := make([]*waiting, len(writers))
	for i, w := range writers {
		op := fmt.Sprintf("op-%d", w.n+1)
		write, err := newWrite(statestore.KindAppend, w.key, w.by, op, []statestore.Turn{{Type: statestore.TurnBytes, Value: turn}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		write.handle, write.lives, write.layout = w.handle, lives, newLayout(write)
		c := s.newCall(w.key)
		write.digest = c.digest
		cmd := s.newCommand(t.Context(), appendFn, c.keys, c.args(write.args(nil)...))
		batch[i] = &waiting{cmd: cmd, done: make(chan struct{})}
	}
	s.lanes.send(t.Context(), batch)
	return batch
}

// Chunks that are sent before they are judged stay nowhere but in a log that links
// them: not when the write is refused or was made before, not when the session's time
// is over, not when Redis has lost the functions or its memory is full.
func TestChunksSentForNothingAreRemoved(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, client := open(t, server.URL), server.Client(t)
	turn := noise(5000)
	ahead, other := newWriter(s, "ahead"), newWriter(s, "other")
	for _, w := range []*writer{ahead, other} {
		w.append(t, turn)
	}
	state := func(i int, batch []*waiting) string {
		t.Helper()
		if err := batch[i].cmd.Err(); err != nil {
			return err.Error()
		}
		a, err := answerOf(batch[i].cmd.(once).Val())
		if err != nil {
			t.Fatal(err)
		}
		return a.text(0)
	}
	chunks := func(w *writer) int64 {
		t.Helper()
		n, err := client.HLen(t.Context(), s.keys.session(w.key.Digest())[keyLog]).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	check := func(what string, got, want string, w *writer, n int64) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		if have := chunks(w); have != n {
			t.Errorf("%s: the log holds %d chunks, want %d", what, have, n)
		}
	}

	batch := together(t, s, turn, ahead, other)
	check("accepted", state(0, batch), "ok", ahead, 2)
	check("accepted", state(1, batch), "ok", other, 2)
	batch = together(t, s, turn, ahead, other) // the same ops
	check("repeated", state(0, batch), "ok", ahead, 2)
	check("repeated", state(1, batch), "ok", other, 2)
	ahead.n, other.n = 7, 7
	batch = together(t, s, turn, ahead, other)
	check("not at its version", state(0, batch), "conflict", ahead, 2)

	if err := client.FunctionDelete(t.Context(), libraryName).Err(); err != nil {
		t.Fatal(err)
	}
	batch = together(t, s, turn, ahead, other)
	check("no function", state(0, batch), "Function not found", ahead, 2)
	if _, err := s.Lookup(t.Context(), ahead.key); err != nil { // loads it again
		t.Fatal(err)
	}

	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	batch = together(t, s, turn, ahead, other)
	check("no memory", state(0, batch), "OOM", ahead, 2)
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}

	v, err := s.Lookup(t.Context(), other.key)
	if err != nil {
		t.Fatal(err)
	}
	s.skew.Add(lives.Retention.Milliseconds())
	again := newWriter(s, "other")
	again.handle.Floor.Epoch = max(v.Epoch+1, uint64(v.Expires)) // of its tombstone
	batch = together(t, s, turn, ahead, again)
	check("of an ended life", state(0, batch), "ended", ahead, 0)
	check("first of a new life", state(1, batch), "restage", other, 0)
	if again.append(t, turn).Version != 1 || len(allTexts(t, s, again.key)) != 1 {
		t.Errorf("the new life holds %d turns", len(allTexts(t, s, again.key)))
	}
}
