// Package progress shows how far long work has come: as a bar where a person
// watches, as a line every tenth of the way where a log is written.
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

// Bar is one piece of work. It is safe for concurrent use, and never fails: a bar
// that cannot be drawn harms nothing.
type Bar struct {
	mu    sync.Mutex
	out   io.Writer
	bar   *progressbar.ProgressBar // nil where no person watches
	what  string
	total int
	done  int
	shown int // tenths
}

// New begins work of total steps; 0 is not known yet.
func New(out io.Writer, what string, total int) *Bar {
	b := &Bar{out: out, what: what, total: total}
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
	b.done, b.total = done, total
	if tenths := 10 * done / max(1, total); b.bar == nil && total > 0 && tenths > b.shown {
		b.shown = tenths
		_, _ = fmt.Fprintf(b.out, "%s: %d of %d\n", b.what, done, total)
	}
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

// Done takes the bar away.
func (b *Bar) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar != nil {
		_ = b.bar.Finish()
	}
}
