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
	mu      sync.Mutex
	out     io.Writer
	bar     *progressbar.ProgressBar // nil where no person watches
	options []progressbar.Option
	what    string
	total   int
	done    int
	begun   time.Time
	full    bool      // a line stands in the bar's place: every step is done, the work is not over
	over    bool      // nothing is drawn any more
	shown   int       // tenths, in the last line
	last    time.Time // of a line, or the beginning
	told    bool      // the last line tells how it is
	wrote   string    // what it told of
}

// New begins work of total steps; 0 is not known yet. The bar estimates how long the
// work takes.
func New(out io.Writer, what string, total int) *Bar {
	b := newBar(out, what, total)
	b.options = []progressbar.Option{progressbar.OptionThrottle(100 * time.Millisecond)}
	return b.onTerminal()
}

// NewTold begins work that tells of itself now and then, and says itself how long it
// will take, beside the bar.
func NewTold(out io.Writer, what string) *Bar {
	b := newBar(out, what, 0)
	b.options = []progressbar.Option{progressbar.OptionSetPredictTime(false)}
	return b.onTerminal()
}

func newBar(out io.Writer, what string, total int) *Bar {
	now := time.Now()
	return &Bar{out: out, what: what, total: total, begun: now, last: now}
}

func (b *Bar) onTerminal() *Bar {
	if f, ok := b.out.(*os.File); ok && term.IsTerminal(int(f.Fd())) { //nolint:gosec // a descriptor fits
		b.draw()
	}
	return b
}

// draw begins a bar.
func (b *Bar) draw() {
	total := b.total
	if total == 0 {
		total = -1
	}
	b.full = false
	b.bar = progressbar.NewOptions(total, append([]progressbar.Option{
		progressbar.OptionSetWriter(b.out), progressbar.OptionSetDescription(b.what),
		progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(),
		// The goroutine that would turn the spinner draws whenever it likes.
		progressbar.OptionSetSpinnerChangeInterval(0),
	}, b.options...)...)
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
	b.show(done, total)
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

// show draws how it is. A bar that is full would vanish for good: a line stands in
// its place, until there is more to do or the work is over.
func (b *Bar) show(done, total int) {
	if b.bar == nil || b.over {
		return
	}
	if total > 0 && done >= total {
		if !b.full {
			_ = b.bar.Finish() // it draws nothing more
			b.full = true
		}
		b.erase()
		line := []rune(fmt.Sprintf("%s (%d/%d) [%s]", b.what, done, total, time.Since(b.begun).Truncate(time.Second)))
		_, _ = io.WriteString(b.out, string(line[:min(len(line), b.width())]))
		return
	}
	if b.full {
		b.erase()
		b.draw()
	}
	if total != b.total && total > 0 {
		b.bar.ChangeMax(total)
	}
	_ = b.bar.Set(done)
}

// erase empties the bar's line, whatever is in it.
func (b *Bar) erase() {
	_, _ = io.WriteString(b.out, "\r\x1b[K")
}

// width is how many columns a line may have so that it can be erased again.
func (b *Bar) width() int {
	if f, ok := b.out.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 1 { //nolint:gosec // a descriptor fits
			return columns - 1
		}
	}
	return 79
}

// line writes how it is to a log.
func (b *Bar) line() {
	if b.bar != nil || b.total == 0 || b.told {
		return
	}
	b.told, b.last, b.wrote = true, time.Now(), b.what
	_, _ = fmt.Fprintf(b.out, "%s: %d of %d\n", b.what, b.done, b.total)
}

// Describe changes what is said beside the bar. A log hears of it only when nothing
// else is left to tell: what work waits for whose steps are all done.
func (b *Bar) Describe(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.what = what
	if b.bar != nil && !b.full && !b.over {
		b.bar.Describe(what)
	}
	b.show(b.done, b.total)
	if b.done >= b.total && b.told && what != b.wrote && time.Since(b.last) >= between {
		b.told = false
		b.line()
	}
}

// Println prints a line without tearing the bar.
func (b *Bar) Println(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar != nil && !b.over {
		b.erase()
	}
	_, _ = fmt.Fprintln(b.out, line)
	b.show(b.done, b.total)
}

// Done takes the bar away, or writes the last line. A further call does nothing.
func (b *Bar) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar != nil && !b.over {
		b.over = true
		_ = b.bar.Finish()
		b.erase()
	}
	if b.done > 0 {
		b.line()
	}
}
