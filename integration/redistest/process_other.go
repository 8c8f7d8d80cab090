//go:build !linux

package redistest

import (
	"os"
	"os/exec"
)

// dieWithParent has no counterpart here: a test binary that is killed leaves its
// servers to the user.
func dieWithParent(*exec.Cmd) {}

// awaitStopped trusts that SIGSTOP is obeyed at once.
func awaitStopped(*os.Process) error { return nil }
