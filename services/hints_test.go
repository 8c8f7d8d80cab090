package services_test

import (
	"fmt"
	"testing"
)

// New sessions that share a key spill over to the next instance before any load
// table says that the first is full; what a heartbeat reports of them is not counted
// a second time. Sessions with keys of their own know nothing of it.
func TestAHotKeySpillsBeforeTheLoadsSaySo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	workers := []*worker{b.worker("i1"), b.worker("i2"), b.worker("i3")}
	report := func(running int) {
		for _, w := range workers {
			w.beat(running)
		}
		b.call("GET", "/v1/instances", "").want(200)
	}
	placed := func(name, key string, n int) map[string]int {
		by := map[string]int{}
		for i := range n {
			by[b.route(fmt.Sprint(name, i), key).want(200).str("instance")]++
		}
		return by
	}
	// Of 100 requests each, 100 + 3·√100 is the bound, and a little more while
	// others are placed too.
	report(100)
	if by := placed("a", "&key=prefix", 60); len(by) != 2 {
		t.Fatalf("60 sessions of one key are placed on %v, want two instances", by)
	}
	repeated := b.route("again", "&key=prefix").want(200)
	for range 100 {
		if a := b.route("again", "&key=prefix").want(200); a.str("instance") != repeated.str("instance") {
			t.Fatalf("one session that asks again is sent to %s, then to %s", repeated.str("instance"), a.str("instance"))
		}
	}
	report(101)
	if by := placed("b", "&key=prefix", 20); len(by) != 1 {
		t.Fatalf("20 sessions after a report are placed on %v, want one instance", by)
	}
	own := b.route("s", "").want(200).str("instance")
	for range 60 {
		if got := b.route("s", "").want(200).str("instance"); got != own {
			t.Fatalf("a session with a key of its own is sent to %s, then to %s", own, got)
		}
	}
}
