package simulate

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseEvent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Event{
		"30s:add:4":           {At: 30 * time.Second, Kind: Add, Who: Who{Count: 4}, N: 100},
		"30s:add:4:50":        {At: 30 * time.Second, Kind: Add, Who: Who{Count: 4}, N: 50},
		"2m:drain:i3,i5":      {At: 2 * time.Minute, Kind: Drain, Who: Who{IDs: []string{"i3", "i5"}}},
		"5m:kill:zone=b":      {At: 5 * time.Minute, Kind: Kill, Who: Who{Zone: "b"}},
		"1m30s:slow:2:3.5":    {At: 90 * time.Second, Kind: Slow, Who: Who{Count: 2}, N: 3.5},
		"1m:weight:i1:0":      {At: time.Minute, Kind: Weight, Who: Who{IDs: []string{"i1"}}},
		"1m:recover:i1":       {At: time.Minute, Kind: Recover, Who: Who{IDs: []string{"i1"}}},
		"90s:hot:1%:50%":      {At: 90 * time.Second, Kind: Hot, Sessions: 0.01, Load: 0.5},
		"90s:hot:0.5%:25%:i3": {At: 90 * time.Second, Kind: Hot, Sessions: 0.005, Load: 0.25, Who: Who{IDs: []string{"i3"}}},
	} {
		got, err := ParseEvent(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got.String() != text {
			t.Errorf("%s is written %s", text, got)
		}
		got.text = ""
		if got.At != want.At || got.Kind != want.Kind || got.N != want.N || got.Sessions != want.Sessions || got.Load != want.Load ||
			got.Who.Count != want.Who.Count || got.Who.Zone != want.Who.Zone || !slices.Equal(got.Who.IDs, want.Who.IDs) {
			t.Errorf("%s is %+v, want %+v", text, got, want)
		}
	}
}

// Bad input gets an error that names it and says what is wanted.
func TestBadEventsAreExplained(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                   "want TIME:KIND",
		"add:4":              "is not a time",
		"soon:add:4":         "is not a time",
		"-5s:add:4":          "is not a time",
		"30s:explode:4":      "is not one of add, drain",
		"30s:add":            "want TIME:add:COUNT",
		"30s:add:i4":         "no number of instances",
		"30s:add:0":          "0 instances",
		"30s:add:99999999":   "no number of instances",
		"30s:add:1:2:3":      "3 arguments",
		"30s:kill:":          "names nobody",
		"30s:kill:i1,,i2":    "names nobody",
		"30s:kill:i1,i1":     "names i1 twice",
		"30s:slow:i1":        "want TIME:slow:WHO:FACTOR",
		"30s:slow:i1:0":      "no factor from 0.01",
		"30s:slow:i1:fast":   "no factor",
		"30s:slow:i1:NaN":    "no factor",
		"30s:slow:i1:1e9":    "no factor",
		"30s:weight:i1:-1":   "is no weight",
		"30s:weight:i1:50.7": "want a whole number",
		"30s:weight:i1:NaN":  "is no weight",
		"30s:add:1:50.7":     "want a whole number",
		"30s:hot:NaN%:50%":   "no percentage",
		"30s:hot:1%:NaN%":    "no percentage",
		"30s:hot:1:50%":      "no percentage",
		"30s:hot:1%:100%":    "at most 99%",
		"30s:hot:0%:50%":     "no percentage",
	} {
		if _, err := ParseEvent(text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v, want an error that says %q", text, err, want)
		}
	}
}

func TestEventsThatFitNobodyAreExplained(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		events []string
		want   string
	}{
		{[]string{"10s:kill:i99"}, "there is no instance i99"},
		{[]string{"10s:kill:i1", "20s:drain:i1"}, "instance i1 is gone"},
		{[]string{"10s:kill:3"}, "nobody would be left"},
		{[]string{"10s:drain:zone=z"}, "0 instances fit, of 3"},
		{[]string{"10s:recover:1"}, "0 instances fit, of 3"},
		{[]string{"10m:add:1"}, "up to the duration"},
		{[]string{"60s:add:1"}, "up to the duration"},
		{[]string{"59500ms:add:1"}, "whole seconds"},
		{[]string{"10s:add:1", "20s:kill:i4"}, ""},
		{[]string{"20s:add:1", "10s:kill:i4"}, "no instance i4 then"},
	} {
		sc := Default()
		sc.Instances, sc.Sessions, sc.Warmup, sc.Duration = 3, 100, 0, time.Minute
		_, err := Run(t.Context(), with(t, sc, tt.events...), nil, func(string, int, int) {})
		if tt.want == "" && err == nil {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want an error that says %q", tt.events, err, tt.want)
		}
	}
}

