package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"berth/integration/redistest"
)

// TestEveryCommandExplainsItself asks each command for its help.
func TestEveryCommandExplainsItself(t *testing.T) {
	t.Parallel()
	commands := []string{
		"", "serve", "demo", "route", "instances", "drain", "rebalance", "jobs", "sim-worker", "bench", "bench route", "bench append", "bench drain", "bench heartbeat",
		"jobs watch", "jobs pause", "jobs resume", "jobs cancel",
	}
	for _, command := range commands {
		got := run(t, append(strings.Fields(command), "-h")...)
		usage := strings.TrimSpace("Usage: berth " + command)
		if got.code != 0 || !strings.HasPrefix(got.stdout, usage) || !strings.Contains(got.stdout, "Flags:") || got.stderr != "" {
			t.Errorf("berth %s -h: code %d\n%s%s", command, got.code, got.stdout, got.stderr)
		}
	}
	top := run(t, "-h").stdout
	for _, command := range commands[1:9] {
		if !strings.Contains(top, "\n  "+command+" ") {
			t.Errorf("berth -h does not name %s:\n%s", command, top)
		}
	}
	if got := run(t, "--version"); got.code != 0 || strings.TrimSpace(got.stdout) == "" {
		t.Errorf("berth --version: code %d, prints %q", got.code, got.stdout)
	}
}

// TestMistakesOnTheCommandLineAreNamed holds that a command line that cannot be
// meant ends with a line that says what is wrong and where to look.
func TestMistakesOnTheCommandLineAreNamed(t *testing.T) {
	t.Parallel()
	tests := []struct{ line, says string }{
		{"", `expected one of "serve"`},
		{"drian", `unexpected argument drian, did you mean "drain"?`},
		{"serve --lisen 127.0.0.1:0", "--lisen"},
		{"serve --cache-ttl soon", "--cache-ttl"},
		{"serve --log-format xml", "--log-format"},
		{"serve here", "here"},
		{"demo --requests many", "--requests"},
		{"demo --trace no-such-file", "no-such-file"},
		{"route", "<session>"},
		{"drain", "<instances>"},
		{"drain i1 --mode away", "--mode"},
		{"jobs --nope", "--nope"},
		{"sim-worker", "--id"},
		{"bench", `expected one of "route"`},
		{"bench append", "--store"},
		{"bench heartbeat --rate often", "--rate"},
	}
	for _, tt := range tests {
		got := run(t, strings.Fields(tt.line)...)
		if got.code == 0 || got.stdout != "" || !strings.Contains(got.stderr, tt.says) || !strings.HasSuffix(got.stderr, "see berth -h\n") {
			t.Errorf("berth %s: code %d, prints %q and %q; want it to say %q and where help is", tt.line, got.code, got.stdout, got.stderr, tt.says)
		}
	}
}

// TestOperatorsCommands asks a running berth through every command of the
// operator, for people and for scripts.
func TestOperatorsCommands(t *testing.T) {
	t.Parallel()
	server := serve(t, timing...)
	c := hire(t, 2, server.url)
	ctx := t.Context()
	h, err := server.api().route(ctx, "chat-1")
	must(t, err)
	_, err = server.api().append(ctx, "chat-1", newWrite(c.credentials(h.Instance), h.Handle, "op-1"))
	must(t, err)
	other := map[string]string{"i1": "i2", "i2": "i1"}[h.Instance]
	ask := func(args ...string) ran { return run(t, append(args, "--berth", server.url)...) }

	var where hint
	readJSON(t, ask("route", "chat-1", "--json"), &where)
	if where.Instance != h.Instance || where.Version != 1 || where.Reason != "bound" {
		t.Errorf("berth route says %+v", where)
	}
	var excluded hint
	readJSON(t, ask("route", "chat-1", "--json", "--exclude", h.Instance+":busy", "--pool", "default", "--fallbacks", "1"), &excluded)
	if excluded.Instance != other {
		t.Errorf("berth route --exclude %s says %s", h.Instance, excluded.Instance)
	}
	var fleet struct{ Instances []struct{ ID, State string } }
	readJSON(t, ask("instances", "--json"), &fleet)
	if len(fleet.Instances) != 2 || fleet.Instances[0].State != "ready" {
		t.Errorf("berth instances says %+v", fleet)
	}
	var done job
	readJSON(t, ask("drain", h.Instance, "--json", "--grace", "1s"), &done)
	if done.State != "succeeded" || done.Progress.Moved != 1 {
		t.Errorf("berth drain says %+v", done)
	}
	var jobs struct{ Jobs []job }
	readJSON(t, ask("jobs", "--json"), &jobs)
	if len(jobs.Jobs) != 1 || jobs.Jobs[0].ID != done.ID {
		t.Errorf("berth jobs says %+v", jobs)
	}

	for _, tt := range []struct {
		says string
		args []string
	}{
		{other + "  10.0.0." + other[1:] + ":8000  (bound)", []string{"route", "chat-1"}},
		{"drained", []string{"instances"}},
		{"succeeded", []string{"jobs"}},
	} {
		if got := ask(tt.args...); got.code != 0 || !strings.Contains(got.stdout, tt.says) {
			t.Errorf("berth %v: code %d, prints %q%s; want it to say %q", tt.args, got.code, got.stdout, got.stderr, tt.says)
		}
	}
}

