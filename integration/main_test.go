// Package integration_test drives the real program: `berth serve` processes that
// are killed, paused and restarted, on the embedded store and on Redis, beside
// each other and in containers, and the commands of the operator and the demo.
//
// A test here asks for nothing that a user could not ask for: it speaks HTTP,
// package client or the command line. What a process logs is kept, shown when a
// test fails, and searched for panics and data races when the process has ended.
//
// Beside that lives the test that holds the direction of imports (imports_test.go).
package integration_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"berth/integration/redistest"
)

// parallel is how many tests run at once unless -parallel says otherwise: most of
// their time they wait for leases, restarts and heartbeats.
const parallel = 8

func TestMain(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	redistest.Main(cleanly{m})
}

// cleanly removes the built program when the tests have run.
type cleanly struct{ m *testing.M }

func (c cleanly) Run() int {
	code := c.m.Run()
	if err := os.RemoveAll(buildDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// buildDir holds the program, once it was built; "" before.
var buildDir string

// build compiles the program once for all tests of this binary, and with the race
// detector if they have it. A build that looked at version control would get in
// the way of whoever commits meanwhile.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "berth-e2e-")
	if err != nil {
		return "", err
	}
	buildDir = dir
	path := filepath.Join(dir, "berth")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	args := []string{"build", "-buildvcs=false", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "berth/cmd/berth")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
})

// program is the path of the built program.
func program(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// ran is what a command of the program did.
type ran struct {
	stdout, stderr string
	code           int
}

// run runs one command of the program to its end.
func run(t testing.TB, args ...string) ran {
	t.Helper()
	return runIn(t.Context(), t, t.TempDir(), args...)
}

// runIn runs it in a directory of the caller's.
func runIn(ctx context.Context, t testing.TB, dir string, args ...string) ran {
	t.Helper()
	cmd := exec.CommandContext(ctx, program(t), args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, cleanEnv(), &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("berth %v: %v", args, err)
	}
	return ran{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}
