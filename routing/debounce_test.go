package routing

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// R08: rebuilds dominated the CPU. Whatever changes when, there is one rebuild in a
// window, none without a change, and none later than a window after one.
func TestR08RebuildsAtMostOnceInAWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := Debounce{Window: 500 * time.Millisecond}
		now, last, changedAt, dirty := time.Duration(0), -time.Hour, time.Duration(0), false
		for range rapid.IntRange(1, 100).Draw(t, "asked") {
			now += time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond
			changed := rapid.Bool().Draw(t, "changed")
			if changed && !dirty {
				dirty, changedAt = true, now
			}
			rebuild, wait := d.Due(now, changed)
			switch {
			case rebuild && !dirty:
				t.Fatal("rebuilt although nothing changed")
			case rebuild && now-last < d.Window:
				t.Fatalf("rebuilt %v after the last time", now-last)
			case !rebuild && dirty && (wait <= 0 || now+wait > changedAt+d.Window):
				t.Fatalf("a change of %v waits at %v for %v more", changedAt, now, wait)
			case !rebuild && !dirty && wait != 0, rebuild && wait != 0:
				t.Fatalf("waits %v for nothing", wait)
			}
			if rebuild {
				dirty, last = false, now
			}
		}
	})
}
