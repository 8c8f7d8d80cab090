package redistest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// dieWithParent has the kernel kill the child when the thread that started it
// ends, so that a test binary that is killed leaves no server behind. The caller
// keeps that thread alive as long as the child.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns once the kernel shows the process as stopped: SIGSTOP is
// sent before it is obeyed, and a request in between would still be answered.
func awaitStopped(p *os.Process) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 5000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
		if err != nil {
			return fmt.Errorf("read the state of process %d: %w", p.Pid, err)
		}
		// The state follows the name, which stands in parentheses.
		if _, state, ok := bytes.Cut(stat, []byte(") ")); ok && state[0] == 'T' {
			return nil
		}
		<-tick.C
	}
	return fmt.Errorf("process %d does not stop", p.Pid)
}
