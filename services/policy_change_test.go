package services_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/services"
	"berth/statestore"
)

// enforcing starts a process with a file that it enforces.
func enforcing(policies map[string]services.PoolPolicy) option {
	return func(o *services.Options) { o.Policies, o.EnforcePolicies = policies, true }
}

// A file that one process enforces binds them all: before any of them saw it, for as
// long as one of them runs, and not for ever.
func TestAnEnforcedPolicyBindsEveryProcess(t *testing.T) {
	inBubble(t, func(plain *bundle, store *faulty) {
		plain.call("PUT", "/v1/pools/p/policy", `{"max_age_ms":1}`).want(200)
		file := map[string]services.PoolPolicy{"p": {MaxAgeMS: 60000}}
		one, two := start(plain.t, store, enforcing(file)), start(plain.t, store, enforcing(file))
		put := func() answer { return plain.call("PUT", "/v1/pools/p/policy", `{"max_age_ms":2}`) }
		put().refused(409, "policy_enforced")
		plain.call("PUT", "/v1/pools/q/policy", `{}`).want(200)
		one.stop()
		time.Sleep(5 * time.Minute)
		put().refused(409, "policy_enforced")
		two.stop()
		time.Sleep(20 * time.Second) // as long as a restart takes
		put().refused(409, "policy_enforced")
		time.Sleep(11 * time.Second)
		if a := put().want(200); a.str("version") != "3" {
			t.Errorf("after the last of them ended: %s", a.body)
		}
	})
}

// A pool that the file does not name any more is free though the process goes on with
// the others.
func TestAPoolThatLeftTheFileIsFree(t *testing.T) {
	inBubble(t, func(plain *bundle, store *faulty) {
		start(plain.t, store, enforcing(map[string]services.PoolPolicy{"p": {}, "q": {}})).stop()
		next := start(plain.t, store, enforcing(map[string]services.PoolPolicy{"p": {}}))
		time.Sleep(31 * time.Second)
		plain.call("PUT", "/v1/pools/p/policy", `{"shed":true}`).refused(409, "policy_enforced")
		plain.call("PUT", "/v1/pools/q/policy", `{"shed":true}`).want(200)
		next.stop()
	})
}

// What others changed while the mark was lost, like with a store that failed over, is
// what the file says again a little later.
func TestAnEnforcedPolicyComesBack(t *testing.T) {
	inBubble(t, func(plain *bundle, store *faulty) {
		holder := start(plain.t, store, enforcing(map[string]services.PoolPolicy{"p": {MaxAgeMS: 60000}}))
		mark := statestore.Lease{Name: "policy/p", Holder: "policy file", Token: 1}
		if err := store.ReleaseLease(plain.t.Context(), mark); err != nil {
			t.Fatal(err)
		}
		plain.call("PUT", "/v1/pools/p/policy", `{"max_age_ms":2}`).want(200)
		time.Sleep(12 * time.Second)
		if a := plain.call("GET", "/v1/pools/p/policy", "").want(200); a.str("policy.max_age_ms") != "60000" {
			t.Errorf("in force: %s", a.body)
		}
		plain.call("PUT", "/v1/pools/p/policy", `{}`).refused(409, "policy_enforced")
		holder.stop()
	})
}

// A call that died while it put a policy keeps nobody from starting with a file.
func TestAPutThatDiedHoldsUpNoFile(t *testing.T) {
	inBubble(t, func(plain *bundle, store *faulty) {
		if _, err := store.AcquireLease(plain.t.Context(), "policy/p", "call/dead", 10*time.Second); err != nil {
			t.Fatal(err)
		}
		plain.call("PUT", "/v1/pools/p/policy", `{}`).refused(503, "store_unavailable")
		holder := start(plain.t, store, enforcing(map[string]services.PoolPolicy{"p": {MaxAgeMS: 60000}}))
		if a := plain.call("GET", "/v1/pools/p/policy", "").want(200); a.str("policy.max_age_ms") != "60000" {
			t.Errorf("in force: %s", a.body)
		}
		time.Sleep(21 * time.Second)
		plain.call("PUT", "/v1/pools/p/policy", `{}`).refused(409, "policy_enforced")
		holder.stop()
	})
}

// Of pools that are told at the same time to list one model, one gets it, whichever
// processes are asked.
func TestOneModelForOnePoolAtOnce(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	for round := range 5 {
		body := fmt.Sprintf(`{"models":["m-%d"]}`, round)
		var answers [8]answer
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() {
				answers[i] = []*bundle{a, b}[i%2].call("PUT", fmt.Sprintf("/v1/pools/p%d-%d/policy", round, i), body)
			})
		}
		all.Wait()
		won := 0
		for _, got := range answers {
			if got.status == 200 {
				won++
				continue
			}
			if got.refused(422, "invalid"); !strings.Contains(string(got.body), "already means pool") {
				t.Errorf("refused with %s", got.body)
			}
		}
		if won != 1 {
			t.Errorf("%d pools list one model", won)
		}
	}
}

// A file does not take a model from a pool that it does not name.
func TestAFileThatTakesAModel(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	b := setupOn(t, store)
	b.call("PUT", "/v1/pools/a/policy", `{"models":["m"]}`).want(200)
	load := func(enforce bool, policies map[string]services.PoolPolicy) error {
		t.Helper()
		server, err := services.New(t.Context(), services.Options{
			Store: store, Process: "with a file", Logger: slog.New(slog.DiscardHandler), Policies: policies, EnforcePolicies: enforce,
		})
		if err != nil {
			t.Fatal(err)
		}
		return server.Load(t.Context())
	}
	for _, enforce := range []bool{false, true} {
		err := load(enforce, map[string]services.PoolPolicy{"b": {Models: []string{"m"}}})
		if err == nil || !strings.Contains(err.Error(), `policy of pool b: models: "m" already means pool a`) {
			t.Errorf("enforced %v: %v", enforce, err)
		}
	}
	b.call("GET", "/v1/pools/b/policy", "").refused(404, "unknown_pool")
	if err := load(true, map[string]services.PoolPolicy{"a": {}, "b": {Models: []string{"m"}}}); err != nil {
		t.Errorf("a file that gives it to another: %v", err)
	}
}
