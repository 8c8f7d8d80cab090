package redistest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// startTimeout bounds how long a redis-server may take to answer its first PING.
const startTimeout = time.Minute

// Process is a redis-server that the test may hurt. Its methods fail the test when
// the operating system refuses, so they belong on the test's own goroutine.
type Process struct {
	Server

	binary string
	args   []string
	dir    string // data and log; survives kills and restarts
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
}

// Start runs a redis-server for this test alone. It climbs no ladder: only a
// process of one's own can be killed and paused. Without the program the test is
// skipped, or fails where redis is required.
func Start(t testing.TB, opts ...Option) *Process {
	t.Helper()
	p, err := startProcess(t.Context(), newConfig(opts).args())
	if errors.As(err, new(absent)) {
		missing(t, needRedis, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.remove(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Kill9 ends the process at once, as a power cut would end the program: nothing is
// flushed that Redis has not flushed.
func (p *Process) Kill9(t testing.TB) {
	t.Helper()
	if err := p.kill(); err != nil {
		t.Fatal(err)
	}
}

// Restart runs the program again on the same port and data; one that still runs is
// asked to shut down first. It returns when the server has loaded its data.
func (p *Process) Restart(t testing.TB) {
	t.Helper()
	if p.alive() {
		if err := endProcess(p.cmd.Process); err != nil {
			t.Fatalf("shut down redis-server on %s: %v", p.Addr, err)
		}
		<-p.exited
	}
	if err := p.spawn(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Pause stops the process where it stands (SIGSTOP): connections stay open and
// nothing answers.
func (p *Process) Pause(t testing.TB) {
	t.Helper()
	err := pauseProcess(p.cmd.Process)
	if err == nil {
		err = awaitStopped(p.cmd.Process)
	}
	if err != nil {
		t.Fatalf("pause redis-server on %s: %v", p.Addr, err)
	}
}

// Resume lets a paused process run on.
func (p *Process) Resume(t testing.TB) {
	t.Helper()
	if err := resumeProcess(p.cmd.Process); err != nil {
		t.Fatalf("resume redis-server on %s: %v", p.Addr, err)
	}
}

// startProcess starts a redis-server on a free loopback port. Another program may
// take the port between the choice and the bind, so it tries a few.
func startProcess(ctx context.Context, args []string) (*Process, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, absent{"no redis-server in PATH"}
	}
	dir, err := os.MkdirTemp("", "berth-redis-")
	if err != nil {
		return nil, fmt.Errorf("make a data directory for redis-server: %w", err)
	}
	for range 5 {
		var port int
		if port, err = freePort(); err != nil {
			break
		}
		p := newProcess(binary, dir, port, args)
		if err = p.spawn(ctx); err == nil {
			return p, nil
		}
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

func newProcess(binary, dir string, port int, args []string) *Process {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	own := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port),
		"--dir", dir, "--databases", strconv.Itoa(databases),
	}
	return &Process{
		Server: Server{URL: "redis://" + addr + "/0", Addr: addr, Rung: "process"},
		binary: binary,
		args:   append(own, args...),
		dir:    dir,
	}
}

// spawn starts the program and returns when it answers.
func (p *Process) spawn(ctx context.Context) error {
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of redis-server: %w", err)
	}
	defer log.Close()

	cmd := exec.Command(p.binary, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithParent(cmd)
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		// See dieWithParent: the thread must last as long as the child.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(exited)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start redis-server on %s: %w", p.Addr, err)
	}
	p.cmd, p.exited = cmd, exited
	if err := p.awaitReady(ctx); err != nil {
		return errors.Join(err, p.kill())
	}
	return nil
}

// awaitReady pings until the server has bound its port and loaded its data.
func (p *Process) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ping(ctx, p.Addr)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return fmt.Errorf("redis-server on %s ended at its start; its log ends with:\n%s", p.Addr, p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("redis-server on %s does not answer (%w); its log ends with:\n%s", p.Addr, err, p.logTail())
		}
	}
}

// ping asks once over a bare connection: a client would log and retry every refusal.
func ping(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && answer != "+PONG\r\n" {
		err = fmt.Errorf("answers %q", answer)
	}
	return err
}

func (p *Process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *Process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill redis-server on %s: %w", p.Addr, err)
	}
	<-p.exited
	return nil
}

// remove ends the process and deletes its data.
func (p *Process) remove() error {
	if err := p.kill(); err != nil {
		return err
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("remove the data of redis-server on %s: %w", p.Addr, err)
	}
	return nil
}

func (p *Process) logPath() string { return filepath.Join(p.dir, "redis.log") }

func (p *Process) logTail() []byte {
	const most = 2048
	log, err := os.ReadFile(p.logPath())
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(log[max(0, len(log)-most):])
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free loopback port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
