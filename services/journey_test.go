package services_test

import (
	"strings"
	"testing"
)

// The main job: a session's turns survive the death of its instance, byte for
// byte, and whoever acts on an old hint is told so.
func TestASessionSurvivesItsInstance(t *testing.T) {
	t.Parallel()
	b := setup(t)
	workers := map[string]*worker{"i1": b.worker("i1"), "i2": b.worker("i2")}

	hint := b.route("chat-1").want(200)
	if hint.str("reason") != "new" || hint.str("new") != "true" {
		t.Fatalf("first route: %s", hint.body)
	}
	first := workers[hint.str("instance")]
	handle := hint.str("handle")
	values := []string{`{"role":"user","content":"héllo \u0000"}`, `"a\r\nb"`, `9007199254740993.10`}
	for i, v := range values {
		a := first.append("chat-1", "op-"+string(rune('a'+i)), handle, v).want(200)
		handle = a.str("handle")
		if a.str("durability.level") != "fsynced" {
			t.Fatalf("durability: %s", a.body)
		}
	}
	if a := b.route("chat-1").want(200); a.str("reason") != "bound" || a.str("instance") != first.id || a.str("version") != "3" {
		t.Fatalf("later route: %s", a.body)
	}

	hint = b.route("chat-1", "&exclude="+first.id+":connect").want(200)
	if hint.str("reason") != "failover" || hint.str("jump") != "true" || hint.str("previous") != first.id {
		t.Fatalf("failover: %s", hint.body)
	}
	second := workers[hint.str("instance")]
	got := second.recover("chat-1", hint.str("handle"), "claim").want(200)
	for i, v := range values {
		if !strings.Contains(string(got.body), `"value":`+v) {
			t.Errorf("turn %d is not byte for byte in %s", i, got.body)
		}
	}
	if got.str("plan") != "recompute" || got.str("base") != "0" {
		t.Fatalf("recovery: %s", got.body)
	}

	// The old owner wakes up: its late save is parked, not lost, and the owner adopts it.
	late := first.append("chat-1", "op-late", handle, `"late"`).refused(409, "not_owner")
	if late.str("why") != "failover" || late.str("owner.instance") != second.id || late.str("parked") != "true" {
		t.Fatalf("late save: %s", late.body)
	}
	again := second.recover("chat-1", hint.str("handle"), "claim").want(200)
	if again.str("parked.0.op") != "op-late" {
		t.Fatalf("parked: %s", again.body)
	}
	second.append("chat-1", "op-late", again.str("handle"), `"late"`).want(200)
	if a := second.recover("chat-1", "", "read").want(200); a.at("parked") != nil || a.str("turns.3.value") != "late" {
		t.Fatalf("after adoption: %s", a.body)
	}

	// Case R12: the old instance is back, and nobody jumps back to it.
	for range 3 {
		if a := b.route("chat-1").want(200); a.str("instance") != second.id || a.str("jump") != "" {
			t.Fatalf("route after recovery: %s", a.body)
		}
	}
	if a := b.call("GET", "/v1/sessions/chat-1/history", "").want(200); a.str("changes.1.reason") != "claimed" {
		t.Fatalf("history: %s", a.body)
	}
}

// Two instances race with handles of one epoch: one wins, the other is told who.
func TestRacingRecoveriesHaveOneWinner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w1, w2, w3 := b.worker("i1"), b.worker("i2"), b.worker("i3")
	workers := map[string]*worker{"i1": w1, "i2": w2, "i3": w3}
	hint := b.route("s").want(200)
	owner := workers[hint.str("instance")]
	owner.append("s", "op", hint.str("handle"), `1`).want(200)
	fail := b.route("s", "&fallbacks=1&exclude="+owner.id).want(200)
	a, c := workers[fail.str("instance")], workers[fail.str("fallbacks.0.instance")]
	won := a.recover("s", fail.str("handle"), "claim").want(200)
	lost := c.recover("s", fail.str("handle"), "claim").refused(409, "stale_handle")
	if lost.str("owner.instance") != a.id || lost.str("owner.epoch") != won.str("epoch") {
		t.Fatalf("loser is told %s", lost.body)
	}
}
