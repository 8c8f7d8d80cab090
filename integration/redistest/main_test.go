package redistest

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

// recorder is a testing.TB that notes how a test ended instead of ending it.
type recorder struct {
	testing.TB
	failed, skipped string
}

func (r *recorder) Fatal(args ...any) { r.failed = fmt.Sprint(args...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) {
	r.failed = fmt.Sprintf(f, args...)
	runtime.Goexit()
}
func (r *recorder) Skip(args ...any) { r.skipped = fmt.Sprint(args...); runtime.Goexit() }
func (r *recorder) during(f func(testing.TB)) *recorder {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r
}

// hush keeps a skip that a test provokes from being told to whoever runs it.
func hush(t *testing.T, line string) {
	announced.Store(line, struct{}{})
	t.Cleanup(func() { announced.Delete(line) })
}

var errBroken = errors.New("the server is broken")
