package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that takes moments on a quiet machine.
const patience = 3 * time.Minute

// berth is a `berth serve` process that the test may hurt. Its methods belong on
// the test's own goroutine, but for [berth.tryRestart].
type berth struct {
	url  string // http://127.0.0.1:port, the same after a restart
	addr string
	dir  string // working directory; the embedded store lies in it by default
	args []string
	log  *journal

	path string   // of a program of the test's own, "" for the one of all tests
	env  []string // in addition

	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
}

// serve runs `berth serve` with these flags on a free loopback port, and returns
// when it answers. It is killed with the test.
func serve(t testing.TB, flags ...string) *berth {
	t.Helper()
	var b *berth
	for range 5 {
		b = newBerth(t, freeAddr(t), flags...)
		err := b.start(t.Context())
		if err == nil {
			return b
		}
		if !b.log.has("address already in use") {
			t.Fatal(err)
		}
	}
	t.Fatal("every port that was free a moment ago was taken by another program")
	return nil
}

// newBerth is a process that has not been started.
func newBerth(t testing.TB, addr string, flags ...string) *berth {
	t.Helper()
	b := &berth{
		url: "http://" + addr, addr: addr, dir: t.TempDir(), log: newJournal(),
		args: append([]string{"serve", "--listen", addr}, flags...),
	}
	program(t) // built before the clock of any start runs
	t.Cleanup(func() {
		if err := b.kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", b.url, b.log.tail())
		}
		if bad := b.log.find(trouble); bad != "" {
			t.Errorf("%s logged trouble: %s", b.url, bad)
		}
	})
	return b
}

// trouble is what no log may hold.
var trouble = regexp.MustCompile(`(?m)^.*(panic|DATA RACE|fatal error|goroutine \d+ \[).*$`)

// start runs the program and returns when it serves.
func (b *berth) start(ctx context.Context) error {
	path, err := b.path, error(nil)
	if path == "" {
		path, err = build()
	}
	if err != nil {
		return err
	}
	cmd := exec.Command(path, b.args...)
	cmd.Dir, cmd.Env, cmd.Stderr, cmd.Stdout = b.dir, append(cleanEnv(), b.env...), b.log, b.log
	dieWithParent(cmd)
	serving := b.log.mark()
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		// See dieWithParent: the thread must last as long as the child.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its code is read from its state
		}
		close(exited)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start berth: %w", err)
	}
	b.cmd, b.exited = cmd, exited
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return b.awaitLine(ctx, serving, "msg=serving")
}

// awaitLine waits until the process has logged text after a mark.
func (b *berth) awaitLine(ctx context.Context, after int, text string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func(cmd *exec.Cmd, exited <-chan struct{}) {
		select {
		case <-exited:
			cancel(fmt.Errorf("berth ended with code %d", cmd.ProcessState.ExitCode()))
		case <-ctx.Done():
		}
	}(b.cmd, b.exited)
	if err := b.log.await(ctx, after, text); err != nil {
		return fmt.Errorf("wait for %q of %s: %w; its log ends with:\n%s", text, b.url, err, b.log.tail())
	}
	return nil
}

func (b *berth) kill() error {
	if b.cmd == nil || b.cmd.Process == nil {
		return nil
	}
	if err := b.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", b.url, err)
	}
	<-b.exited
	return nil
}

// kill9 ends the process at once.
func (b *berth) kill9(t testing.TB) {
	t.Helper()
	if err := b.kill(); err != nil {
		t.Fatal(err)
	}
}

// restart runs the program again on the same port and store.
func (b *berth) restart(t testing.TB) {
	t.Helper()
	if err := b.tryRestart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// tryRestart kills the process, if it runs, and starts it again. Any one
// goroutine may call it.
func (b *berth) tryRestart(ctx context.Context) error {
	if err := b.kill(); err != nil {
		return err
	}
	return b.start(ctx)
}

func (b *berth) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := b.cmd.Process.Signal(s); err != nil {
		t.Fatalf("send %v to %s: %v", s, b.url, err)
	}
}

// terminate asks the process to stop.
func (b *berth) terminate(t testing.TB) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("not tested on Windows: SIGTERM")
	}
	b.signal(t, syscall.SIGTERM)
}

// exitCode waits for the end of the process.
func (b *berth) exitCode(t testing.TB) int {
	t.Helper()
	select {
	case <-b.exited:
		return b.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("%s does not end", b.url)
		return -1
	}
}

// storeFile is the embedded store's file, where no flag says otherwise.
func (b *berth) storeFile() string { return filepath.Join(b.dir, "berth-data", "berth.db") }

// cleanEnv keeps flags that the environment sets out of the tests.
func cleanEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "BERTH_") {
			env = append(env, e)
		}
	}
	return env
}

var takenPorts sync.Map // port → struct{}{}

// freeAddr is a loopback address that nothing listens on. Its port lies below the
// ranges from which kernels take ports for connections: a server that is
// restarted must find it free.
func freeAddr(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := 10_240 + rand.IntN(20_000)
		if _, taken := takenPorts.LoadOrStore(port, struct{}{}); taken {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if free(addr) {
			return addr
		}
	}
	t.Fatal("no free port on loopback")
	return ""
}

func free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// eventually polls a condition of a running system until it holds.
func eventually(t testing.TB, what string, met func() error) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := met()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, t.Context().Err())
		case <-deadline.C:
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
	}
}
