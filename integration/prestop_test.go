package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPreStopHookTellsWhatIsLeft answers the hook as `berth drain` does when it exits 3,
// for each of its reasons.
func TestPreStopHookTellsWhatIsLeft(t *testing.T) {
	t.Parallel()
	needTools(t, "the preStop hook", "sh", "cat")
	for _, tt := range []struct {
		name, says, stderr string
		calls              string
	}{
		{"sessions are left", "drain j1: partial, 3 of 4 sessions moved off i1\nleft on i1: s1 (in_flight)", "time is up, some sessions have not moved", "drain i1\n"},
		{"requests may be", "drain j1: partial, 4 of 4 sessions moved off i1\ni1 is not safe to stop: unknown_in_flight", "the sessions have moved, but requests may still run here", "drain i1\n"},
		{
			"another boot", "drain j1: succeeded, 4 of 4 sessions moved off i1\ni1 is not safe to stop: what was drained is gone, and it was started again under the same id: the new boot is ready",
			"another boot of the worker serves", "drain i1\ndrain i1\n",
		},
	} {
		dir := t.TempDir()
		calls := filepath.Join(dir, "calls")
		script := fmt.Sprintf("#!/bin/sh\necho \"$@\" >> %s\ncat <<'END'\n%s\nEND\nexit 3\n", calls, tt.says)
		must(t, os.WriteFile(filepath.Join(dir, "berth"), []byte(script), 0o700)) //nolint:gosec // it is run
		cmd := exec.CommandContext(t.Context(), "sh", filepath.Join("..", "deploy", "kubernetes", "prestop.sh"))
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Env = append(cleanEnv(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "BERTH_INSTANCE=i1")
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatalf("the hook did not run: %v", err)
		}
		called, err := os.ReadFile(calls)
		must(t, err)
		if code := cmd.ProcessState.ExitCode(); code != 3 || string(called) != tt.calls || !strings.Contains(stderr.String(), tt.stderr) || !strings.Contains(stdout.String(), tt.says) {
			t.Errorf("%s: code %d, calls %q\n%s%s", tt.name, code, called, stdout.String(), stderr.String())
		}
	}
}

// TestPreStopHook runs the example's hook as Kubernetes would: it returns when the
// sessions have moved and the instance is safe to stop; on the last worker of a pool
// it leaves them stored, and belonging to nobody.
func TestPreStopHook(t *testing.T) {
	t.Parallel()
	needTools(t, "the preStop hook", "sh", "cat")
	server := serve(t, timing...)
	c := hire(t, 2, server.url)
	at := server.api()
	sessions := at.seat(t, c.credentials("i1"), "i2:busy", 8)
	hook := func(instance string, env ...string) ran {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", filepath.Join("..", "deploy", "kubernetes", "prestop.sh"))
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Env = append(cleanEnv(), "PATH="+filepath.Dir(program(t))+string(os.PathListSeparator)+os.Getenv("PATH"),
			"BERTH_URL="+server.url, "BERTH_INSTANCE="+instance, "BERTH_DRAIN_GRACE=0s")
		cmd.Env = append(cmd.Env, env...)
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatalf("the hook did not run: %v", err)
		}
		return ran{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	}
	if got := hook(""); got.code == 0 || !strings.Contains(got.stderr, "must name the instance") {
		t.Errorf("without an instance: code %d, %s", got.code, got.stderr)
	}
	if got := hook("i1", "BERTH_DRAIN_AVOID=rs=old"); got.code != 0 || !strings.Contains(got.stdout, "safe to stop") {
		t.Fatalf("code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	owners := func(want string) {
		t.Helper()
		for _, session := range sessions {
			var h struct {
				Owner *struct{ Instance string } `json:"owner"`
			}
			must(t, at.do(t.Context(), "GET", "/v1/sessions/"+session+"/history", nil, &h))
			if owner := fmt.Sprint(h.Owner != nil && h.Owner.Instance == "i2"); owner != want {
				t.Errorf("%s belongs to i2: %s, want %s", session, owner, want)
			}
			got, err := at.load(t.Context(), session)
			must(t, err)
			if got.Count != 1 {
				t.Errorf("%s has %d turns", session, got.Count)
			}
		}
	}
	owners("true")
	got := hook("i2")
	if got.code != 0 || !strings.Contains(got.stderr, "nobody is left to take the sessions") || !strings.Contains(got.stdout, "safe to stop") {
		t.Fatalf("the last worker: code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	owners("false")
	if got := hook("i9"); got.code != 1 || !strings.Contains(got.stderr, "unknown_instance") {
		t.Errorf("a stranger: code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
}
