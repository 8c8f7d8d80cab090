// Package progress shows how far long work has come: as a bar where a person
// watches, as a line now and then and one at its end where a log is written.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// between is the least time between two lines in a log, of a tenth of the way or
// more each.
const between = 3 * time.Second

// Bar is one piece of work. It is safe for concurrent use, and never fails: a bar
// that cannot be drawn harms nothing.
type Bar struct {
	mu    sync.Mutex
	out   io.Writer
	bar   *progressbar.ProgressBar // nil where no person watches
	what  string
	total int
	done  int
	shown int       // tenths, in the last line
	last  time.Time // of a line, or the beginning
	told  bool      // the last line tells how it is
}

// New begins work of total steps; 0 is not known yet.
func New(out io.Writer, what string, total int) *Bar {
	b := &Bar{out: out, what: what, total: total, last: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) { //nolint:gosec // a descriptor fits
		if total == 0 {
			total = -1
		}
		b.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond))
	}
	return b
}

// Add counts steps.
func (b *Bar) Add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(b.done+n, b.total)
}

// Set says how many of how many steps are done.
func (b *Bar) Set(done, total int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(done, total)
}

func (b *Bar) set(done, total int) {
	if b.bar != nil {
		if total != b.total && total > 0 {
			b.bar.ChangeMax(total)
		}
		_ = b.bar.Set(done)
	}
	if done < b.done {
		b.shown = 0 // the next part of the work
	}
	b.told = b.told && done == b.done && total == b.total
	b.done, b.total = done, total
	if tenths := 10 * done / max(1, total); tenths > b.shown && time.Since(b.last) >= between {
		b.shown = tenths
		b.line()
	}
}

// line writes how it is to a log.
func (b *Bar) line() {
	if b.bar != nil || b.total == 0 || b.told {
		return
	}
	b.told, b.last = true, time.Now()
	_, _ = fmt.Fprintf(b.out, "%s: %d of %d\n", b.what, b.done, b.total)
}

// Describe changes what is said beside the bar.
func (b *Bar) Describe(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.what = what
	if b.bar != nil {
		b.bar.Describe(what)
	}
}

// Println prints a line without tearing the bar.
func (b *Bar) Println(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar != nil {
		_ = b.bar.Clear()
	}
	_, _ = fmt.Fprintln(b.out, line)
}

// Done takes the bar away, or writes the last line. A further call does nothing.
func (b *Bar) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar != nil {
		_ = b.bar.Finish()
	}
	if b.done > 0 {
		b.line()
	}
}
