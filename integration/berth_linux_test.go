package integration_test

import (
	"os/exec"
	"syscall"
	"testing"
)

// dieWithParent has the kernel kill the child when the thread that started it
// ends, so that a test binary that is killed leaves no server behind. The caller
// keeps that thread alive as long as the child.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// pause stops the process where it stands: connections stay open and nothing
// answers.
func (b *berth) pause(t testing.TB) { b.signal(t, syscall.SIGSTOP) }

// resume lets a paused process run on.
func (b *berth) resume(t testing.TB) { b.signal(t, syscall.SIGCONT) }
