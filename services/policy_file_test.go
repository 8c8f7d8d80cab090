package services_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/services"
)

func policyFile(t *testing.T, text string) (map[string]services.PoolPolicy, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return services.LoadPolicies(path)
}

// A file seeds pools that have no policy. Enforced, it replaces what is stored and
// nobody changes it by a call; the version tells every replica.
func TestPoliciesFromAFile(t *testing.T) {
	t.Parallel()
	policies, err := policyFile(t, "pools:\n  a: {max_age_ms: 60000, ramp: {over_ms: 0}}\n  b: {affinity_idle_ms: 5000}\n")
	if err != nil {
		t.Fatal(err)
	}
	store := openStore(t)
	first := setupOn(t, store)
	first.call("PUT", "/v1/pools/a/policy", `{"max_age_ms":1}`).want(200)

	seeded := setupOn(t, store, func(o *services.Options) { o.Policies = policies })
	if a := seeded.call("GET", "/v1/pools/a/policy", "").want(200); a.str("policy.max_age_ms") != "1" || a.str("version") != "1" {
		t.Fatalf("a stored policy that a file seeds over: %s", a.body)
	}
	if a := first.call("GET", "/v1/pools/b/policy", "").want(200); a.str("policy.affinity_idle_ms") != "5000" {
		t.Fatalf("a seeded policy at another replica: %s", a.body)
	}
	seeded.call("PUT", "/v1/pools/a/policy", `{"max_age_ms":2}`).want(200)

	enforced := setupOn(t, store, func(o *services.Options) { o.Policies, o.EnforcePolicies = policies, true })
	if a := first.call("GET", "/v1/pools/a/policy", "").want(200); a.str("policy.max_age_ms") != "60000" || a.str("version") != "3" {
		t.Fatalf("an enforced policy at another replica: %s", a.body)
	}
	enforced.call("PUT", "/v1/pools/a/policy", `{}`).refused(409, "policy_enforced")
	enforced.call("PUT", "/v1/pools/c/policy", `{}`).want(200)
	again := setupOn(t, store, func(o *services.Options) { o.Policies, o.EnforcePolicies = policies, true })
	if a := again.call("GET", "/v1/pools/a/policy", "").want(200); a.str("version") != "3" {
		t.Fatalf("enforcing what is stored makes a version: %s", a.body)
	}
}

func TestPolicyFilesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                               "EOF",
		"pools: {}":                      "no pools",
		"pols: {a: {}}":                  "pols",
		"pools: {a: {max_age: 1}}":       "max_age",
		"pools: {a: {max_age_ms: -1}}":   "max_age_ms",
		"pools: {a: {ramp: {steps: 0}}}": "steps",
		"pools: {a: {bound: {percent: 99, gap: 1, noise: 1}}}": "percent",
		"pools: {a: {affinity_idle_ms: 10, retention_ms: 5}}":  "affinity_idle_ms",
		"pools: {a b: {}}": "a b",
		"pools: {a: {breaker: {saturated_percent: 50, calm_percent: 60}}}": "saturated",
		"pools: {a: {max_age_ms: soon}}":                                   "max_age_ms",
	} {
		if _, err := policyFile(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error that names %s", text, err, want)
		}
	}
	if _, err := services.LoadPolicies(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there is read")
	}
}
