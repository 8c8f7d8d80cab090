package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func behind(have, want int) step {
	return refuse(409, ErrStoreBehind, fmt.Sprintf(`"have":{"version":%d,"turns":%d},"want":{"version":%d}`, have, have, want))
}

func notOwner(parked bool) step {
	return refuse(409, ErrNotOwner, fmt.Sprintf(`"why":"failover","parked":%v,"owner":{"instance":"i2","address":"10.0.0.2:8000","epoch":9}`, parked))
}

// ops writes turns under the given ops, one after the other, and returns the
// first error.
func ops(t *testing.T, s *Session, names ...string) error {
	t.Helper()
	for _, op := range names {
		w := one(`"` + op + `"`)
		w.Op = op
		if _, err := s.Append(t.Context(), w); err != nil {
			return err
		}
	}
	return nil
}

// sent is what a write presented: its op and its handle.
func sent(t *testing.T, got []exchange) (list []string) {
	t.Helper()
	for _, e := range got {
		list = append(list, fmt.Sprint(e.member(t, "op"), " ", e.member(t, "handle")))
	}
	return list
}

func wantSent(t *testing.T, got []exchange, want ...string) {
	t.Helper()
	if list := sent(t, got); fmt.Sprint(list) != fmt.Sprint(want) {
		t.Errorf("sent\n %q, want\n %q", list, want)
	}
}

// A store that went back gets the lost writes again, oldest first, each with its
// own op and its own handle, and then the write that met the loss (T09: losses
// are reported and repaired).
func TestRepairRepeatsLostWritesInOrder(t *testing.T) {
	t.Parallel()
	berth := newScript(t,
		accept(7, 4, 4, "fsynced"), accept(7, 5, 5, "memory"), accept(7, 6, 6, "memory"),
		behind(4, 6), accept(7, 5, 5, "memory"), accept(7, 6, 6, "memory"), accept(7, 7, 7, "memory"))
	if err := ops(t, session(t, berth, 7, 3), "a", "b", "c", "d"); err != nil {
		t.Fatal(err)
	}
	wantSent(t, berth.requests(7), "a h7.3", "b h7.4", "c h7.5", "d h7.6", "b h7.4", "c h7.5", "d h7.6")
}

