package services_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// Case R43: a session that is bound to an instance with two requests more than its
// idle sibling leaves with its next turn where the policy says so, and once; where it
// does not, no load moves it.
func TestAnOldBindingMaySpill(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]string{
		"with a maximum age": `{"max_age_ms":60000,"bound":{"percent":125,"gap":1,"noise":3}}`,
		"without":            `{"bound":{"percent":125,"gap":1,"noise":3}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := start(t, openStore(t), usual, patient)
				b.call("PUT", "/v1/pools/default/policy", policy).want(200)
				owner, sibling := b.worker("i1"), b.worker("i2")
				b.crowd(1, owner, sibling)
				bound := func(what, to, reason string) answer {
					t.Helper()
					time.Sleep(time.Second)
					a := b.route("crowd-0").want(200)
					if a.str("instance") != to || a.str("reason") != reason || (a.str("jump") == "true") != (reason == "breaker") {
						t.Fatalf("%s: %s", what, a.body)
					}
					return a
				}
				owner.beat(2)
				time.Sleep(50 * time.Second)
				bound("two more, younger than the age", "i1", "bound")
				time.Sleep(10 * time.Second)
				if name == "without" {
					bound("two more, older", "i1", "bound")
					owner.beat(500)
					time.Sleep(3 * time.Minute)
					bound("five hundred more", "i1", "bound")
					return
				}
				owner.beat(1)
				bound("one more, older", "i1", "bound")
				owner.beat(2)
				spilt := bound("two more, older", "i2", "breaker")
				got := sibling.recover("crowd-0", spilt.str("handle"), "claim").want(200)
				sibling.append("crowd-0", "second", got.str("handle"), `"here"`).want(200)
				owner.beat(0)
				sibling.beat(2)
				bound("spilt, and the first is idle again", "i2", "bound")
			})
		})
	}
}