func TestScenarioFile(t *testing.T) {
	t.Parallel()
	f, err := ReadFile(strings.NewReader(`
sessions: 1e5
instances: 12
zones: 3
duration: 20m
policy: {points: 256, bound: 140, max_age: 5m, ramp: 2m}
worker: {max_running: 32}
pace: 50
workers: passive
in_flight_grace: 5s
events:
  - 2m:add:4
  - 5m:kill:zone=b
`))
	if err != nil {
		t.Fatal(err)
	}
	sc := Default()
	if err := f.Apply(&sc); err != nil {
		t.Fatal(err)
	}
	if sc.Sessions != 100_000 || sc.Instances != 12 || sc.Zones != 3 || sc.Duration != 20*time.Minute || sc.Policy.Ring.Points != 256 ||
		sc.Policy.Bound.Percent != 140 || sc.Policy.MaxAge != 5*time.Minute || sc.Policy.Ramp.Over != 2*time.Minute ||
		sc.Worker.MaxRunning != 32 || sc.Move.SessionsPerS != 50 || sc.Move.Workers != Passive || sc.Move.Grace != 5*time.Second || len(sc.Events) != 2 {
		t.Errorf("read %+v", sc)
	}
	if sc.Policy.MinStick != time.Minute || sc.Policy.Bound.Noise != 3 {
		t.Error("what the file does not say lost its default")
	}
	for doc, want := range map[string]string{
		"instnces: 3":                      "line 1",
		"sessions: lots":                   "no whole number",
		"duration: soon":                   "line 1",
		"events: [10s:foo:1]":              "is not one of",
		"policy: {points: a}":              "line 1",
		"policy: 5":                        "line 1",
		"policy: {pionts: 5}":              `policy: line 1: unknown member "pionts"`,
		"policy: {points: 5, shed: true}":  `line 1: policy: "shed" cannot stand beside the short name "points"`,
		"policy: {bound: 125, ramp: {}}":   `"ramp" cannot stand beside the short name "bound"`,
		"policy: {bound: {}, bound: 125}":  "already defined",
		"policy:\n  ramp:\n    steps: 0":   "policy: line 3: ramp.steps: expected number >= 1",
		"policy: {ramp: {over_ms: ~}}":     "policy: line 1: ramp.over_ms has no value",
		"sessions: 1\nzones: x":            "line 2",
		"":                                 "says nothing",
		"# nothing":                        "says nothing",
		"sessions: 5\n---\nsessions: 6":    "one document",
		"sessions: 5\n---\n":               "one document",
		"sessions: 5\nsessions: 6":         "already defined",
		"policy: {points: 256, points: 5}": "already defined",
		"sessions: 5\nzones:":              "line 2: a member without a value",
		"policy: {points: ~}":              "line 1: a member without a value",
		"policy: {points: 2.5}":            "line 1: \"2.5\" is no whole number",
		"policy: {max_age: 20}":            "line 1",
		"events: [10s:weight:i1:50.7]":     "whole number",
		strings.Repeat("#\n", 1<<19) + "x": "longer than",
	} {
		f, err := ReadFile(strings.NewReader(doc))
		if err == nil {
			err = f.Apply(&sc)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want an error that says %q", doc, err, want)
		}
	}
}

// A policy may be the document that the API takes, and replaces the whole of what was;
// what it does not say has the API's defaults.
func TestScenarioFileWithThePolicyOfTheAPI(t *testing.T) {
	t.Parallel()
	want := Default()
	want.Affinity = time.Minute
	p := &want.Policy
	p.Ring.Points, p.Bound.Percent, p.Bound.Gap, p.MaxAge = 256, 140, 0, 5*time.Minute
	p.Breaker.Failures, p.Breaker.Open = 0, 3*time.Second
	p.Ramp.Over, p.Ramp.StartPercent, p.Ramp.Steps, p.Ramp.MaxChurn = 2*time.Minute, 30, 4, 0
	for _, policy := range []string{
		`{"affinity_idle_ms":60000,"max_age_ms":300000,"bound":{"percent":140,"gap":0},"ring":{"points":256},` +
			`"breaker":{"failures":0,"open_ms":3000},"ramp":{"over_ms":120000,"start_percent":30,"steps":4,"max_churn_percent":0},"models":["m"]}`,
		"\n  affinity_idle_ms: 60000\n  max_age_ms: 300000\n  bound: {percent: 140, gap: 0}\n  ring: {points: 256}\n" +
			"  breaker: {failures: 0, open_ms: 3000}\n  ramp: {over_ms: 120000, start_percent: 30, steps: 4, max_churn_percent: 0}",
	} {
		f, err := ReadFile(strings.NewReader("policy: " + policy))
		if err != nil {
			t.Fatal(err)
		}
		sc := Default()
		sc.Policy.MinStick = time.Hour // of a live fleet, say
		if err := f.Apply(&sc); err != nil {
			t.Fatal(err)
		}
		if sc.Policy != want.Policy || sc.Affinity != want.Affinity {
			t.Errorf("%s: read %+v, want %+v", policy, sc.Policy, want.Policy)
		}
	}
}

