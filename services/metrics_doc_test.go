package services_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// meter is a metric as docs/metrics.md tells of it: a row has name, type, labels,
// meaning and alert.
type meter struct{ kind, labels, help, alert string }

// tableOfMetrics reads docs/metrics.md.
func tableOfMetrics(t testing.TB) map[string]meter {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]meter{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(berth_[a-z_]+)` \\| (.*) \\| (.*) \\| (.*) \\| (.*) \\|$").FindAllStringSubmatch(string(text), -1) {
		if _, twice := table[row[1]]; twice {
			t.Errorf("docs/metrics.md has %s twice", row[1])
		}
		table[row[1]] = meter{kind: row[2], labels: row[3], help: row[4], alert: row[5]}
	}
	return table
}

// TestTheTableOfMetricsIsWhatThereIs holds docs/metrics.md against what a server can
// show: every metric of ours has its row, with its labels and its help as the meaning,
// and every row its metric.
func TestTheTableOfMetricsIsWhatThereIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.open("s", b.worker("i1"), b.worker("i2"))
	table, seen := tableOfMetrics(t), map[string]bool{}
	form := regexp.MustCompile(`^Desc\{fqName: "(berth_[a-z_]+)", help: ("(?:[^"\\]|\\.)*"), .*constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	for _, d := range b.server.Described() {
		m := form.FindStringSubmatch(d)
		if m == nil {
			if strings.Contains(d, "berth_") {
				t.Errorf("cannot read %s", d)
			}
			continue // Go's own
		}
		help, err := strconv.Unquote(m[2])
		if err != nil {
			t.Fatal(err)
		}
		row, listed := table[m[1]]
		seen[m[1]] = true
		if want := namesOfLabels(m[3], m[4]); !listed || row.labels != want || row.help != help {
			t.Errorf("docs/metrics.md lacks\n| `%s` | %s | %s | %s | |\nand has\n%q", m[1], row.kind, want, help, row)
		}
	}
	for name, row := range table {
		if !seen[name] {
			t.Errorf("docs/metrics.md has %s, which no server shows", name)
		}
		if row.alert == "" {
			t.Errorf("docs/metrics.md does not say what to alert on for %s", name)
		}
	}
	b.typesAreAsInTheTable()
}

// namesOfLabels joins the names of labels with a value and of those without.
func namesOfLabels(constant, variable string) string {
	var names []string
	for _, m := range regexp.MustCompile(`([a-z_]+)=`).FindAllStringSubmatch(constant, -1) {
		names = append(names, m[1])
	}
	for name := range strings.SplitSeq(variable, ",") {
		if name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// typesAreAsInTheTable holds the types of the metrics that the server shows now
// against the table.
func (b *bundle) typesAreAsInTheTable() {
	b.t.Helper()
	table := tableOfMetrics(b.t)
	for line := range strings.Lines(string(b.call("GET", "/metrics", "").want(200).body)) {
		words := strings.Fields(line)
		if len(words) == 4 && words[1] == "TYPE" && strings.HasPrefix(words[2], "berth_") && table[words[2]].kind != words[3] {
			b.t.Errorf("%s is a %s, in docs/metrics.md a %q", words[2], words[3], table[words[2]].kind)
		}
	}
}
