package simulate

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"berth/routing"
	"berth/services"
)

// section is what docs/scenarios.md says below a heading; the whole of it below "".
func section(t testing.TB, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "scenarios.md"))
	if err != nil {
		t.Fatal(err)
	}
	if heading == "" {
		return string(text)
	}
	_, below, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/scenarios.md has no heading %q", heading)
	}
	below, _, _ = strings.Cut(below, "\n## ")
	return below
}

// keysOf are the names that a struct has in a file.
func keysOf(of reflect.Type, tag string) (keys []string) {
	for i := range of.NumField() {
		if name, _, _ := strings.Cut(of.Field(i).Tag.Get(tag), ","); name != "" {
			keys = append(keys, name)
		}
	}
	return keys
}

// docs/scenarios.md has a row for every key of a scenario file and no other, names every
// member of the document that a policy may be, and every kind of event.
func TestTheDocsHaveEveryKey(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")
	for heading, of := range map[string]reflect.Type{
		"Keys": reflect.TypeFor[File](), "Keys below `worker`": reflect.TypeFor[fileWorker](), "Keys below `policy`": reflect.TypeFor[filePolicy](),
	} {
		listed := map[string]bool{}
		for _, m := range row.FindAllStringSubmatch(section(t, heading), -1) {
			listed[m[1]] = true
		}
		keys := keysOf(of, "yaml")
		if len(keys) < 4 {
			t.Fatalf("%v has the keys %v", of, keys)
		}
		for _, key := range keys {
			if !listed[key] {
				t.Errorf("docs/scenarios.md lacks a row for %s below %q", key, heading)
			}
			delete(listed, key)
		}
		for key := range listed {
			t.Errorf("docs/scenarios.md has a row for %s below %q, which is no key", key, heading)
		}
	}
	for _, member := range keysOf(reflect.TypeFor[services.PoolPolicy](), "json") {
		if !strings.Contains(section(t, "Keys below `policy`"), "`"+member+"`") {
			t.Errorf("docs/scenarios.md does not say whether a run follows %s", member)
		}
	}
	for kind, form := range grammar {
		if !strings.Contains(section(t, "Events"), ":"+form+"`") {
			t.Errorf("docs/scenarios.md does not tell of %s: %s", kind, form)
		}
	}
}

// The limits and defaults that the docs print are those in force.
func TestTheDocsHaveTheDefaults(t *testing.T) {
	t.Parallel()
	d := Default()
	slots := func(n int) bool { return routing.RingOptions{Slots: n}.Validate() == nil }
	for _, tt := range []struct {
		row string
		ok  bool
	}{
		{"| 100; 8 for a trace | 1 to 10,000 |", d.Instances == 100 && mostInstances == 10_000},
		{"| a trace is played | 1 to 20,000,000 |", mostSessions == 20_000_000},
		{"| 5m; none for a trace |", d.Warmup == 5*time.Minute},
		{"| 15m; the trace's |", d.Duration == 15*time.Minute},
		{"| 200 | above 0, up to 1e9 |", d.Move.SessionsPerS == 200 && highest == 1e9},
		{"| 30s | 0s to a week |", d.Move.Grace == 30*time.Second && longest == 7*24*time.Hour},
		{"| 8000 | above 0", d.Worker.PrefillTPS == 8000},
		{"| 35 | above 0", d.Worker.DecodeTPS == 35},
		{"| 16,000 | 1 to 1e9 |", d.Worker.CacheBlocks == 16_000},
		{"| 512 | 1 to 16,384 |", d.Policy.Ring.Points == 512},
		{"| 65,536 | a power of two from 256 to 1,048,576 |", d.Policy.Ring.Slots == 65_536 && slots(256) && slots(1<<20) && !slots(128) && !slots(1<<21)},
		{"| 0 to 10,000 each", routing.MaxWeight == 10_000},
		{"| 125 | 0, or 100 to 10,000", d.Policy.Bound.Percent == 125 && noBound == 10_000},
		{"| 2 | 0 to 1,000,000 |", d.Policy.Bound.Gap == 2},
		{"| 3 | 0 to 1000 |", d.Policy.Bound.Noise == 3},
		{"| 1m | 0s and more |", d.Policy.MinStick == time.Minute},
		{"| 30m | above 0s |", d.Affinity == 30*time.Minute},
		{"| 1m | 0s to 24h |", d.Policy.Ramp.Over == time.Minute},
		{"| 10 | 0 to 100 |", d.Policy.Ramp.MaxChurn == 10},
		{"at most 1000 |", mostEvents == 1000},
	} {
		if !strings.Contains(section(t, ""), tt.row) || !tt.ok {
			t.Errorf("docs/scenarios.md and this program disagree on %q", tt.row)
		}
	}
}

// The scenarios that docs and help show can be played.
func TestTheScenariosInTheDocsPlay(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(section(t, ""), -1)
	if len(blocks) < 2 || blocks[0][1] != Example {
		t.Fatalf("docs/scenarios.md has %d scenarios, the first of which is not that of the help", len(blocks))
	}
	for _, block := range blocks {
		f, err := ReadFile(strings.NewReader(block[1]))
		if err != nil {
			t.Fatalf("%v:\n%s", err, block[1])
		}
		sc := Default()
		if err := f.Apply(&sc); err != nil {
			t.Fatalf("%v:\n%s", err, block[1])
		}
		sc.Sessions, sc.Warmup = 500, 10*time.Second // as many would take long
		r, err := Run(t.Context(), sc, nil, func(string, int, int) {})
		if err != nil || len(r.Events) != len(f.Events) || r.Turns == 0 {
			t.Errorf("%v: %d turns, %d events of\n%s", err, r.Turns, len(r.Events), block[1])
		}
	}
}
