package services_test

import (
	"strconv"
	"testing"
	"time"
)

// refusedAll fails unless everybody is told that nobody is there, and when to ask
// again.
func (f *virtualFleet) refusedAll(what string) {
	f.t.Helper()
	f.each(func(_ string, a answer) {
		a.refused(503, "not_eligible")
		if after, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || after < 1 {
			f.t.Fatalf("%s: Retry-After %q", what, a.header.Get("Retry-After"))
		}
	})
}

// hintedOnly fails unless everybody is sent to one instance, with no other to turn to.
func (f *virtualFleet) hintedOnly(id string) {
	f.t.Helper()
	f.each(func(owner string, a answer) {
		want := map[string]string{"": "new", "-": "stateless", id: "bound"}[owner]
		if want == "" {
			want = "failover"
		}
		a.want(200)
		if a.str("instance") != id || a.at("fallbacks.0") != nil || a.str("degraded") != "" || a.str("reason") != want {
			f.t.Fatalf("while only %s lives, one of %q: %s", id, owner, a.body)
		}
		if (a.str("jump") == "true") != (want == "failover") {
			f.t.Fatalf("a jump of one of %q: %s", owner, a.body)
		}
	})
}

// Case R09: with two of three instances dead nobody is sent to them, as owner, choice
// or fallback; with all dead everybody is told to ask again, unless the policy asks
// for panic: then a session is sent to its owner, and told that this is a guess.
func TestNobodyIsSentToTheDead(t *testing.T) {
	inBubble(t, func(b *bundle, _ *faulty) {
		f := newVirtualFleet(b, 3)
		f.seat(60)
		f.dead["i1"], f.dead["i2"] = true, true
		f.pass(17) // what it takes to be down, a round and a poll
		f.hintedOnly("i3")
		f.dead["i3"] = true
		f.pass(17)
		f.refusedAll("all dead")

		b.call("PUT", "/v1/pools/default/policy", `{"panic":true}`).want(200)
		time.Sleep(time.Second)
		f.each(func(owner string, a answer) {
			a.want(200)
			if a.str("reason") != "panic" || a.str("degraded") != "panic" || a.header.Get("X-Berth-Degraded") != "panic" {
				b.t.Fatalf("all dead, with panic: %s", a.body)
			}
			if f.workers[owner] != nil && (a.str("instance") != owner || a.str("jump") != "") {
				b.t.Fatalf("in panic a session of %s goes away: %s", owner, a.body)
			}
		})
		delete(f.dead, "i2")
		f.pass(2)
		f.hintedOnly("i2")
		f.dead["i2"] = true
		b.call("PUT", "/v1/pools/default/policy", `{}`).want(200)
		f.pass(17)
		f.refusedAll("all dead again, without panic")
	}, usual)
}

// If all leases lapse at once Berth suspects itself, until gateways say otherwise.
func TestAllDeadAtOnceTakesAComplaint(t *testing.T) {
	inBubble(t, func(b *bundle, _ *faulty) {
		f := newVirtualFleet(b, 3)
		f.seat(30)
		f.dead["i1"], f.dead["i2"], f.dead["i3"] = true, true, true
		f.pass(60)
		f.each(func(owner string, a answer) {
			a.want(200)
			if f.workers[owner] != nil && a.str("instance") != owner {
				b.t.Fatalf("a session of %s: %s", owner, a.body)
			}
		})
		for range 3 { // fewer than open a breaker
			b.route("seated-0", "&exclude=i1:connect,i2:connect,i3:connect").refused(503, "not_eligible")
		}
		f.pass(5)
		for id := range f.workers {
			if a := b.call("GET", "/v1/instances/"+id, "").want(200); a.str("state") != "down" || a.str("breaker") != "" {
				b.t.Errorf("%s: %s", id, a.body)
			}
		}
		f.refusedAll("all dead")
	}, usual)
}
