package boltstore

import (
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/statestore"
)

func TestClockNeverGoesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		wall := newFakeWall()
		floor := statestore.Millis(wall.read().UnixMilli() + rapid.Int64Range(-1e6, 1e6).Draw(t, "floor"))
		c := newClock(readingOf(wall.read), floor)
		last := floor
		for range rapid.IntRange(1, 20).Draw(t, "readings") {
			wall.advance(time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(t, "step")))
			now := c.now()
			if now < last || now < statestore.Millis(wall.read().UnixMilli()) {
				t.Fatalf("the store says %d after %d, the wall %d", now, last, wall.read().UnixMilli())
			}
			last = now
		}
	})
}

// When the wall clock is set back, leases and bindings still run out: time goes
// on from where it was, and follows the wall again once that has caught up.
func TestClockGoesOnWhenTheWallIsSetBack(t *testing.T) {
	t.Parallel()
	var wall statestore.Millis
	var monotonic time.Duration
	c := newClock(func() (statestore.Millis, time.Duration) { return wall, monotonic }, 0)
	steps := []struct {
		wall      statestore.Millis
		monotonic time.Duration
		want      statestore.Millis
	}{
		{1_000_000, time.Second, 1_000_000},
		{1_000_500, 1500 * time.Millisecond, 1_000_500},
		{400_000, 2 * time.Second, 1_001_000}, // set back by ten minutes
		{410_000, 12 * time.Second, 1_011_000},
		{2_000_000, 13 * time.Second, 2_000_000}, // set forward
	}
	for i, s := range steps {
		wall, monotonic = s.wall, s.monotonic
		if got := c.now(); got != s.want {
			t.Errorf("step %d: %d, want %d", i, got, s.want)
		}
	}
}

// Epochs are taken from the clock: after a restart with a clock that is behind,
// none may be issued twice.
func TestClockSurvivesRestart(t *testing.T) {
	t.Parallel()
	path, wall := filepath.Join(t.TempDir(), "store"), newFakeWall()
	s := openAt(t, path, Options{Clock: wall.read})
	first := says(t, s, "a", "op1", []byte("x"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wall.advance(-time.Hour)
	s = openAt(t, path, Options{Clock: wall.read})
	second := says(t, s, "b", "op1", []byte("x"))
	if second.Epoch < first.Epoch {
		t.Errorf("epoch %d was issued after epoch %d", second.Epoch, first.Epoch)
	}
}
