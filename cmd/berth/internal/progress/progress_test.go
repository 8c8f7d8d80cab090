package progress_test

import (
	"bytes"
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