// readJSON reads what a command printed for scripts: one document, and a success.
func readJSON(t *testing.T, got ran, out any) {
	t.Helper()
	if got.code != 0 {
		t.Fatalf("code %d: %s", got.code, got.stderr)
	}
	if err := json.Unmarshal([]byte(got.stdout), out); err != nil {
		t.Fatalf("%v in %q", err, got.stdout)
	}
}

// TestExitCodesOfDrain holds what scripts branch on: 0 is for safe to stop alone.
func TestExitCodesOfDrain(t *testing.T) {
	t.Parallel()
	server := serve(t, timing...)
	at := server.api()
	ctx := t.Context()
	alone, err := at.enlist(ctx, "alone", "one", "10.0.0.1:8000")
	must(t, err)
	busy, err := at.enlist(ctx, "busy", "two", "10.0.0.2:8000")
	must(t, err)
	_, err = at.enlist(ctx, "idle", "two", "10.0.0.3:8000")
	must(t, err)
	h, err := at.route(ctx, "in-flight", "pool=two", "exclude=idle:busy")
	must(t, err)
	must(t, at.do(ctx, http.MethodPost, "/v1/sessions/in-flight/turns?pool=two", newWrite(busy, h.Handle, "op-1"), nil))

	drain := func(args ...string) ran {
		return run(t, append([]string{"drain", "--berth", server.url}, args...)...)
	}
	for _, tt := range []struct {
		name string
		got  ran
		code int
		says string
	}{
		{"nobody else could take the sessions", drain(alone.instance), 4, "no_target"},
		{"a request is running at the deadline", drain(busy.instance, "--deadline", "5s", "--grace", "1m"), 3, "left on busy: in-flight (in_flight)"},
		{"the instance is not there", drain("ghost"), 1, "unknown_instance"},
		{"the request makes no sense", drain(busy.instance, busy.instance), 1, "named twice"},
		{"nobody answers", run(t, "drain", "i1", "--berth", "http://127.0.0.1:1"), 1, "http://127.0.0.1:1"},
	} {
		if tt.got.code != tt.code || !strings.Contains(tt.got.stdout+tt.got.stderr, tt.says) {
			t.Errorf("%s: code %d, want %d and %q; prints\n%s%s", tt.name, tt.got.code, tt.code, tt.says, tt.got.stdout, tt.got.stderr)
		}
	}

	cancelled := make(chan ran, 1)
	go func() { cancelled <- drain(busy.instance, "--grace", "1m") }()
	eventually(t, "the drain is cancelled", func() error {
		var list struct{ Jobs []job }
		if err := at.do(ctx, http.MethodGet, "/v1/jobs", nil, &list); err != nil {
			return err
		}
		for _, j := range list.Jobs {
			if !j.ended() {
				return at.do(ctx, http.MethodPost, "/v1/jobs/"+j.ID+"/cancel", nil, nil)
			}
		}
		return fmt.Errorf("none is under way")
	})
	select {
	case got := <-cancelled:
		if got.code != 5 || !strings.Contains(got.stdout, "cancelled") {
			t.Errorf("a cancelled drain: code %d, want 5; prints\n%s%s", got.code, got.stdout, got.stderr)
		}
	case <-time.After(patience):
		t.Error("berth drain goes on waiting for a job that was cancelled")
	}
}

// TestBenchmarksPrintFigures runs the benchmarks for a moment: their figures are
// of no worth then, their form is.
func TestBenchmarksPrintFigures(t *testing.T) {
	t.Parallel()
	short := []string{"--json", "--rounds", "1", "--round", "50ms", "--connections", "2"}
	check := func(t *testing.T, got ran, names ...string) {
		t.Helper()
		figures := map[string]any{}
		readJSON(t, got, &figures)
		for _, name := range names {
			if v, ok := figures[name].(float64); !ok || v <= 0 {
				t.Errorf("%s is %v in %s", name, figures[name], got.stdout)
			}
		}
	}
	t.Run("route", func(t *testing.T) {
		t.Parallel()
		check(t, run(t, append([]string{"bench", "route", "--sessions", "50", "--instances", "4"}, short...)...), "ratio", "berth_rps", "bare_rps", "p50_us", "p99_us")
	})
	t.Run("append", func(t *testing.T) {
		t.Parallel()
		redis := redistest.Standalone(t)
		check(t, run(t, append([]string{"bench", "append", "--store", redis.URL}, short...)...), "ratio", "berth_per_s", "bare_per_s", "p50_us", "p99_us")
		if n := redis.Client(t).DBSize(t.Context()).Val(); n > 0 {
			t.Errorf("the benchmark left %d keys behind", n)
		}
	})
	t.Run("heartbeat", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS != "linux" {
			t.Skip("not tested outside Linux: the CPU time of another process")
		}
		line := []string{"bench", "heartbeat", "--json", "--instances", "20", "--rate", "20", "--warmup", "100ms", "--for", "1s"}
		figures := []string{"core_share", "bare_share", "us_per_beat", "bare_us_per_beat", "beats_per_s", "p50_ms", "p99_ms"}
		check(t, run(t, line...), figures...)
		redis := redistest.Start(t)
		check(t, run(t, append(line, "--store", redis.URL)...), figures...)
		if n := redis.Client(t).DBSize(t.Context()).Val(); n > 0 {
			t.Errorf("the benchmark left %d keys behind", n)
		}
	})
}
