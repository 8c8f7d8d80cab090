package routing

import (
	"runtime"
	"testing"
)

// R08: a rebuild sorted once for every node that was added. However many come or go at
// once, the points of a ring are laid out once: another fifty cost their own points,
// and not another ring each. It counts what is allocated, which no machine is too slow
// for, and so runs alone.
func TestR08OneLayoutPerRebuild(t *testing.T) {
	members := func(n int) []Member {
		list := make([]Member, n)
		for i, in := range readyFleet(n) {
			list[i] = in.member()
		}
		return list
	}
	ring := func(n int) *Ring {
		r, err := NewRing(RingOptions{}, members(n))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	bytes := func(from *Ring, n int) uint64 {
		var before, after runtime.MemStats
		list := members(n)
		runtime.ReadMemStats(&before)
		if _, err := from.With(list); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	whole := ring(500)
	for name, c := range map[string]struct {
		from *Ring
		to   int
	}{
		"one leaves":      {whole, 499},
		"fifty leave":     {whole, 450},
		"one joins":       {ring(499), 500},
		"fifty join":      {ring(450), 500},
		"most leave":      {whole, 10},
		"nearly all join": {ring(10), 500},
	} {
		one, got := bytes(ring(499), 500), bytes(c.from, c.to)
		t.Logf("%s: %d bytes; a single one: %d", name, got, one)
		if got > 3*one {
			t.Errorf("%s: %d bytes allocated, %d for a single one", name, got, one)
		}
	}
}
