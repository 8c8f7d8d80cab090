package routing

import (
	"fmt"
	"sync"
	"testing"
)

// reporting is a fleet that carries so many requests each.
func reporting(n, running int) []Instance {
	list := readyFleet(n)
	for i := range list {
		list[i].Load = Load{Running: running, Report: 1}
	}
	return list
}

// placeShared places new sessions of one key as one replica does, and counts them
// by instance.
func placeShared(s *Snapshot, h *Hints, sessions int) map[string]int {
	placed := map[string]int{}
	for i := range sessions {
		req := Request{Key: "prefix", Hinted: h, Session: mix(uint64(i))}
		d := Decide(s, req, Record{})
		if h != nil {
			h.Count(&req, &d)
		}
		placed[d.Instance.ID]++
	}
	return placed
}

// A key that brings more sessions between two load tables than an instance has room
// for fills the instances of its walk one after the other, each up to its bound.
func TestHotKeyStaysUnderTheBound(t *testing.T) {
	t.Parallel()
	const sessions, running = 90, 100
	s := pool(t, reporting(10, running))
	if blind := placeShared(s, nil, sessions); len(blind) != 1 {
		t.Fatalf("without counting the load table alone decides: %v", blind)
	}
	placed := placeShared(s, (*Hints)(nil).After(s), sessions)
	w := s.Ring().Walk("prefix")
	for left := sessions; left > 0; {
		i, _ := w.Next()
		n := placed[s.instances[i].ID]
		// 100 + 3·√100 is the bound with nothing placed yet, and with all of it the
		// share of the others is a tenth of 90 higher.
		if most := 30 + 13; n > most || n < min(left, 30) {
			t.Fatalf("%s takes %d of the last %d, want about 30 to %d: %v", s.instances[i].ID, n, left, most, placed)
		}
		left -= n
	}
}

// What was placed counts until the instance reports again, and no other's report
// ends it.
func TestHintsEndWithAReport(t *testing.T) {
	t.Parallel()
	list := reporting(3, 100)
	s := pool(t, list)
	h := (*Hints)(nil).After(s)
	first := s.Owner("prefix").ID
	for i := 0; Decide(s, Request{Key: "prefix", Hinted: h}, Record{}).Instance.ID == first; i++ {
		req := Request{Key: "prefix", Session: mix(uint64(i))}
		d := Decide(s, req, Record{})
		h.Count(&req, &d)
	}
	after := func(report func(id string) uint64) string {
		loads := map[string]Load{}
		for _, in := range list {
			loads[in.ID] = Load{Running: 100, Report: report(in.ID)}
		}
		next := s.WithLoads(Loads{Version: 2, LoadVersion: 2, ByInstance: loads})
		return Decide(next, Request{Key: "prefix", Hinted: h.After(next)}, Record{}).Instance.ID
	}
	others := func(id string) uint64 {
		if id == first {
			return 1
		}
		return 2
	}
	if got := after(others); got == first {
		t.Errorf("%s is taken to have room again though it has not reported", first)
	}
	if got := after(func(string) uint64 { return 2 }); got != first {
		t.Errorf("%s has reported that it has room, and %s is chosen", first, got)
	}
	elsewhere := pool(t, list)
	if got := Decide(elsewhere, Request{Key: "prefix", Hinted: h}, Record{}).Instance.ID; got != first {
		t.Errorf("hints of another snapshot decide: %s", got)
	}
}

// A session that asks again before it is bound neither counts twice nor goes
// elsewhere, whatever is placed in between.
func TestHintsKeepASessionWhereItWasPlaced(t *testing.T) {
	t.Parallel()
	s := pool(t, reporting(2, 0))
	h := (*Hints)(nil).After(s)
	req := Request{Key: "prefix", Hinted: h, Session: mix(1 << 40)}
	d := Decide(s, req, Record{})
	for range 1000 {
		h.Count(&req, &d)
	}
	if h.total.Load() != 1 {
		t.Errorf("a session counts %d times", h.total.Load())
	}
	placeShared(s, h, 8)
	if other := Decide(s, Request{Key: "prefix", Hinted: h}, Record{}); other.Instance == d.Instance {
		t.Fatalf("8 more fill nobody: %s", other.Instance.ID)
	}
	if got := Decide(s, req, Record{}); !sameDecision(d, got) {
		t.Errorf("a session that asks again is sent to %s, then to %s", d.Instance.ID, got.Instance.ID)
	}
	silent := pool(t, readyFleet(2))
	h = (*Hints)(nil).After(silent)
	if placed := placeShared(silent, h, 1000); len(placed) != 1 {
		t.Errorf("nobody reports loads, which would end the count, and it counts: %v", placed)
	}
}

// Requests count while others decide and the next table is made.
func TestHintsAreConcurrent(t *testing.T) {
	t.Parallel()
	s := pool(t, reporting(4, 10))
	h := (*Hints)(nil).After(s)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 200 {
				req := Request{Key: fmt.Sprint(g % 2), Hinted: h, Session: mix(uint64(g*1000 + i))}
				d := Decide(s, req, Record{})
				h.Count(&req, &d)
				if i%50 == 0 {
					h.After(s)
				}
			}
		})
	}
	all.Wait()
	sum := uint64(0)
	for i := range h.given {
		sum += uint64(h.given[i].Load())
	}
	if total := h.total.Load(); total != sum || sum < 1500 {
		t.Errorf("%d counted, %d by instance, of 1600", total, sum)
	}
}

// fullOnTheWalk counts so much for the first instances of a key's walk that may take
// new sessions that all of them are over their bound.
func fullOnTheWalk(s *Snapshot, key string, n int) *Hints {
	h := (*Hints)(nil).After(s)
	w := s.Ring().Walk(key)
	for i, ok := w.Next(); ok && n > 0; i, ok = w.Next() {
		if s.takes.has(i) {
			h.given[i].Store(1000)
			h.total.Add(1000)
			n--
		}
	}
	return h
}
