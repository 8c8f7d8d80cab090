package integration_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeNamesFlagsThatExist holds the README's table of flags and variables
// against what berth serve says of itself.
func TestReadmeNamesFlagsThatExist(t *testing.T) {
	t.Parallel()
	help := run(t, "serve", "-h").stdout
	for _, name := range tableNames(t) {
		if !strings.Contains(help, name) {
			t.Errorf("README.md's table names %s, berth serve -h does not", name)
		}
	}
}

// tableNames are the flags and variables in the README's table of serve's flags.
func tableNames(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	must(t, err)
	row := regexp.MustCompile("(?m)^\\| `--.*$")
	name := regexp.MustCompile("`(--[a-z-]+|BERTH_[A-Z_]*[A-Z])`")
	var names []string
	for _, line := range row.FindAllString(string(text), -1) {
		for _, m := range name.FindAllStringSubmatch(line, -1) {
			names = append(names, m[1])
		}
	}
	if len(names) < 10 {
		t.Fatalf("README.md has only %q in its table of flags", names)
	}
	return names
}
