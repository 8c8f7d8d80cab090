package integration_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"berth/integration/redistest"
)

// clockedRedis is a redis-server whose wall clock the test sets.
type clockedRedis struct {
	redistest.Server
	ahead *os.File
}

// startClocked runs a redis-server on the clock of testdata/clock.c.
func startClocked(t *testing.T) *clockedRedis {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("not tested outside Linux: a Redis whose clock jumps")
	}
	server, err := exec.LookPath("redis-server")
	if err != nil {
		redistest.Lacks(t, "redis-server", fmt.Errorf("a Redis whose clock jumps: %w", err))
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		redistest.Lacks(t, "cc", fmt.Errorf("a Redis whose clock jumps: %w", err))
	}
	dir := t.TempDir()
	library := filepath.Join(dir, "clock.so")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", library, "testdata/clock.c").CombinedOutput(); err != nil {
		t.Fatalf("compile the clock: %v\n%s", err, out)
	}
	r := &clockedRedis{}
	r.ahead, err = os.Create(filepath.Join(dir, "ahead"))
	must(t, err)
	t.Cleanup(func() { _ = r.ahead.Close() })
	r.set(t, 0)

	addr := freeAddr(t)
	host, port, err := net.SplitHostPort(addr)
	must(t, err)
	r.Server = redistest.Server{URL: "redis://" + addr + "/0", Addr: addr}
	cmd := exec.Command(server, "--bind", host, "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, "CLOCK_FILE="+r.ahead.Name())
	dieWithParent(cmd)
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // see dieWithParent
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(ended)
	}()
	must(t, <-started)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	eventually(t, "the Redis answers", func() error { return r.Client(t).Ping(t.Context()).Err() })
	return r
}

// set puts the clock ahead of the machine's.
func (r *clockedRedis) set(t *testing.T, ahead time.Duration) {
	t.Helper()
	_, err := r.ahead.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead.Milliseconds())), 0) //nolint:gosec // its bits
	must(t, err)
}

// wallAhead is the variable that tells a program of [buildSkewed] how many seconds
// its wall clock is ahead.
const wallAhead = "WALL_AHEAD_SECONDS"

// buildSkewed compiles the program with a package time whose wall clock can be
// ahead or behind, and whose monotonic clock is as always.
func buildSkewed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	must(t, err)
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	must(t, err)
	const reading = "sec, nsec, mono := runtimeNow()\n"
	before, after, found := strings.Cut(string(source), reading)
	if !found || strings.Contains(after, reading) {
		redistest.Lacks(t, "a Go that reads the clock by runtimeNow", fmt.Errorf("processes whose clocks disagree: %q is not in %s once", reading, original))
	}
	replaced := before + reading + "\tsec += ahead\n" + after
	added := `package time

import "syscall"

var ahead = func() (n int64) {
	text, _ := syscall.Getenv("` + wallAhead + `")
	behind := len(text) > 0 && text[0] == '-'
	if behind {
		text = text[1:]
	}
	for _, c := range []byte(text) {
		n = n*10 + int64(c-'0')
	}
	if behind {
		return -n
	}
	return n
}()
`
	must(t, os.WriteFile(filepath.Join(dir, "time.go"), []byte(replaced), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "ahead.go"), []byte(added), 0o600))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		original: filepath.Join(dir, "time.go"),
		filepath.Join(filepath.Dir(original), "ahead.go"): filepath.Join(dir, "ahead.go"),
	}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	path := filepath.Join(dir, "berth")
	// Without the race detector: every package has to be compiled for it.
	out, err := exec.Command("go", "build", "-buildvcs=false", "-overlay", filepath.Join(dir, "overlay.json"), "-o", path, "berth/cmd/berth").CombinedOutput()
	if err != nil {
		t.Fatalf("build the program with another clock: %v\n%s", err, out)
	}
	return path
}

// loggedTime is when a line was logged, by the clock of who logged it.
var loggedTime = regexp.MustCompile(`time=(\S+)`)

