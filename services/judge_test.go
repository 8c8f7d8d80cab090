package services

import (
	"encoding/json"
	"testing"
	"time"

	"berth/statestore"
)

// at is a session at version 5 with 1,000 tokens, rewritten at version 3.
var at = &statestore.Record{Version: 5, Tokens: 1000, Rewritten: 3}

func raw(text string) json.RawMessage { return json.RawMessage(text) }

func TestPlacementsAreJudged(t *testing.T) {
	t.Parallel()
	whole := Placement{Tier: "gpu", Tokens: 1000, Version: 5, Generation: 2}
	with := func(change func(*Placement)) *Placement {
		p := whole
		change(&p)
		return &p
	}
	own := holder{instance: "i1", alive: true, generation: 2}
	gone := holder{instance: "i1"}
	zero, left := int64(0), int64(200)
	cases := []struct {
		name    string
		p       *Placement
		from    holder
		who     asker
		verdict Verdict
		field   string
	}{
		{"its own, of all turns", &whole, own, asker{instance: "i1"}, Usable, ""},
		{"its own, of an older version", with(func(p *Placement) { p.Version, p.Tokens = 4, 800 }), own, asker{instance: "i1"}, UsablePrefix, ""},
		{"its own, of fewer tokens", with(func(p *Placement) { p.Tokens = 999 }), own, asker{instance: "i1"}, UsablePrefix, ""},
		{"its own, from before a rewrite", with(func(p *Placement) { p.Version = 2 }), own, asker{instance: "i1"}, BehindContext, ""},
		{"its own, of a version that is not here", with(func(p *Placement) { p.Version = 6 }), own, asker{instance: "i1"}, BehindContext, ""},
		{"its own, of nothing", with(func(p *Placement) { p.Tokens = 0 }), own, asker{instance: "i1"}, Ineffective, ""},
		{"another's memory", &whole, own, asker{instance: "i2"}, Ineffective, ""},
		{"another's, asked by nobody", &whole, own, asker{}, Ineffective, ""},
		{"shared, for another", with(func(p *Placement) { p.Tier, p.URI = "object", "s3://x" }), own, asker{instance: "i2"}, Usable, ""},
		{"ranks missing", with(func(p *Placement) { p.Ranks = &Completeness{3, 4} }), own, asker{instance: "i1"}, Ineffective, ""},
		{"all ranks", with(func(p *Placement) { p.Ranks, p.Pools = &Completeness{4, 4}, &Completeness{1, 1} }), own, asker{instance: "i1"}, Usable, ""},
		{"pools missing", with(func(p *Placement) { p.Pools = &Completeness{0, 1} }), own, asker{instance: "i1"}, Ineffective, ""},

		// Case T20: the boot that held it is gone.
		{"of a boot before", &whole, gone, asker{instance: "i1"}, OwnerGone, ""},
		{"of a boot before, shared", with(func(p *Placement) { p.URI = "s3://x" }), gone, asker{instance: "i1"}, Usable, ""},

		// Case T41: its time is over, or the cache was reset since.
		{"200 ms left", with(func(p *Placement) { p.RemainingMS = &left }), own, asker{instance: "i1"}, Usable, ""},
		{"no time left", with(func(p *Placement) { p.RemainingMS = &zero }), own, asker{instance: "i1"}, Lapsed, ""},
		{"of a generation before", with(func(p *Placement) { p.Generation = 1 }), own, asker{instance: "i1"}, Lapsed, ""},
		{"of a generation before, shared", with(func(p *Placement) { p.Generation, p.URI = 1, "s3://x" }), own, asker{instance: "i2"}, Lapsed, ""},

		// Case T39: caches that look alike and are not.
		{"another seed", with(func(p *Placement) { p.Compat = compat{"hash_seed": raw(`1`)} }), own,
			asker{"i1", map[string]any{"hash_seed": 2.0}}, Incompatible, "hash_seed"},
		{"the same seed", with(func(p *Placement) { p.Compat = compat{"hash_seed": raw(`1`)} }), own,
			asker{"i1", map[string]any{"hash_seed": 1.0}}, Usable, ""},
		{"a seed that only one names", with(func(p *Placement) { p.Compat = compat{"hash_seed": raw(`1`)} }), own,
			asker{"i1", map[string]any{"model": "m"}}, Usable, ""},
		{"a seed that must be equal and only one names", with(func(p *Placement) {
			p.Compat, p.MustEqual = compat{"hash_seed": raw(`1`)}, []string{"hash_seed"}
		}), own, asker{"i1", map[string]any{"model": "m"}}, Incompatible, "hash_seed"},
		{"a field that need not be equal", with(func(p *Placement) {
			p.Compat, p.MustEqual = compat{"model": raw(`"m"`), "tp": raw(`8`)}, []string{"model"}
		}), own, asker{"i1", map[string]any{"model": "m", "tp": 4.0}}, Usable, ""},
		{"null and absent", with(func(p *Placement) { p.Compat, p.MustEqual = compat{"lora": raw(`null`)}, []string{"lora"} }), own,
			asker{"i1", map[string]any{}}, Incompatible, "lora"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if verdict, field := judge(tc.p, tc.from, at, tc.who); verdict != tc.verdict || field != tc.field {
				t.Fatalf("%s %q, want %s %q", verdict, field, tc.verdict, tc.field)
			}
		})
	}
}

