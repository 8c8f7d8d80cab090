package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A write is repeated with the same op, handle and body until it has an answer,
// whatever kept the answer away (T01: a reply lost and the write repeated).
func TestAppendRepeatsTheSameBytesUntilAnswered(t *testing.T) {
	t.Parallel()
	unsettled := map[string]step{
		"torn connection":     tear,
		"no answer in time":   stall,
		"outcome_unknown":     refuse(503, ErrOutcomeUnknown, `"op":"x"`),
		"not_durable":         refuse(503, ErrNotDurable, `"op":"x","stored":true`),
		"store_unavailable":   refuse(503, ErrStoreUnavailable, `"op":"x"`),
		"internal":            refuse(500, "internal", ""),
		"a proxy's 502":       reply(502, "<html>"),
		"half an answer":      reply(200, `{"version":1,"ep`),
		"an empty 200 answer": reply(200, ""),
	}
	for name, first := range unsettled {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				berth := newScript(t, first, first, accept(7, 1, 1, "fsynced"))
				r, err := session(t, berth, 3, 0).Append(t.Context(), one(`{"a":1}`))
				if err != nil || r.Version != 1 || r.Epoch != 7 {
					t.Fatalf("receipt %+v, error %v", r, err)
				}
				got := berth.requests(3)
				for _, again := range got[1:] {
					if string(again.body) != string(got[0].body) || again.path != got[0].path {
						t.Errorf("repeated as %s, first was %s", again.body, got[0].body)
					}
				}
				if op := got[0].member(t, "op"); op != r.Op || len(r.Op) != 32 {
					t.Errorf("op %v, receipt says %q", op, r.Op)
				}
			})
		})
	}
}

// A server that fails again and again answers so in the end.
func TestRepeatEndsWithAFailingServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		berth := &counter{answer: refuse(500, "internal", "")}
		began := time.Now()
		_, err := session(t, berth, 7, 3).Append(t.Context(), one("1"))
		var p *Problem
		if !errors.As(err, &p) || p.Status != 500 || berth.n != maxFailures || time.Since(began) > time.Minute {
			t.Errorf("error %v after %d attempts and %v", err, berth.n, time.Since(began))
		}
	})
}

// Retry-After is waited for, and a little longer, so that callers spread.
func TestRepeatHonoursRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wait := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			refuse(503, ErrStoreUnavailable, "")(w, r)
		}
		berth := newScript(t, wait, accept(1, 1, 1, "fsynced"))
		began := time.Now()
		if _, err := session(t, berth, 0, 0).Append(t.Context(), one("1")); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d < 7*time.Second || d > 8*time.Second {
			t.Errorf("waited %v, want a little over 7s", d)
		}
	})
}

// The waits double and are random, and end with the time given.
func TestRepeatBacksOffAndEnds(t *testing.T) {
	t.Parallel()
	t.Run("after an hour", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			down := &counter{answer: tear}
			began := time.Now()
			_, err := session(t, down, 0, 0).Append(t.Context(), Write{Op: "op-1", Turns: []Turn{JSON([]byte("1"))}})
			var failed *WriteError
			var silent *UnansweredError
			if !errors.As(err, &failed) || failed.Op != "op-1" || !errors.As(err, &silent) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error %v", err)
			}
			if d := time.Since(began); d != time.Hour {
				t.Errorf("gave up after %v", d)
			}
			// 10 s at most between two: no fewer than 360, and no storm.
			if n := down.count(); n < 360 || n > 800 {
				t.Errorf("%d attempts in an hour", n)
			}
		})
	})
	t.Run("with the context", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			down := &counter{answer: refuse(503, ErrOutcomeUnknown, "")}
			_, err := session(t, down, 0, 0).Append(ctx, one("1"))
			if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error %v", err)
			}
		})
	})
}

// counter gives one answer for ever.
type counter struct {
	answer step
	n      int
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.n++
	c.answer(w, r)
}

