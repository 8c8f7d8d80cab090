package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"
)

// TestMain lets no variable of the machine's own speak in the tests.
func TestMain(m *testing.M) {
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "BERTH_") {
			if err := os.Unsetenv(name); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

// output collects what commands print, also from several goroutines.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func model(t *testing.T, cli *commands) *kong.Kong {
	t.Helper()
	k, err := newParser(cli, new(output), new(output), func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// eachFlag visits the flags of every command that configure something.
func eachFlag(node *kong.Node, visit func(command string, f *kong.Flag)) {
	for _, f := range node.Flags {
		if isSetting(f) {
			visit(node.FullPath(), f)
		}
	}
	for _, child := range node.Children {
		eachFlag(child, visit)
	}
}

// Every flag has one environment variable, which no flag of another meaning has.
func TestEveryFlagHasAVariable(t *testing.T) {
	t.Parallel()
	meaning := map[string]string{} // of a variable: the name of its flags
	of := map[string]string{}
	eachFlag(model(t, new(commands)).Model.Node, func(command string, f *kong.Flag) {
		if len(f.Envs) != 1 || !strings.HasPrefix(f.Envs[0], "BERTH_") || strings.ToUpper(f.Envs[0]) != f.Envs[0] {
			t.Errorf("%s --%s has the variables %q", command, f.Name, f.Envs)
			return
		}
		name := f.Envs[0]
		if other, taken := meaning[name]; taken && other != f.Name {
			t.Errorf("%s is --%s and --%s", name, other, f.Name)
		}
		meaning[name] = f.Name
		of[command+" --"+f.Name] = name
	})
	for flag, want := range map[string]string{
		"berth serve --listen":            "BERTH_LISTEN",
		"berth serve --store":             "BERTH_STORE",
		"berth serve --cache-ttl":         "BERTH_CACHE_TTL",
		"berth route --berth":             "BERTH_URL",
		"berth sim-worker --berth":        "BERTH_URL",
		"berth instances --json":          "BERTH_JSON",
		"berth bench route --json":        "BERTH_JSON",
		"berth demo --store":              "BERTH_DEMO_STORE",
		"berth demo --listen":             "BERTH_DEMO_LISTEN",
		"berth drain --at-deadline":       "BERTH_DRAIN_AT_DEADLINE",
		"berth sim-worker --listen":       "BERTH_SIM_WORKER_LISTEN",
		"berth bench route --connections": "BERTH_BENCH_ROUTE_CONNECTIONS",
		"berth bench append --store":      "BERTH_BENCH_APPEND_STORE",
		"berth bench heartbeat --store":   "BERTH_BENCH_HEARTBEAT_STORE",
		"berth bench drain --store":       "BERTH_BENCH_DRAIN_STORE",
	} {
		if of[flag] != want {
			t.Errorf("%s has the variable %q, want %s", flag, of[flag], want)
		}
	}
}

// A command's help names the variable of each of its flags.
func TestHelpNamesTheVariables(t *testing.T) {
	t.Parallel()
	helps := map[string]*output{}
	eachFlag(model(t, new(commands)).Model.Node, func(command string, f *kong.Flag) {
		if helps[command] == nil {
			helps[command] = new(output)
			args := append(strings.Fields(command)[1:], "-h")
			if err := run(t.Context(), args, helps[command], new(output)); err != nil {
				t.Fatalf("%s -h: %v", command, err)
			}
		}
		if !strings.Contains(helps[command].String(), "$"+f.Envs[0]+")") {
			t.Errorf("%s -h does not name %s", command, f.Envs[0])
		}
	})
	top := new(output)
	if err := run(t.Context(), []string{"-h"}, top, new(output)); err != nil || !strings.Contains(top.String(), "environment variable") {
		t.Errorf("berth -h says nothing of variables: %v\n%s", err, top)
	}
}

// The variables are read, and what stands on the command line wins over them.
func TestVariablesAreRead(t *testing.T) {
	t.Setenv("BERTH_DRAIN_DEADLINE", "7m")
	t.Setenv("BERTH_DRAIN_WAIT", "false")
	t.Setenv("BERTH_JSON", "true")
	t.Setenv("BERTH_SIM_WORKER_ID", "i7")
	t.Setenv("BERTH_URL", "http://one:1,http://two:2")
	var cli commands
	if _, err := model(t, &cli).Parse([]string{"drain", "i1", "--berth", "http://three:3"}); err != nil {
		t.Fatal(err)
	}
	if d := &cli.Drain; d.Deadline != 7*time.Minute || d.Wait || !d.JSON || d.URL != "http://three:3" || d.Grace != 30*time.Second {
		t.Errorf("drain is %+v", d)
	}
	if _, err := model(t, &cli).Parse([]string{"sim-worker"}); err != nil {
		t.Fatal(err)
	}
	if w := cli.SimWorker; w.ID != "i7" || len(w.Berth) != 2 {
		t.Errorf("sim-worker is %+v", w)
	}
	t.Setenv("BERTH_DRAIN_MODE", "away")
	if _, err := model(t, &cli).Parse([]string{"drain", "i1"}); err == nil || !strings.Contains(err.Error(), "--mode") {
		t.Errorf("a variable that makes no sense: %v", err)
	}
}

// A command line that cannot be meant is an error that says where help is, and
// prints nothing by itself.
func TestMistakesAreErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, says string }{
		{"", "expected one of"},
		{"drian", `did you mean "drain"`},
		{"nope", "there is no command nope;"},
		{"bench nope", "berth bench has no command nope;"},
		{"serve --store-max-bytes -5", `got "-5"; perhaps try --store-max-bytes="-5"`},
		{"serve --cache-ttl soon", "--cache-ttl"},
		{"serve --log-format xml", "--log-format"},
		{"serve --log-level loud", "--log-level"},
		{"route", "<session>"},
		{"drain", "<instances>"},
		{"drain i1 --mode away", "--mode"},
		{"drain i1 --at-deadline hope", "--at-deadline"},
		{"instances i1", "i1"},
		{"demo --trace no-such-file", "no-such-file"},
		{"sim-worker --id i1", "--berth"},
		{"bench", "expected one of"},
	} {
		out, notes := new(output), new(output)
		err := run(t.Context(), strings.Fields(tt.line), out, notes)
		if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.HasSuffix(err.Error(), "see berth -h") {
			t.Errorf("berth %s: %v, want it to say %q and where help is", tt.line, err, tt.says)
		}
		if out.String() != "" {
			t.Errorf("berth %s prints %q", tt.line, out)
		}
	}
}

