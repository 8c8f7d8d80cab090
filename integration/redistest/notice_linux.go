package redistest

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// tellGoCommand writes one line to the standard error of the `go test` that runs
// this binary. Whatever the binary itself prints is dropped when its package
// passes, and a skip that nobody sees looks like a test that ran. Where there is
// no such parent, or it cannot be reached, the line is in `go test -v` only.
func tellGoCommand(line string) {
	parent := os.Getppid()
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if err != nil || strings.TrimSpace(string(name)) != "go" {
		return
	}
	out := parentStderr(parent)
	if out == nil {
		return
	}
	defer out.Close()
	fmt.Fprintln(out, line)
}

// parentStderr prefers a duplicate of the parent's descriptor, which shares its
// file offset. The kernel may forbid that; opening the file anew is as good for a
// terminal or a pipe, but in a plain file the two offsets would overwrite each
// other.
func parentStderr(pid int) *os.File {
	if pidfd, err := unix.PidfdOpen(pid, 0); err == nil {
		defer unix.Close(pidfd)
		if fd, err := unix.PidfdGetfd(pidfd, 2, 0); err == nil {
			return os.NewFile(uintptr(fd), "stderr of go test")
		}
	}
	path := fmt.Sprintf("/proc/%d/fd/2", pid)
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		return nil
	}
	out, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil
	}
	return out
}