// What no run can be made of is refused before the first is played.
func TestScenariosThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*Scenario){
		"ring points 0":       func(s *Scenario) { s.Policy.Ring.Points = 0 },
		"ring slots 0":        func(s *Scenario) { s.Policy.Ring.Slots = 0 },
		"zipf NaN":            func(s *Scenario) { s.Zipf = math.NaN() },
		"NaN tokens":          func(s *Scenario) { s.Worker.PrefillTPS = math.NaN() },
		"+Inf of an answer":   func(s *Scenario) { s.Worker.DecodeTPS = math.Inf(1) },
		"pace of drains NaN":  func(s *Scenario) { s.Move.SessionsPerS = math.NaN() },
		`workers "lazy"`:      func(s *Scenario) { s.Move.Workers = "lazy" },
		"in-flight grace -1s": func(s *Scenario) { s.Move.Grace = -time.Second },
		"3 weights for 2":     func(s *Scenario) { s.Instances, s.Weights = 2, []int{1, 2, 3} },
		"every weight is 0":   func(s *Scenario) { s.Weights = []int{0, 0} },
		"more than 10000":     func(s *Scenario) { s.Events = []Event{{Kind: Add, Who: Who{Count: 9999}, text: "0s:add:9999"}} },
		"1001 events":         func(s *Scenario) { s.Events = make([]Event, 1001) },
		"whole seconds":       func(s *Scenario) { s.Warmup = 1500 * time.Millisecond },
		"max running":         func(s *Scenario) { s.Worker.MaxRunning = math.MaxInt },
	} {
		sc := Default()
		spoil(&sc)
		if err := sc.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error that says %q", err, want)
		}
	}
}

// A second hot set has its own part of the load, also in a pool that was just
// started and where the sets overlap.
func TestHotSetsBringTheirPart(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Warmup, sc.Worker.MaxRunning = 0, 10_000
	before := mustRun(t, sc).Turns
	once := mustRun(t, with(t, sc, "40s:hot:100%:50%")).Turns
	twice := mustRun(t, with(t, sc, "40s:hot:100%:50%", "41s:hot:100%:50%")).Turns
	if once < before*12/10 {
		t.Errorf("%d turns, and %d with a hot set that brings half of the load", before, once)
	}
	if twice > once*13/10 {
		t.Errorf("%d turns with a hot set, and %d where it is made hot again", once, twice)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"7": 7, "1e6": 1_000_000, "1_000": 1000, "2.5e3": 2500} {
		var c Count
		if err := c.UnmarshalText([]byte(text)); err != nil || int(c) != want {
			t.Errorf("%s is %d, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "1.5", "1e6 x", "NaN", "1e300"} {
		var c Count
		if err := c.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %d", text, c)
		}
	}
}

// The queue yields what a sorted list would.
func TestQueueYieldsInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue(-5*time.Second, 5*time.Second)
		n := int32(0)
		add := func(from time.Duration) {
			for range rapid.IntRange(0, 5).Draw(t, "n") {
				n++
				at := from + time.Duration(rapid.IntRange(0, 12_000).Draw(t, "ms"))*time.Millisecond
				q.push(moment{at: at, session: n})
			}
		}
		add(-5 * time.Second)
		last := time.Duration(-1 << 62)
		for second := range 10 {
			q.open(second)
			for m, ok := q.pop(); ok; m, ok = q.pop() {
				if m.at < last || m.at >= time.Duration(second-4)*time.Second {
					t.Fatalf("%v after %v in second %d", m.at, last, second)
				}
				if last = m.at; n < 60 {
					add(m.at)
				}
			}
		}
		gone := q.take(func(*moment) bool { return true })
		for _, m := range gone {
			if m.at < 5*time.Second {
				t.Fatalf("%v was left behind", m.at)
			}
		}
	})
}
