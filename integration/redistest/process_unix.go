//go:build unix

package redistest

import (
	"os"
	"syscall"
)

func pauseProcess(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resumeProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
func endProcess(p *os.Process) error    { return p.Signal(syscall.SIGTERM) }