// TestClocksThatDisagreeAndJump is case T16: two processes whose clocks are two
// hours apart share a Redis whose clock jumps ahead by ten minutes, and back. No
// instance is called silent for it, no session moves twice or not at all, the lease of
// a holder that dies is not kept for ten minutes, and ages in replies are durations.
func TestClocksThatDisagreeAndJump(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("not tested in short mode: a program that is built with another clock")
	}
	redis := startClocked(t)
	path := buildSkewed(t)
	began := time.Now()
	skewed := func(ahead time.Duration) *berth {
		b := newBerth(t, freeAddr(t), append([]string{"--store", redis.URL}, append(timing, "--suspect-after", "40s", "--down-after", "80s")...)...)
		b.path, b.env = path, []string{fmt.Sprintf("%s=%d", wallAhead, int(ahead.Seconds()))}
		must(t, b.start(t.Context()))
		return b
	}
	// The first is the one that holds the lease on health.
	p := pair{skewed(time.Hour), skewed(-time.Hour)}
	for b, ahead := range map[*berth]time.Duration{p.s1: time.Hour, p.s2: -time.Hour} {
		said, err := time.Parse(time.RFC3339, loggedTime.FindStringSubmatch(b.log.find(loggedTime))[1])
		if must(t, err); (time.Since(said) + ahead).Abs() > 10*time.Minute {
			t.Fatalf("the clock of %s is not %s ahead: it says %s", b.url, ahead, said)
		}
	}
	c := hire(t, 3, p.urls()...)

	first := p.s1.api().group(t, "ahead", c.credentials("i1"), "i2:busy,i3:busy", jumped)
	drain := orderDrain(t, p.s1.api(), "i1")
	awaitMoved(t, p.s2.api(), drain, jumped/4)
	redis.set(t, 10*time.Minute)
	awaitDrained(t, p, drain, "i2", "i3")
	checkMovedOnce(t, p, first, began)
	alternate(t, p, c)

	// The holder of the lease on health dies with a lease that ends, by the clock that
	// was set back, in ten minutes.
	p.s1.kill9(t)
	redis.set(t, 0)
	c.stop["i3"]()
	eventually(t, "the process that is left finds an instance silent", func() error {
		states, err := p.s2.api().states(t.Context())
		if err == nil && states["i3"] == "ready" {
			err = fmt.Errorf("it is ready")
		}
		return err
	})
	handlesTravel(t, pair{p.s2, p.s2}, c)
}

// jumped is how many sessions each drain of the test moves.
const jumped = 40

func orderDrain(t *testing.T, at api, id string) string {
	t.Helper()
	var j job
	must(t, at.do(t.Context(), http.MethodPost, "/v1/drains", map[string]any{
		"instances": []string{id}, "deadline_ms": time.Hour.Milliseconds(), "in_flight_grace_ms": 1000,
		"pace": map[string]any{"sessions_per_s": 5}, "prewarm": map[string]any{"idle_below_ms": 0},
	}, &j))
	return j.ID
}

func awaitMoved(t *testing.T, at api, id string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d sessions have moved", n), func() error {
		j, err := at.job(t.Context(), id)
		if err == nil && j.Progress.Moved < n {
			err = fmt.Errorf("%s with %d", j.State, j.Progress.Moved)
		}
		return err
	})
}

// awaitDrained waits for the end of a drain, while nobody calls the others silent.
func awaitDrained(t *testing.T, p pair, id string, others ...string) {
	t.Helper()
	var j job
	for _, at := range []*berth{p.s1, p.s2} {
		eventually(t, "the drain ends", func() (err error) {
			for _, other := range others {
				states, err := at.api().states(t.Context())
				must(t, err)
				if states[other] != "ready" {
					t.Fatalf("%s is %s at %s", other, states[other], at.url)
				}
			}
			if j, err = at.api().job(t.Context(), id); err == nil && !j.ended() {
				err = fmt.Errorf("%s with %d moved", j.State, j.Progress.Moved)
			}
			return err
		})
	}
	// Stolen at most once, when the clock jumped past the lease's end.
	if j.State != "succeeded" || j.Attempts > 2 || j.Progress.Moved != jumped || len(j.Progress.Skipped)+len(j.Progress.Left) > 0 {
		t.Errorf("the drain ended as %+v, want all %d moved by at most 2 processes", j, jumped)
	}
}

// checkMovedOnce holds what both processes tell of sessions against one move each,
// and against the time that may have passed for them.
func checkMovedOnce(t *testing.T, p pair, sessions []string, began time.Time) {
	t.Helper()
	ctx := t.Context()
	for _, at := range []api{p.s1.api(), p.s2.api()} {
		for _, id := range sessions {
			var h history
			must(t, at.do(ctx, http.MethodGet, "/v1/sessions/"+id+"/history", nil, &h))
			if len(h.Changes) != 2 {
				t.Errorf("%s had the owners %+v, want two", id, h.Changes)
			}
		}
		for _, path := range []string{"/v1/sessions/" + sessions[0], "/v1/sessions/" + sessions[0] + "/history", "/v1/instances", "/v1/jobs"} {
			checkAges(ctx, t, at, path, began)
		}
	}
}

// checkAges looks for durations since something in a reply that are longer than
// the test and the jump of the clock, or negative.
func checkAges(ctx context.Context, t *testing.T, at api, path string, began time.Time) {
	t.Helper()
	var reply any
	must(t, at.do(ctx, http.MethodGet, path, nil, &reply))
	longest := time.Since(began) + 10*time.Minute
	seen := 0
	var look func(name string, v any)
	look = func(name string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for member, inner := range v {
				look(member, inner)
			}
		case []any:
			for _, inner := range v {
				look(name, inner)
			}
		case float64:
			switch name {
			case "age_ms", "idle_ms", "bound_ms", "last_heartbeat_ms", "registered_ms":
				seen++
				if age := time.Duration(v) * time.Millisecond; age < 0 || age > longest {
					t.Errorf("%s%s says %s %s, at most %s have passed", at.url, path, name, age, longest)
				}
			}
		}
	}
	look("", reply)
	if seen == 0 {
		t.Errorf("%s%s tells no ages: %v", at.url, path, reply)
	}
}
