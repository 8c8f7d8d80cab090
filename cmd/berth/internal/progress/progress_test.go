package progress_test

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth/cmd/berth/internal/progress"
)

// A log gets a line every tenth of the way, but not one every moment.
func TestALogIsNotFlooded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		step  time.Duration // of a thousand
		lines string
	}{
		"fast":   {time.Millisecond, "binding: 1000 of 1000"},
		"slower": {10 * time.Millisecond, "binding: 300 of 1000, binding: 600 of 1000, binding: 900 of 1000, binding: 1000 of 1000"},
		"slow": {time.Second, "binding: 100 of 1000, binding: 200 of 1000, binding: 300 of 1000, binding: 400 of 1000, binding: 500 of 1000, " +
			"binding: 600 of 1000, binding: 700 of 1000, binding: 800 of 1000, binding: 900 of 1000, binding: 1000 of 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				b := progress.New(&out, "binding", 1000)
				for range 1000 {
					time.Sleep(tt.step) // of the bubble's clock
					b.Add(1)
				}
				b.Done()
				b.Done()
				if got := strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", ", "); got != tt.lines {
					t.Errorf("writes %s\nwant %s", got, tt.lines)
				}
			})
		})
	}
}

// Work in parts tells of each part, and work that never began of nothing.
func TestPartsOfTheWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := progress.New(&out, "", 0)
		for _, part := range []string{"binding", "draining"} {
			b.Describe(part)
			b.Set(0, 2)
			time.Sleep(time.Minute) // of the bubble's clock
			b.Set(2, 2)
		}
		b.Done()
		progress.New(&out, "nothing", 5).Done()
		if got := out.String(); got != "binding: 2 of 2\ndraining: 2 of 2\n" {
			t.Errorf("writes %q", got)
		}
	})
}

// screen is what a person sees in the last line that was drawn.
func screen(drawn string) string {
	var line []rune
	at := 0
	for drawn != "" {
		rest, erases := strings.CutPrefix(drawn, "\x1b[K")
		if erases {
			line, drawn = line[:min(at, len(line))], rest
			continue
		}
		r := []rune(drawn)[0]
		drawn = drawn[len(string(r)):]
		switch {
		case r == '\r':
			at = 0
		case r == '\n':
			line, at = nil, 0
		case at < len(line):
			line[at] = r
			at++
		default:
			line = append(line, r)
			at++
		}
	}
	return strings.TrimSpace(string(line))
}

// A person sees what work waits for whose steps are all done, until it is over, and
// a bar again if there is more to do.
func TestABarThatIsFullGoesOnTelling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		sees := func(want string) {
			t.Helper()
			if got := screen(out.String()); !strings.Contains(got, want) || want == "" && got != "" {
				t.Errorf("a person sees %q, want %q", got, want)
			}
		}
		b := progress.NewTold(&out, "draining").Watched()
		b.Set(1, 2)
		sees("(1/2)")
		time.Sleep(5 * time.Second) // of the bubble's clock
		b.Set(2, 2)
		sees("draining (2/2) [5s]")
		b.Describe("draining (settling, i2 waits for hints)")
		sees("draining (settling, i2 waits for hints) (2/2) [5s]")
		b.Println("a note")
		sees("draining (settling, i2 waits for hints) (2/2) [5s]")
		b.Set(2, 4)
		sees("(2/4)")
		b.Set(4, 4)
		b.Describe(strings.Repeat("long ", 40))
		if n := len(screen(out.String())); n > 79 {
			t.Errorf("a line of %d columns cannot be erased on a terminal of 80", n)
		}
		b.Done()
		sees("")
		b.Describe("late")
		b.Set(4, 4)
		time.Sleep(time.Second) // of the bubble's clock
		sees("")
	})
}

// Work that tells itself how long it takes has no other estimate beside it.
func TestOneEstimate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			bar  func(out io.Writer) *progress.Bar
			want bool
		}{
			{func(out io.Writer) *progress.Bar { return progress.New(out, "binding", 0) }, true},
			{func(out io.Writer) *progress.Bar { return progress.NewTold(out, "draining") }, false},
		} {
			var out bytes.Buffer
			b := tt.bar(&out).Watched()
			for n := range 5 {
				time.Sleep(time.Second) // of the bubble's clock
				b.Set(n, 10)
			}
			time.Sleep(500 * time.Millisecond) // of the bubble's clock
			if got := screen(out.String()); regexp.MustCompile(`\[\d+s:\d+s\]$`).MatchString(got) != tt.want || !strings.Contains(got, "(4/10)") {
				t.Errorf("a person sees %q; an estimate: %v", got, tt.want)
			}
			b.Done()
			time.Sleep(time.Second) // of the bubble's clock
		}
	})
}

// A log hears what work waits for whose steps are all done, when that changes.
func TestALogHearsWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := progress.NewTold(&out, "draining (moving)")
		time.Sleep(time.Minute) // of the bubble's clock
		b.Set(2, 2)
		for range 30 {
			time.Sleep(time.Second) // of the bubble's clock
			b.Describe("draining (settling)")
			b.Set(2, 2)
		}
		b.Describe("draining (drained)")
		b.Done()
		const want = "draining (moving): 2 of 2\ndraining (settling): 2 of 2\ndraining (drained): 2 of 2\n"
		if got := out.String(); got != want {
			t.Errorf("writes %q, want %q", got, want)
		}
	})
}
