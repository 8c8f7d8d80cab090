package services_test

import (
	"testing"
)

// hintedOne is a server with two instances, and the one that session s is hinted to.
func hintedOne(t *testing.T) (b *bundle, hinted, other *worker, handle string) {
	t.Helper()
	b = setup(t)
	hinted, other = b.worker("i1"), b.worker("i2")
	hint := b.route("s").want(200)
	if hint.str("instance") == other.id {
		hinted, other = other, hinted
	}
	return b, hinted, other, hint.str("handle")
}

// hints are the instances of some hints in a row, which have to be the same.
func (b *bundle) hints(session string) string {
	b.t.Helper()
	first := b.route(session).want(200).str("instance")
	for range 3 {
		if next := b.route(session).want(200).str("instance"); next != first {
			b.t.Fatalf("hinted to %s, then to %s", first, next)
		}
	}
	return first
}

// Case R20: who did not serve a session that nobody holds is left out of its next
// hints, however that was reported.
func TestWhoFailedIsLeftOutOfTheNextHint(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"connect", "reset", "5xx", "timeout", "busy"} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			b, hinted, other, handle := hintedOne(t)
			b.outcome("s", handle, hinted.id, "client")
			if at := b.hints("s"); at != hinted.id {
				t.Fatalf("after a request that was at fault itself the hint is %s", at)
			}
			b.outcome("s", handle, hinted.id, word)
			if at := b.hints("s"); at != other.id {
				t.Errorf("the hint after the failure is %s again", at)
			}
			if a := b.route("s").want(200); a.str("new") != "true" || a.str("epoch") != "0" || a.at("jump") == true {
				t.Errorf("the failure wrote something: %s", a.body)
			}
		})
		t.Run("excluded with "+word, func(t *testing.T) {
			t.Parallel()
			b, hinted, other, _ := hintedOne(t)
			b.route("s", "&exclude="+hinted.id+":"+word).want(200)
			if at := b.hints("s"); at != other.id {
				t.Errorf("the hint after the failure is %s again", at)
			}
		})
	}
}

// The failure is the session's: others that the ring sends there are hinted as before.
func TestAFailureIsOneSessionsOwn(t *testing.T) {
	t.Parallel()
	b, hinted, _, handle := hintedOne(t)
	b.outcome("s", handle, hinted.id, "reset")
	if a := b.route("t", "&key=s").want(200); a.str("instance") != hinted.id {
		t.Errorf("another session of the key: %s", a.body)
	}
}

// Where everybody failed the session is hinted as if nobody had; that is better than
// no hint at all.
func TestAHintIsGivenThoughEverybodyFailed(t *testing.T) {
	t.Parallel()
	b, hinted, other, handle := hintedOne(t)
	b.outcome("s", handle, hinted.id, "connect")
	b.outcome("s", handle, other.id, "connect")
	if at := b.hints("s"); at != hinted.id {
		t.Errorf("hinted to %s, the ring's owner is %s", at, hinted.id)
	}
	if a := b.call("GET", "/route?session=s&subset="+b.route("s").str("address"), "").want(200); a.str("instance") != hinted.id {
		t.Errorf("a subset of one: %s", a.body)
	}
}

// As a fallback, who failed comes after everybody else: there may be nobody better left.
func TestWhoFailedIsTheLastFallback(t *testing.T) {
	t.Parallel()
	b, hinted, other, handle := hintedOne(t)
	third := b.worker("i3")
	first := b.route("s").want(200).str("instance")
	b.outcome("s", handle, first, "connect")
	for asked, want := range map[string]string{"1": "", "2": first, "9": first} {
		a := b.route("s", "&fallbacks="+asked).want(200)
		if a.str("instance") == first || a.str("fallbacks.0.instance") == first || a.str("fallbacks.1.instance") != want || a.str("fallbacks.2.instance") != "" {
			t.Errorf("%s fallbacks of %s, %s and %s, where %s failed: %s", asked, hinted.id, other.id, third.id, first, a.body)
		}
	}
}

// One failure moves no session from who holds it: its KV cache is there, and another
// would compute the whole prompt. The gateway may exclude the owner at once.
func TestAFailureOfTheOwnerMovesNoSession(t *testing.T) {
	t.Parallel()
	b, hinted, other, handle := hintedOne(t)
	if b.outcome("s", handle, hinted.id, "ok") != "1" {
		t.Fatal("not bound to who served it")
	}
	handle = b.route("s").want(200).str("handle")
	b.outcome("s", handle, hinted.id, "reset")
	if at := b.hints("s"); at != hinted.id {
		t.Errorf("bound by a report and without turns, then hinted to %s", at)
	}
	hinted.append("s", "op", handle, `1`).want(200)
	b.outcome("s", handle, hinted.id, "connect")
	if at := b.hints("s"); at != hinted.id {
		t.Errorf("with a stored turn hinted to %s", at)
	}
	if a := b.route("s", "&exclude="+hinted.id).want(200); a.str("instance") != other.id {
		t.Errorf("excluded: %s", a.body)
	}
	if at := b.hints("s"); at != hinted.id {
		t.Errorf("after an exclude that nobody followed hinted to %s", at)
	}
}

// Of an orphaned session that was hinted elsewhere, who failed there holds nothing
// either: the next hint tries the third.
func TestAnotherIsHintedWhereTheFailoverFailed(t *testing.T) {
	t.Parallel()
	b, hinted, other, handle := hintedOne(t)
	third := b.worker("i3")
	hinted.append("s", "op", handle, `1`).want(200)
	both := map[string]*worker{other.id: other, third.id: third}
	b.call("DELETE", "/v1/instances/"+hinted.id, "", "X-Berth-Incarnation: "+hinted.incarnation).want(204)
	first := b.route("s").want(200)
	if both[first.str("instance")] == nil {
		t.Fatalf("the owner is gone: %s", first.body)
	}
	b.outcome("s", first.str("handle"), first.str("instance"), "connect")
	if at := b.hints("s"); both[at] == nil || at == first.str("instance") {
		t.Errorf("hinted to %s, which failed", at)
	}
}

// A failure is forgotten with the window in which breakers count it, and with the
// boot whose failure it was.
func TestAFailureIsForgotten(t *testing.T) {
	t.Parallel()
	t.Run("in time", func(t *testing.T) {
		t.Parallel()
		b, hinted, other, handle := hintedOne(t)
		b.call("PUT", "/v1/pools/default/policy", `{"breaker":{"window_ms":1,"failures":0}}`).want(200)
		b.outcome("s", handle, hinted.id, "5xx")
		eventually(t, "who failed is hinted again", func() bool { return b.route("s").want(200).str("instance") == hinted.id })
		b.call("PUT", "/v1/pools/default/policy", `{"breaker":{"window_ms":3600000,"failures":0}}`).want(200)
		b.outcome("s", handle, hinted.id, "5xx")
		if at := b.hints("s"); at != other.id {
			t.Errorf("within the window hinted to %s", at)
		}
	})
	t.Run("with the boot", func(t *testing.T) {
		t.Parallel()
		b, hinted, _, handle := hintedOne(t)
		b.outcome("s", handle, hinted.id, "5xx")
		b.worker(hinted.id)
		eventually(t, "the new boot is hinted", func() bool { return b.route("s").want(200).str("instance") == hinted.id })
	})
}