// Where the store holds another history, nobody says where it begins: the repair
// steps back until it stands on what the store holds.
func TestRepairStepsBackToCommonGround(t *testing.T) {
	t.Parallel()
	berth := newScript(t,
		accept(7, 4, 4, "memory"), accept(7, 5, 5, "memory"),
		behind(5, 5),
		behind(5, 4),              // "b" names a version 4 that is not there
		accept(7, 6, 6, "memory"), // "a" stands on 3, at the end
		accept(7, 7, 7, "memory"), // "b" follows it to its new place
		accept(7, 8, 8, "memory"))
	s := session(t, berth, 7, 3)
	for _, op := range []string{"a", "b", "c"} {
		w := one("1")
		w.Op, w.At = op, AtEnd
		if _, err := s.Append(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	wantSent(t, berth.requests(7), "a h7.3", "b h7.4", "c h7.5", "b h7.4", "a h7.3", "b h7.6", "c h7.7")
}

// A repeated write may get an earlier place than it had, because what lay between
// was nobody's: its new handle is the one to go on with, and the worker's copy
// is in another order than the store.
func TestRepairedWriteMayMoveDown(t *testing.T) {
	t.Parallel()
	berth := newScript(t,
		accept(7, 1, 1, "memory"), accept(7, 3, 3, "memory"), // version 2 came from a request that had given up
		behind(1, 3), accept(7, 2, 2, "memory"), accept(7, 3, 3, "memory"))
	s := session(t, berth, 0, 0)
	if err := ops(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	if s.Have() == nil {
		t.Fatal("the copy is not known")
	}
	for _, op := range []string{"b", "c"} {
		if err := appendEnd(t, s, op); err != nil {
			t.Fatal(err)
		}
	}
	wantSent(t, berth.requests(5), "a h0.0", "b h7.1", "c h7.3", "b h7.1", "c h7.2")
	if s.Have() != nil || s.Current(Hint{Epoch: 7, Version: 3}) {
		t.Errorf("the copy is said to be %+v", s.Have())
	}
}

// A store that lost the whole session gets it again at a new epoch: a repeated
// write that names one of the old epoch follows it.
func TestRepairOfATotalLoss(t *testing.T) {
	t.Parallel()
	berth := newScript(t,
		accept(7, 1, 1, "memory"), accept(7, 2, 2, "memory"),
		behind(0, 2), accept(8, 1, 1, "memory"), accept(8, 2, 2, "memory"), accept(8, 3, 3, "memory"))
	if err := ops(t, session(t, berth, 0, 0), "a", "b", "c"); err != nil {
		t.Fatal(err)
	}
	wantSent(t, berth.requests(6), "a h0.0", "b h7.1", "c h7.2", "a h0.0", "b h8.1", "c h8.2")
}

// Where another owner has come since, the first lost write is parked and the rest
// wait; every later write takes the repair up again before anything else.
func TestRepairParksTheFirstAndWaits(t *testing.T) {
	t.Parallel()
	berth := newScript(t,
		accept(7, 4, 4, "memory"), accept(7, 5, 5, "memory"),
		behind(3, 5), notOwner(true), // "c" meets the loss, "a" is parked
		reply(200, receiptJSON(9, 7, 7, "memory", `,"duplicate":true`)), // the owner has adopted "a"
		notOwner(true)) // "b" follows "a" to where it is now, and is parked
	s := session(t, berth, 7, 3)
	err := ops(t, s, "a", "b", "c")
	var stopped *RepairError
	if !errors.As(err, &stopped) || stopped.Op != "a" || stopped.Waiting != 1 {
		t.Fatalf("error %v", err)
	}
	if !errors.Is(err, ErrNotOwner) || !errors.Is(err, ErrStoreBehind) {
		t.Errorf("error %v names neither the owner nor the loss", err)
	}
	if owner, ok := OwnerOf(err); !ok || owner.Instance != "i2" {
		t.Errorf("owner %+v", owner)
	}
	if err := ops(t, s, "c"); !errors.As(err, &stopped) || stopped.Op != "b" || stopped.Waiting != 0 {
		t.Errorf("error %v", err)
	}
	wantSent(t, berth.requests(6), "a h7.3", "b h7.4", "c h7.5", "a h7.3", "a h7.3", "b h9.7")
}

// What is durable is not kept: a store that lost it cannot be repaired from here,
// and says so.
func TestNothingToRepairIsAnError(t *testing.T) {
	t.Parallel()
	berth := newScript(t, accept(7, 4, 4, "fsynced"), behind(3, 4))
	err := ops(t, session(t, berth, 7, 3), "a", "b")
	var stopped *RepairError
	var p *Problem
	if !errors.As(err, &stopped) || !errors.As(err, &p) || p.Have.Version != 3 || p.Want.Version != 4 {
		t.Fatalf("error %v", err)
	}
}

// The journal keeps what may be lost, within its bounds.
func TestKeptUntilDurable(t *testing.T) {
	t.Parallel()
	replicated := func(version uint64, n int) step {
		return reply(200, fmt.Sprintf(`{"version":%d,"epoch":7,"turns":%d,"handle":"h7.%d","durability":{"level":"replicated","replicas":%d,"of":2}}`,
			version, version, version, n))
	}
	for name, c := range map[string]struct {
		writes, bytes int
		answers       []step
		kept          []string
	}{
		"memory":                    {answers: []step{accept(7, 4, 4, "memory"), accept(7, 5, 5, "memory")}, kept: []string{"a", "b"}},
		"unknown":                   {answers: []step{accept(7, 4, 4, "unknown")}, kept: []string{"a"}},
		"fsynced":                   {answers: []step{accept(7, 4, 4, "fsynced")}},
		"replicated in part":        {answers: []step{replicated(4, 1)}, kept: []string{"a"}},
		"replicated":                {answers: []step{replicated(4, 2)}},
		"a durable one covers":      {answers: []step{accept(7, 4, 4, "memory"), accept(7, 5, 5, "memory"), replicated(6, 2)}},
		"no more than the writes":   {writes: 2, answers: []step{accept(7, 4, 4, "memory"), accept(7, 5, 5, "memory"), accept(7, 6, 6, "memory")}, kept: []string{"b", "c"}},
		"no more than the bytes":    {bytes: 7, answers: []step{accept(7, 4, 4, "memory"), accept(7, 5, 5, "memory"), accept(7, 6, 6, "memory")}, kept: []string{"b", "c"}},
		"no write beyond the bytes": {bytes: 2, answers: []step{accept(7, 4, 4, "memory")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := only(newScript(t, c.answers...))
			cfg.KeepWrites, cfg.KeepBytes = c.writes, c.bytes
			s := sessionOf(t, cfg, 7, 3)
			if err := ops(t, s, []string{"a", "b", "c"}[:len(c.answers)]...); err != nil {
				t.Fatal(err)
			}
			var kept []string
			size := 0
			for _, k := range s.journal.writes {
				kept = append(kept, k.write.Op)
				size += k.write.size
			}
			if fmt.Sprint(kept) != fmt.Sprint(c.kept) || size != s.journal.bytes {
				t.Errorf("kept %v (%d bytes, counted %d), want %v", kept, size, s.journal.bytes, c.kept)
			}
		})
	}
}

// A durable write proves only what it provably stands on: one that its handles
// say nothing of stays kept.
func TestDurableWriteCoversOnlyItsOwnGround(t *testing.T) {
	t.Parallel()
	var j journal
	j.maxWrites, j.maxBytes = 10, 1000
	add := func(op, after string, version uint64) *kept {
		k := &kept{
			write:     &write{Write: Write{Op: op}},
			presented: mark{op: after}, answered: mark{epoch: 1, version: version, op: op},
		}
		j.add(k)
		return k
	}
	add("a", "", 1)
	add("beside", "a", 2)
	add("b", "a", 3)
	last := &write{Write: Write{Op: "c"}}
	j.settle(last, mark{op: "b"})
	if len(j.writes) != 1 || j.writes[0].write.Op != "beside" {
		t.Errorf("%d writes are kept", len(j.writes))
	}
}

// Writes of one session go out one at a time, each with the handle that the one
// before it was answered: there are no two for one place.
func TestWritesGoOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		berth := &counting{model: newModel()}
		s := session(t, berth, 0, 0)
		s.Offer(Hint{Handle: "0/0/", Epoch: 1})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				w := one("1")
				w.At = AtEnd
				if _, err := s.Append(t.Context(), w); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if berth.most != 1 || len(berth.model.stored.turns) != 20 {
			t.Errorf("%d writes were on their way at once, %d turns are stored", berth.most, len(berth.model.stored.turns))
		}
	})
}

