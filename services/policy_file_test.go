package services_test

import (
	"encoding/json"
	"log/slog"
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
	first.call("PUT", "/v1/pools/a/policy", `{}`).refused(409, "policy_enforced")
	enforced.call("PUT", "/v1/pools/c/policy", `{}`).want(200)
	again := setupOn(t, store, func(o *services.Options) { o.Policies, o.EnforcePolicies = policies, true })
	if a := again.call("GET", "/v1/pools/a/policy", "").want(200); a.str("version") != "3" {
		t.Fatalf("enforcing what is stored makes a version: %s", a.body)
	}
}

// What is wrong with a file is said by its lines and members, and not by what this
// program makes of them.
func TestPolicyFilesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "the file is empty: want pools",
		"# nothing":                        "the file is empty: want pools",
		"3":                                "line 1: want the member pools",
		"pools: {}":                        "no pools",
		"pools:":                           "no pools",
		"pools: [a]":                       "line 1: want names of pools, each with its policy",
		"pols: {a: {}}":                    `line 1: unknown member "pols": policies stand below pools`,
		"default:\n  shed: true\n":         `line 1: unknown member "default": policies stand below pools`,
		"pools: {a: {}}\npools: {b: {}}":   `line 2: member "pools" stands there twice`,
		"pools: {a: {}, a: {}}":            "line 1: pool a stands there twice",
		"pools: {a: 3}":                    "pool a: line 1: want the members of a policy",
		"pools:\n  a: {}\n  default:\n":    "pool default: line 3: it has no value: want the members of a policy, or {} for the defaults",
		"pools:\n  a:\n    ramp:\n":        "pool a: line 3: ramp has no value",
		"pools: {a: {max_age_ms: ~}}":      "pool a: line 1: max_age_ms has no value",
		"pools: {a: {models: [x, null]}}":  "pool a: line 1: models has no value",
		"pools: {a: &n , b: *n}":           "pool a: line 1: it has no value",
		"pools: {a: {max_age: 1}}":         `pool a: line 1: unknown member "max_age"`,
		"pools:\n  a:\n    max_age_ms: -1": "pool a: line 3: max_age_ms: expected number >= 0",
		"pools:\n  a:\n    ramp:\n      steps: 0":                     "pool a: line 4: ramp.steps: expected number >= 1",
		"pools:\n  a:\n    ramp:\n      over: 0":                      `pool a: line 4: unknown member "ramp.over"`,
		"pools: {a: {bound: {percent: 99, gap: 1, noise: 1}}}":        "pool a: line 1: bound.percent: expected number >= 100",
		"pools:\n  a:\n    retention_ms: 5\n    affinity_idle_ms: 10": "pool a: line 4: affinity_idle_ms: must not be longer than retention_ms",
		"pools: {a b: {}}": "pool a b: line 1: pool may hold only letters, digits, '.', '_' and '-'",
		"pools: {a: {breaker: {saturated_percent: 50, calm_percent: 60}}}": "saturated",
		"pools:\n  a: {max_age_ms: soon}":                                  "pool a: line 2: max_age_ms: expected",
		"pools: {a: {max_age_ms: 100000000000000000000}}":                  "pool a: line 1: max_age_ms: expected",
		"pools: {a: {models: [x, x]}}":                                     `pool a: line 1: models[1]: "x" is listed twice`,
		"pools:\n  a: {models: [x, y]}\n  b:\n    models: [z, y]":          `pool b: line 4: models[1]: "y" already means pool a`,
		`pools: {a: {models: [""]}}`:                                       "pool a: line 1: models[0]: must have 1 to 256 bytes",
		"pools: {a: {ramp: {1: 2}}}":                                       "pool a: line 1: the name of a member is no string",
		"pools: {a: {shed: true, shed: true}}":                             "already defined",
		"pools: [":                                                         "line 1",
	} {
		_, err := policyFile(t, text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error that says %s", text, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "struct") || strings.Contains(err.Error(), "json:") || strings.Contains(err.Error(), "interface")) {
			t.Errorf("%q: %v tells of this program", text, err)
		}
	}
	if _, err := services.LoadPolicies(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there is read")
	}
	if p, err := policyFile(t, "pools:\n  a: &a {shed: true}\n  b: *a\n  c: {<<: *a, panic: true}\n  d: {}\n"); err != nil || !p["b"].Shed || !p["c"].Shed || !p["c"].Panic {
		t.Errorf("anchors: %+v, %v", p, err)
	}
}

// A member of a bound may be set alone, in a call and in a file.
func TestABoundInPartIsTaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, body := range []string{`{"bound":{"percent":130}}`, `{"bound":{"gap":0}}`, `{"bound":{}}`} {
		b.call("PUT", "/v1/pools/a/policy", body).want(200)
		file, err := policyFile(t, `{"pools":{"a":`+body+`}}`)
		if err != nil {
			t.Fatalf("%s in a file: %v", body, err)
		}
		text, err := json.Marshal(file["a"])
		if a := b.call("GET", "/v1/pools/a/policy", "").want(200); err != nil || string(text) != body || !strings.Contains(string(a.body), body) {
			t.Errorf("%s is kept as %s, and in a file as %s, %v", body, a.body, text, err)
		}
	}
	b.call("PUT", "/v1/pools/a/policy", `{"bound":{"percent":0}}`).refused(422, "invalid")
}

// What the embedded store can never give is refused where it is asked for; writes that
// take what they get are not.
func TestADurabilityThatTheStoreNeverGives(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.call("PUT", "/v1/pools/a/policy", `{"durability":"replicated"}`).refused(422, "invalid")
	if a.str("errors.0.location") != "body.durability" {
		t.Errorf("refused with %s", a.body)
	}
	b.call("PUT", "/v1/pools/a/policy", `{"durability":"replicated","on_shortfall":"accept"}`).want(200)
	b.call("PUT", "/v1/pools/a/policy", `{"durability":"fsynced"}`).want(200)

	store := openStore(t)
	for durability, ok := range map[string]bool{"replicated": false, "fsynced": true} {
		server, err := services.New(t.Context(), services.Options{
			Store: store, Process: durability, Logger: slog.New(slog.DiscardHandler),
			Policies: map[string]services.PoolPolicy{durability: {Durability: durability}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Load(t.Context()); (err == nil) != ok || !ok && !strings.Contains(err.Error(), "policy of pool replicated: durability: the embedded store") {
			t.Errorf("a file with %s: %v", durability, err)
		}
	}
}

func TestModelsAndSchemesThatAreNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for body, location := range map[string]string{
		`{"models":[""]}`:          "body.models[0]",
		`{"models":["a","  "]}`:    "body.models[1]",
		`{"models":["a","b","a"]}`: "body.models[2]",
	} {
		if a := b.call("PUT", "/v1/pools/p/policy", body).refused(422, "invalid"); a.str("errors.0.location") != location {
			t.Errorf("%s is refused with %s", body, a.body)
		}
	}
	b.call("PUT", "/v1/pools/p/policy", `{"models":["a","b"]}`).want(200)
	if a := b.call("PUT", "/v1/instances/i1", `{"address":"10.0.0.1:80","scheme":"gopher"}`).refused(422, "invalid"); a.str("errors.0.location") != "body.scheme" {
		t.Errorf("refused with %s", a.body)
	}
	b.call("PUT", "/v1/instances/i1", `{"address":"10.0.0.1:80","scheme":"grpc"}`).want(200)
	b.call("GET", "/v1/sessions?pool=nope", "").refused(404, "unknown_pool")
	b.call("GET", "/v1/sessions?pool=p", "").want(200)
}
