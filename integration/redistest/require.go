package redistest

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// What BERTH_TEST_REQUIRE may name.
const (
	needRedis  = "redis"
	needDocker = "docker"
)

// requirements is what BERTH_TEST_REQUIRE says must not be missing.
type requirements map[string]bool

// parseRequirements reads a comma list. A word it does not know is an error: a
// misspelled requirement would let CI skip what it means to run.
func parseRequirements(list string) (requirements, error) {
	req := requirements{}
	for word := range strings.SplitSeq(list, ",") {
		switch word = strings.TrimSpace(word); word {
		case "":
		case needRedis, needDocker:
			req[word] = true
		default:
			return nil, fmt.Errorf("BERTH_TEST_REQUIRE names %q; it knows %s and %s", word, needRedis, needDocker)
		}
	}
	return req, nil
}

func mustRequirements(t testing.TB) requirements {
	t.Helper()
	req, err := parseRequirements(os.Getenv("BERTH_TEST_REQUIRE"))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// Lacks ends a test because the machine lacks a tool for it: a failure where
// BERTH_TEST_REQUIRE names anything, since nothing is to be left out there, else a skip
// that is told.
func Lacks(t testing.TB, tool string, why error) {
	t.Helper()
	if len(mustRequirements(t)) > 0 {
		t.Fatalf("BERTH_TEST_REQUIRE is set, and %s is missing: %v", tool, why)
	}
	missing(t, tool, why)
}

var announced sync.Map // line → struct{}{}: what this binary has already said it does not test

// missing ends the test because the machine lacks need: a failure where it is
// required, else a skip. `go test` hides the skips of packages that pass, so each
// reason is also told, once, to whoever ran it.
func missing(t testing.TB, need string, why error) {
	t.Helper()
	if mustRequirements(t)[need] {
		t.Fatalf("BERTH_TEST_REQUIRE names %s: %v", need, why)
	}
	line := fmt.Sprintf("not tested without %s: %v", need, why)
	if _, said := announced.LoadOrStore(line, struct{}{}); !said && !testing.Verbose() {
		tellGoCommand(testPackage() + ": " + line)
	}
	t.Skip(line)
}
