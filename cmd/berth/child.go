package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"berth/cmd/berth/internal/pause"
)

// child is a server of this binary, in a process of its own whose CPU time can be
// told from that of its clients.
type child struct {
	addr  string
	store string // backend, as it says itself

	cmd  *exec.Cmd
	logs chan struct{} // closed when its log has ended
}

// childGrace is how long a child may take to end.
const childGrace = 10 * time.Second

// startServe runs `berth serve` on a free port of the loopback.
func startServe(ctx context.Context, flags ...string) (*child, error) {
	return startChild(ctx, append([]string{"serve", "--listen=" + anyPort, "--log-format=json", "--log-level=info", "--shutdown-delay=0s"}, flags...)...)
}

// startChild runs a command of this program that serves, and returns once it does.
// The child takes nothing from BERTH_* variables of this process.
func startChild(ctx context.Context, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, args...) //nolint:gosec // this program itself
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "BERTH_") })
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("read the server's log: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	c := &child{cmd: cmd, logs: make(chan struct{})}
	if err := c.await(bufio.NewScanner(log)); err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	go func() {
		defer close(c.logs)
		_, _ = io.Copy(io.Discard, log) // nobody reads on, and the server must not wait for that
	}()
	return c, nil
}

// await reads the log until the server says where it serves.
func (c *child) await(log *bufio.Scanner) error {
	var said []string
	for log.Scan() {
		var line struct{ Msg, URL, Store string }
		if json.Unmarshal(log.Bytes(), &line) == nil && line.Msg == "serving" {
			at, err := url.Parse(line.URL)
			if err != nil {
				return fmt.Errorf("the server's address: %w", err)
			}
			c.addr, c.store = at.Host, line.Store
			return nil
		}
		said = append(said, log.Text())
	}
	return fmt.Errorf("the server did not start: %s", strings.Join(said, "\n"))
}

// stop lets the server end, and waits for it.
func (c *child) stop() error {
	late := time.AfterFunc(childGrace, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	<-c.logs
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("the server ended: %w", err)
	}
	return nil
}

// use is how much CPU time a process took of a time.
type use struct{ cpu, wall time.Duration }

func (u use) share() float64 { return u.cpu.Seconds() / u.wall.Seconds() }

// use measures the next d.
func (c *child) use(ctx context.Context, d time.Duration) (u use, err error) {
	before, err := cpuTime(c.cmd.Process.Pid)
	if err != nil {
		return u, err
	}
	start := time.Now()
	_ = pause.For(ctx, d)
	u.wall = time.Since(start)
	after, err := cpuTime(c.cmd.Process.Pid)
	u.cpu = after - before
	return u, err
}