// counting notes how many requests are served at once.
type counting struct {
	model     *model
	now, most int
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.now++
	c.most = max(c.most, c.now)
	time.Sleep(time.Millisecond)
	c.model.ServeHTTP(w, r)
	c.now--
}

func appendEnd(t *testing.T, s *Session, op string) error {
	t.Helper()
	w := one("1")
	w.Op, w.At = op, AtEnd
	_, err := s.Append(t.Context(), w)
	return err
}

// A write that waits for another one gives up with its context.
func TestWaitingForATurnEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := session(t, newScript(t, stall), 7, 3)
		slow, cancelSlow := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancelSlow()
		go func() { _, _ = s.Append(slow, one("1")) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var failed *WriteError
		_, err := s.Append(ctx, one("2"))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &failed) {
			t.Errorf("error %v", err)
		}
		<-slow.Done()
		synctest.Wait()
	})
}

// A later owner that knows of fewer writes than were accepted here shows a loss,
// without any refusal.
func TestAHintBelowWhatWasAcceptedIsALoss(t *testing.T) {
	t.Parallel()
	berth := newScript(t, accept(7, 4, 4, "memory"), accept(7, 5, 5, "memory"), notOwner(true))
	s := session(t, berth, 7, 3)
	if err := ops(t, s, "a", "b"); err != nil {
		t.Fatal(err)
	}
	s.Offer(Hint{Handle: "h9.4", Epoch: 9, Version: 4})
	if err := ops(t, s, "c"); !errors.Is(err, ErrNotOwner) || !errors.Is(err, ErrStoreBehind) {
		t.Errorf("error %v", err)
	}
	wantSent(t, berth.requests(3), "a h7.3", "b h7.4", "b h7.4")
}

// What was kept of a life that ended is no loss: the new life goes on.
func TestKeptWritesOfAnEndedLifeAreLetGo(t *testing.T) {
	t.Parallel()
	berth := newScript(t, accept(7, 4, 4, "memory"), refuse(410, ErrExpired, ""), accept(9, 1, 1, "memory"), accept(9, 2, 2, "memory"))
	s := session(t, berth, 7, 3)
	if err := ops(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	s.Offer(Hint{Handle: "h8.0", Epoch: 8, New: true})
	if err := ops(t, s, "b", "c"); err != nil {
		t.Fatal(err)
	}
	wantSent(t, berth.requests(4), "a h7.3", "a h7.3", "b h8.0", "c h9.1")
}

// A loss that another claimant has accepted is told once, and then it is over.
func TestALossThatOthersAcceptedIsToldOnce(t *testing.T) {
	t.Parallel()
	stale := refuse(409, ErrStaleHandle, `"owner":{"instance":"i2","address":"10.0.0.2:8000","epoch":9}`)
	berth := newScript(t, accept(7, 4, 4, "memory"), stale, accept(9, 4, 4, "memory"))
	s := session(t, berth, 7, 3)
	if err := ops(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	s.Offer(Hint{Handle: "h9.3", Epoch: 9, Version: 3})
	if err := ops(t, s, "b"); !errors.Is(err, ErrStaleHandle) || !errors.Is(err, ErrStoreBehind) {
		t.Fatalf("error %v", err)
	}
	if err := ops(t, s, "b"); err != nil {
		t.Fatal(err)
	}
}

// The original write goes on with the newest handle, and gives up when a repair
// changes nothing.
func TestRepairThatChangesNothingEnds(t *testing.T) {
	t.Parallel()
	duplicate := reply(200, receiptJSON(7, 4, 4, "memory", `,"duplicate":true`))
	berth := newScript(t, accept(7, 4, 4, "memory"), behind(3, 4), duplicate, behind(3, 4))
	if err := ops(t, session(t, berth, 7, 3), "a", "b"); !errors.Is(err, ErrStoreBehind) {
		t.Errorf("error %v", err)
	}
}