func (c *counter) count() int { return c.n }

// Refusals that settle a write are typed errors, and are not repeated.
func TestRefusalsAreTyped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code    Code
		status  int
		members string
		check   func(*Problem) bool
	}{
		{ErrNotOwner, 409, `"why":"failover","parked":true,"owner":{"instance":"i2","address":"10.0.0.2:8000","epoch":9}`,
			func(p *Problem) bool {
				return p.Why == "failover" && p.Parked && *p.Owner == Owner{"i2", "10.0.0.2:8000", 9}
			}},
		{ErrVersionConflict, 409, `"version":12,"turns":30`, func(p *Problem) bool { return p.Version == 12 && p.Turns == 30 }},
		{ErrOpForgotten, 409, `"version":99`, func(p *Problem) bool { return p.Version == 99 }},
		{ErrOpReused, 422, `"version":4`, func(p *Problem) bool { return p.Version == 4 }},
		{ErrExpired, 410, "", nil},
		{ErrDeleted, 410, "", nil},
		{ErrTooLarge, 413, `"what":"session","limit":67108864,"size":67108865`,
			func(p *Problem) bool { return p.What == "session" && p.Limit == 64<<20 && p.Size == 64<<20+1 }},
		{ErrBadHandle, 403, `"why":"unknown_key"`, func(p *Problem) bool { return p.Why == "unknown_key" }},
		{ErrStaleHandle, 409, `"owner":{"instance":"i2","address":"10.0.0.2:8000","epoch":9}`,
			func(p *Problem) bool { return p.Owner.Epoch == 9 }},
		{ErrStaleIncarnation, 409, "", nil},
		{ErrUnknownInstance, 404, "", nil},
		{ErrStoreFull, 507, "", nil},
		{"a_code_of_tomorrow", 418, "", nil},
		{ErrInvalid, 422, `"detail":"body.turns: needs at least one turn","limit":"a string where a number was"`,
			func(p *Problem) bool { return strings.Contains(p.Error(), "needs at least one turn") }},
	} {
		t.Run(string(c.code), func(t *testing.T) {
			t.Parallel()
			berth := newScript(t, refuse(c.status, c.code, c.members))
			_, err := session(t, berth, 5, 3).Append(t.Context(), one("1"))
			var p *Problem
			var failed *WriteError
			if !errors.Is(err, c.code) || !errors.As(err, &p) || !errors.As(err, &failed) || failed.Op == "" {
				t.Fatalf("error %v", err)
			}
			if p.Status != c.status || (c.check != nil && !c.check(p)) {
				t.Errorf("problem %+v", p)
			}
		})
	}
}

// The newest handle is presented, and an older one never again, in whatever
// order the answers come.
func TestNewestHandleIsKept(t *testing.T) {
	t.Parallel()
	berth := newScript(t, accept(7, 4, 4, "fsynced"), accept(7, 5, 5, "fsynced"), accept(7, 6, 6, "fsynced"))
	s := session(t, berth, 7, 3)
	for range 2 {
		if _, err := s.Append(t.Context(), one("1")); err != nil {
			t.Fatal(err)
		}
		s.Offer(Hint{Handle: "late", Epoch: 7, Version: 4}) // a gateway that knew less
		s.Offer(Hint{Handle: "older epoch", Epoch: 6, Version: 90})
	}
	if _, err := s.Append(t.Context(), one("1")); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"h7.3", "h7.4", "h7.5"} {
		if got := berth.requests(3)[i].member(t, "handle"); got != want {
			t.Errorf("write %d presented %v, want %s", i, got, want)
		}
	}
	if s.Handle() != "h7.6" {
		t.Error("the last answer's handle is not the newest")
	}
}