// The registry keeps numbers as floats; a seed of 64 bits must not lose its last
// bits there.
func TestCompatIsComparedExactly(t *testing.T) {
	t.Parallel()
	cases := []struct {
		placement, instance string
		equal               bool
	}{
		{`18446744073709551615`, `18446744073709551615`, true},
		{`18446744073709551615`, `18446744073709551614`, false},
		{`9007199254740993`, `9007199254740992`, false},
		{`-9223372036854775807`, `-9223372036854775808`, false},
		{`1`, `1.0`, true}, {`1`, `1e0`, true}, {`0`, `-0`, true}, {`0.1`, `0.10`, true}, {`1`, `2`, false},
		{`"7"`, `7`, true}, // engines print seeds either way
		{`"a"`, `"a"`, true}, {`"a"`, `"A"`, false}, {`true`, `"true"`, false}, {`null`, `false`, false},
		{`[1,2]`, `[1.0,2]`, true}, {`[1,2]`, `[2,1]`, false},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true}, {`{"a":1}`, `{"a":1,"b":2}`, false},
		{`1e999999999`, `1e999999999`, true}, {`1e999999999`, `1`, false},
	}
	for _, tc := range cases {
		stored, err := compat{"x": raw(tc.instance)}.stored()
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(stored)
		if err != nil {
			t.Fatal(err)
		}
		var registry map[string]any // as the store reads it
		if err := json.Unmarshal(text, &registry); err != nil {
			t.Fatal(err)
		}
		p := &Placement{Compat: compat{"x": raw(tc.placement)}, MustEqual: []string{"x"}}
		if field := mismatch(p, registry); (field == "") != tc.equal {
			t.Errorf("%s and %s: mismatch %q", tc.placement, tc.instance, field)
		}
	}
}

// What is stored of a placement ages; the plan is the best of all verdicts.
func TestThePlanIsTheBestVerdict(t *testing.T) {
	t.Parallel()
	me := statestore.Owner{Instance: "i1", Incarnation: "x"}
	image := &fleetImage{instances: map[string]*statestore.Instance{
		"i1": {InstanceSpec: statestore.InstanceSpec{ID: "i1", Incarnation: "x"}},
		"i2": {InstanceSpec: statestore.InstanceSpec{ID: "i2", Incarnation: "y"}, Verdict: statestore.Verdict{Health: statestore.Down}},
	}}
	set := func(by statestore.Owner, age time.Duration, list string) statestore.PlacementSet {
		return statestore.PlacementSet{By: by, Age: age, Descriptors: []byte(list)}
	}
	prefix := set(me, 0, `[{"tier":"gpu","tokens":10,"version":4}]`)
	whole := set(me, 0, `[{"tier":"gpu","tokens":1000,"version":5}]`)
	aged := set(me, 300*time.Millisecond, `[{"tier":"gpu","tokens":1000,"version":5,"remaining_ms":200}]`)
	down := set(statestore.Owner{Instance: "i2", Incarnation: "y"}, 0, `[{"tier":"gpu","tokens":1000,"version":5}]`)
	for _, tc := range []struct {
		sets []statestore.PlacementSet
		plan string
	}{
		{nil, "recompute"},
		{[]statestore.PlacementSet{aged}, "recompute"},
		{[]statestore.PlacementSet{down}, "recompute"},
		{[]statestore.PlacementSet{prefix, aged}, "kv_prefix"},
		{[]statestore.PlacementSet{whole, prefix}, "kv"},
		{[]statestore.PlacementSet{prefix, whole}, "kv"},
	} {
		judged, plan, err := judgePlacements(at, tc.sets, image, asker{instance: "i1"})
		if err != nil || plan != tc.plan || len(judged) != len(tc.sets) {
			t.Errorf("%v: plan %s, want %s, %v", judged, plan, tc.plan, err)
		}
	}
	if _, _, err := judgePlacements(at, []statestore.PlacementSet{set(me, 0, `{`)}, image, asker{}); err == nil {
		t.Error("placements that cannot be read are not refused")
	}
}
