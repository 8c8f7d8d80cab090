package redistest

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestKill9KeepsWhatWasFsynced holds the control and the option together: what a
// server with appendfsync always has acknowledged is there after kill -9, at the
// same address.
func TestKill9KeepsWhatWasFsynced(t *testing.T) {
	t.Parallel()
	p := Start(t, Fsync("always"))
	client := p.Client(t)
	for i := range 100 {
		must(t, client.RPush(t.Context(), "log", i).Err())
	}
	p.Kill9(t)
	if conn, err := net.Dial("tcp", p.Addr); err == nil {
		_ = conn.Close()
		t.Fatal("a killed server accepts connections")
	}
	p.Restart(t)
	if n, err := client.LLen(t.Context(), "log").Result(); err != nil || n != 100 {
		t.Fatalf("the log has %d entries (%v), want 100", n, err)
	}
	p.Restart(t)
	if n, err := client.LLen(t.Context(), "log").Result(); err != nil || n != 100 {
		t.Fatalf("after a clean restart the log has %d entries (%v), want 100", n, err)
	}
}

func TestPauseSilencesAndResumeAnswers(t *testing.T) {
	t.Parallel()
	p := Start(t)
	client := redis.NewClient(&redis.Options{Addr: p.Addr, MaxRetries: -1, ReadTimeout: time.Minute, ContextTimeoutEnabled: true})
	defer client.Close()
	must(t, client.Ping(t.Context()).Err())
	p.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := client.Ping(ctx).Err()
	if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a paused server: %v, want a timeout", err)
	}
	p.Resume(t)
	must(t, p.awaitReady(t.Context()))
}

// TestOrphan holds that a test binary that is killed leaves no server behind: it
// runs itself as the binary that dies.
func TestOrphan(t *testing.T) {
	t.Parallel()
	if os.Getenv("REDISTEST_ORPHAN") != "" {
		p := Start(t)
		_, _ = os.Stdout.WriteString("\npid " + strconv.Itoa(p.cmd.Process.Pid) + "\n")
		select {}
	}
	if runtime.GOOS != "linux" {
		t.Skip("not tested outside Linux: servers of a killed test binary")
	}
	Start(t) // skips where there is no redis-server
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOrphan$")
	cmd.Env = append(os.Environ(), "REDISTEST_ORPHAN=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var pid string
	lines := bufio.NewScanner(out)
	for pid == "" && lines.Scan() {
		pid, _ = strings.CutPrefix(lines.Text(), "pid ")
		if _, err := strconv.Atoi(pid); err != nil {
			pid = ""
		}
	}
	if pid == "" {
		t.Fatal("the child did not say which process it started")
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, os.ErrNotExist) {
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("redis-server %s outlives its test binary", pid)
		}
	}
}
