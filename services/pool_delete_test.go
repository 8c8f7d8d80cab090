package services_test

import (
	"strings"
	"testing"
	"time"

	"berth/services"
)

// peopled begins session s in the default pool, on its only instance.
func (b *bundle) peopled(key string) (w *worker, handle string) {
	b.t.Helper()
	w = b.worker("i1")
	hint := b.route("s", "&key="+key).want(200)
	handle = w.append("s", "first", hint.str("handle"), `"hello"`).want(200).str("handle")
	return w, handle
}

// leave removes an instance, whoever is bound to it.
func (b *bundle) leave(w *worker) {
	b.t.Helper()
	b.call("DELETE", "/v1/instances/"+w.id+"?force=true", "").want(204)
}

// A pool is there, for processes that began later too, until an operator deletes it;
// then it is in none, and the contexts stay.
func TestAPoolStaysUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, handle := b.peopled("k")
	w.finish("s", handle).want(200)
	b.leave(w)
	later := setupOn(t, b.store)
	for _, p := range []*bundle{b, later} {
		p.route("new").refused(503, "not_eligible")
		if a := p.call("GET", "/v1/pools", "").want(200); a.str("pools.0.pool") != "default" || a.str("pools.0.instances") != "0" {
			t.Errorf("pools %s", a.body)
		}
		if a := p.call("GET", "/v1/pools/default/policy", "").want(200); a.str("version") != "0" {
			t.Errorf("the policy that nobody put: %s", a.body)
		}
	}
	b.call("DELETE", "/v1/pools/default", "").want(204)
	if !strings.Contains(b.logs.String(), `action="delete pool" pool=default`) {
		t.Errorf("no audit line in %s", b.logs)
	}
	b.route("new").refused(404, "unknown_pool")
	eventually(t, "the other process sees it", func() bool { return later.route("new").status == 404 })
	for _, p := range []*bundle{b, later, setupOn(t, b.store)} {
		p.route("new").refused(404, "unknown_pool")
		p.call("GET", "/v1/pools/default/policy", "").refused(404, "unknown_pool")
		if a := p.call("GET", "/v1/pools", "").want(200); a.at("pools.0") != nil {
			t.Errorf("pools %s", a.body)
		}
		if a := p.call("GET", "/v1/sessions?pool=default", "").want(200); a.str("sessions.0.session") != "s" {
			t.Errorf("the context that stays: %s", a.body)
		}
		p.call("DELETE", "/v1/pools/default", "").want(204)
		p.call("DELETE", "/v1/pools/never", "").want(204)
	}
	again := later.worker("i2")
	if a := again.recover("s", later.route("s").want(200).str("handle"), "claim").want(200); a.str("turns.0.value") != "hello" {
		t.Errorf("loaded in the pool that is there again: %s", a.body)
	}
}

// A deleted pool has lost its policy, also for who founds it again.
func TestADeletedPoolLosesItsPolicy(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	a.call("PUT", "/v1/pools/p/policy", `{"models":["m"],"max_age_ms":60000}`).want(200)
	b.call("PUT", "/v1/pools/q/policy", `{"models":["m"]}`).refused(422, "invalid")
	b.call("DELETE", "/v1/pools/p", "").want(204)
	b.call("PUT", "/v1/pools/q/policy", `{"models":["m"]}`).want(200)
	a.worker("i1", `"pool":"p"`)
	for _, p := range []*bundle{a, b} {
		if got := p.call("GET", "/v1/pools/p/policy", "").want(200); got.str("version") != "0" || got.str("policy.max_age_ms") == "60000" {
			t.Errorf("the policy: %s", got.body)
		}
	}
}

// A pool is not deleted under those who are in it, and a refusal holds nobody up.
func TestAPoolInUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	b, other := two(t)
	w, _ := b.peopled("k")
	remove := func() answer { return b.call("DELETE", "/v1/pools/default", "") }
	remove().refused(409, "wrong_state")
	b.leave(w)
	if a := remove().refused(409, "has_sessions"); a.str("sessions") != "1" {
		t.Errorf("refused with %s", a.body)
	}
	w = b.worker("i1")
	w.recover("s", b.route("s").want(200).str("handle"), "claim").want(200)
	w.finish("s", b.route("s").want(200).str("handle")).want(200)
	handle := w.append("t", "first", b.route("t", "&key=k").want(200).str("handle"), `1`).want(200).str("handle")
	w.finish("t", handle).want(200)
	b.leave(w)
	job := b.call("DELETE", "/v1/sessions?key=k&pool=default&sessions_per_s=0.001", "").want(202).str("id")
	if a := remove().refused(409, "wrong_state"); !strings.Contains(a.str("detail"), "jobs under way: 1") {
		t.Errorf("refused with %s", a.body)
	}
	other.call("PUT", "/v1/pools/default/policy", `{}`).want(200)
	b.call("POST", "/v1/jobs/"+job+"/cancel", "").want(202)
	b.ended(job, "cancelled")
	remove().want(204)
}

// What a file decides is not deleted, whichever process is asked.
func TestAnEnforcedPoolIsNotDeleted(t *testing.T) {
	inBubble(t, func(plain *bundle, store *faulty) {
		holder := start(plain.t, store, enforcing(map[string]services.PoolPolicy{"p": {}}))
		plain.call("DELETE", "/v1/pools/p", "").refused(409, "policy_enforced")
		holder.call("DELETE", "/v1/pools/p", "").refused(409, "policy_enforced")
		holder.stop()
		time.Sleep(31 * time.Second)
		plain.call("DELETE", "/v1/pools/p", "").want(204)
	})
}

// A pool that began with an instance has no policy yet: that of a file is put.
func TestAFileForAPoolThatBeganWithAnInstance(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	later := setupOn(t, b.store, func(o *services.Options) {
		o.Policies = map[string]services.PoolPolicy{"default": {MaxAgeMS: 60000}}
	})
	if a := later.call("GET", "/v1/pools/default/policy", "").want(200); a.str("policy.max_age_ms") != "60000" || a.str("version") != "1" {
		t.Errorf("the policy: %s", a.body)
	}
}