func TestHelpAndVersionAreNoErrors(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-h", "--help", "--version"} {
		out := new(output)
		if err := run(t.Context(), []string{flag}, out, new(output)); err != nil || strings.TrimSpace(out.String()) == "" {
			t.Errorf("berth %s: %v, prints %q", flag, err, out)
		}
	}
	if err := exitedWith(0); err != nil {
		t.Errorf("exit 0 is %v", err)
	}
	if err := exitedWith(80); err != exitCode(80) { //nolint:errorlint // it is not wrapped
		t.Errorf("exit 80 is %v", err)
	}
}

// Values that no flag can check are refused before anything is begun.
func TestValuesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		"demo --requests=-1":                                 "--requests",
		"bench route --rounds 0":                             "at least 1",
		"bench route --round 1us":                            "at least 1",
		"bench route --sessions 0":                           "at least 1",
		"serve --listen 0.0.0.0:0 --store " + t.TempDir():    "--tokens",
		"serve --listen nowhere --store " + t.TempDir():      "listen address",
		"serve --tokens no-such-file --store " + t.TempDir(): "no-such-file",
		"serve --store-max-bytes=-5 --store " + t.TempDir():  "--store-max-bytes",
		"sim-worker --id i1 --berth not-a-url":               "base URL",
		"route s --berth ://":                                "berth URL",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := run(ctx, strings.Fields(line), new(output), new(output)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("berth %s: %v, want it to say %q", line, err, says)
		}
	}
}

// What the Redis client says by itself comes as lines of the log, and does not
// flood it.
func TestTheRedisClientSpeaksThroughTheLog(t *testing.T) {
	lines, began := new(output), time.Now()
	logRedis(slog.New(slog.NewJSONHandler(lines, nil)))
	defer logRedis(slog.New(slog.DiscardHandler))
	db := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	for range 50 {
		if err := db.Ping(t.Context()).Err(); err == nil {
			t.Fatal("somebody answers on port 1")
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	text := lines.String()
	if !strings.Contains(text, `"msg":"redis client","says":"redis: connection pool: failed to dial`) {
		t.Errorf("the log says %s", text)
	}
	if n, most := strings.Count(text, "\n"), 6+int(time.Since(began).Seconds()); n > most {
		t.Errorf("%d lines of 50 dials, at most %d may be: a few, and one a second", n, most)
	}
}

func TestEnding(t *testing.T) {
	t.Parallel()
	gone := fmt.Errorf("play the trace: %w", context.Canceled)
	for _, tt := range []struct {
		err         error
		interrupted bool
		says        string
		code        int
	}{
		{nil, false, "", 0},
		{nil, true, "", 0},
		{exitCode(3), true, "", 3},
		{gone, true, "interrupted", 130},
		{gone, false, gone.Error(), 1},
		{errors.New("no such pool"), true, "no such pool", 1},
	} {
		if says, code := ending(tt.err, tt.interrupted); says != tt.says || code != tt.code {
			t.Errorf("%v, %v: %q and %d", tt.err, tt.interrupted, says, code)
		}
	}
}