// Late writes after a move answer with a handle of the old epoch: it is the one
// to go on with (T27).
func TestMovedWriterKeepsTheHandleOfItsOwnEpoch(t *testing.T) {
	t.Parallel()
	moved := `{"version":4,"epoch":9,"turns":4,"bytes":1,"durability":{"level":"fsynced"},"handle":"tail7.4","affinity_ms":1,` +
		`"moved":{"instance":"i2","address":"10.0.0.2:8000","epoch":9}}`
	berth := newScript(t, reply(200, moved), accept(9, 5, 5, "fsynced"))
	s := session(t, berth, 7, 3)
	r, err := s.Append(t.Context(), one("1"))
	if err != nil || r.Moved == nil || r.Moved.Instance != "i2" {
		t.Fatalf("receipt %+v, error %v", r, err)
	}
	s.Offer(Hint{Handle: "route9.3", Epoch: 9, Version: 3}) // made before that write
	if _, err := s.Append(t.Context(), one("2")); err != nil {
		t.Fatal(err)
	}
	if got := berth.requests(2)[1].member(t, "handle"); got != "tail7.4" {
		t.Errorf("presented %v", got)
	}
}

// After a conflict the client reads, and writes the same op with the new handle
// if it is still meant (T03: both turns exist in the end).
func TestConflict(t *testing.T) {
	t.Parallel()
	conflict := refuse(409, ErrVersionConflict, `"version":4,"turns":4`)
	now := lines(`{"epoch":7,"version":4,"base":3,"count":4,"handle":"h7.4","plan":"recompute"}` + "\n" +
		`{"n":3,"type":"application/json","value":"theirs"}` + "\n")
	t.Run("at version asks", func(t *testing.T) {
		t.Parallel()
		berth := newScript(t, accept(7, 3, 3, "fsynced"), conflict, now, accept(7, 5, 5, "fsynced"))
		s := session(t, berth, 7, 2)
		if _, err := s.Replace(t.Context(), Write{Turns: []Turn{JSON([]byte("1")), JSON([]byte("2")), JSON([]byte("3"))}}); err != nil {
			t.Fatal(err)
		}
		var met Conflict
		w := one(`"mine"`)
		w.OnConflict = func(c Conflict) bool { met = c; return true }
		r, err := s.Append(t.Context(), w)
		if err != nil || r.Version != 5 {
			t.Fatalf("receipt %+v, error %v", r, err)
		}
		if met.Op != r.Op || met.Now.Base != 3 || len(met.Now.Turns) != 1 || string(met.Now.Turns[0].Value) != `"theirs"` {
			t.Errorf("conflict %+v with %+v", met, met.Now)
		}
		got := berth.requests(4)
		if have, _ := got[2].member(t, "have").(map[string]any); have["handle"] != "h7.3" || have["turns"] != 3.0 || got[2].member(t, "mode") != "read" {
			t.Errorf("read with %s", got[2].body)
		}
		if got[3].member(t, "op") != got[1].member(t, "op") || got[3].member(t, "handle") != "h7.4" {
			t.Errorf("written again as %s", got[3].body)
		}
	})
	t.Run("at version without a word is an error", func(t *testing.T) {
		t.Parallel()
		berth := newScript(t, conflict)
		if _, err := session(t, berth, 7, 3).Append(t.Context(), one("1")); !errors.Is(err, ErrVersionConflict) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("no longer meant", func(t *testing.T) {
		t.Parallel()
		berth := newScript(t, conflict, now)
		w := one("1")
		w.OnConflict = func(Conflict) bool { return false }
		if _, err := session(t, berth, 7, 3).Append(t.Context(), w); !errors.Is(err, ErrVersionConflict) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("at end goes on", func(t *testing.T) {
		t.Parallel()
		head := lines(`{"epoch":7,"version":4,"base":0,"count":4,"handle":"h7.4"}` + "\n")
		berth := newScript(t, conflict, head, accept(7, 5, 5, "fsynced"))
		w := one("1")
		w.At = AtEnd
		if _, err := session(t, berth, 7, 3).Append(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if got := berth.requests(3); got[1].member(t, "turns") != "none" || got[2].member(t, "handle") != "h7.4" {
			t.Errorf("read %s, wrote %s", got[1].body, got[2].body)
		}
	})
}

// The instance itself may own the session at a later epoch than it knew: it is
// as if another write had come first.
func TestOwnerOfALaterEpoch(t *testing.T) {
	t.Parallel()
	itself := refuse(409, ErrNotOwner, `"why":"failover","parked":true,"owner":{"instance":"i1","address":"10.0.0.1:8000","epoch":9}`)
	t.Run("at end goes on", func(t *testing.T) {
		t.Parallel()
		berth := newScript(t, itself, lines(`{"epoch":9,"version":1,"count":1,"handle":"h9.1"}`+"\n"), accept(9, 2, 2, "fsynced"))
		w := one("1")
		w.At = AtEnd
		if _, err := session(t, berth, 0, 0).Append(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if got := berth.requests(3); got[2].member(t, "handle") != "h9.1" || got[2].member(t, "op") != got[0].member(t, "op") {
			t.Errorf("written again as %s", got[2].body)
		}
	})
	t.Run("at version is an error", func(t *testing.T) {
		t.Parallel()
		if _, err := session(t, newScript(t, itself), 0, 0).Append(t.Context(), one("1")); !errors.Is(err, ErrNotOwner) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("another boot of it is another owner", func(t *testing.T) {
		t.Parallel()
		replaced := refuse(409, ErrNotOwner, `"why":"replaced","owner":{"instance":"i1","epoch":9}`)
		w := one("1")
		w.At = AtEnd
		if _, err := session(t, newScript(t, replaced), 7, 3).Append(t.Context(), w); !errors.Is(err, ErrNotOwner) {
			t.Errorf("error %v", err)
		}
	})
}

// A write without any handle does not reach the network.
func TestWriteWithoutAHandle(t *testing.T) {
	t.Parallel()
	s, err := worker(t, only(newScript(t))).Open(SessionKey{ID: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), one("1")); !errors.Is(err, ErrNoHandle) {
		t.Errorf("error %v", err)
	}
}

// An end of the session ends what was held of it: the handle of the next route
// begins anew, although the store's count starts lower.
func TestAnEndedSessionBeginsAnew(t *testing.T) {
	t.Parallel()
	berth := newScript(t, accept(7, 4, 4, "memory"), refuse(410, ErrExpired, ""), accept(8, 1, 1, "fsynced"))
	s := session(t, berth, 7, 3)
	if _, err := s.Append(t.Context(), one("1")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), one("2")); !errors.Is(err, ErrExpired) {
		t.Fatalf("error %v", err)
	}
	s.Offer(Hint{Handle: "fresh", Epoch: 7, Version: 0, New: true})
	if _, err := s.Append(t.Context(), one("3")); err != nil {
		t.Fatal(err)
	}
	if got := berth.requests(3)[2].member(t, "handle"); got != "fresh" {
		t.Errorf("presented %v", got)
	}
	if s.Have() == nil || s.Have().Turns != 1 {
		t.Errorf("the copy is %+v", s.Have())
	}
}

// A deleted session begins anew only where that is meant, with the handle that
// the route gave for it.
func TestRecreate(t *testing.T) {
	t.Parallel()
	berth := newScript(t, refuse(410, ErrDeleted, ""), accept(9, 1, 1, "fsynced"))
	s := session(t, berth, 8, 0)
	w := one("1")
	if _, err := s.Append(t.Context(), w); !errors.Is(err, ErrDeleted) {
		t.Fatalf("error %v", err)
	}
	w.Recreate = true
	if _, err := s.Append(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if got := berth.requests(2)[1]; got.member(t, "recreate") != true || got.member(t, "handle") != "h8.0" {
		t.Errorf("begun with %s", got.body)
	}
}
