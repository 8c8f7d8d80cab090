//go:build !linux

package integration_test

import (
	"os/exec"
	"testing"
)

func dieWithParent(*exec.Cmd) {}

func (b *berth) pause(t testing.TB)  { t.Skip("not tested outside Linux: a process that is paused") }
func (b *berth) resume(t testing.TB) { t.Helper() }
