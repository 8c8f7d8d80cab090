package boltstore

import (
	"sync"
	"time"

	"berth/statestore"
)

// clock is the store's time. It follows the wall clock, but never goes back: when
// the wall does, it goes on at the pace of the monotonic clock until the wall has
// caught up.
type clock struct {
	read reading

	mu   sync.Mutex
	base statestore.Millis // what the store said
	at   time.Duration     // at this reading of the monotonic clock
	last statestore.Millis
}

// reading is the wall clock and a monotonic one at the same moment.
type reading func() (wall statestore.Millis, monotonic time.Duration)

// readingOf reads a clock; time.Now carries a monotonic reading beside the wall.
func readingOf(clock func() time.Time) reading {
	start := clock()
	return func() (statestore.Millis, time.Duration) {
		t := clock()
		return statestore.Millis(t.UnixMilli()), t.Sub(start)
	}
}

// newClock makes a clock that says nothing before floor.
func newClock(read reading, floor statestore.Millis) *clock {
	wall, at := read()
	base := max(wall, floor)
	return &clock{read: read, base: base, at: at, last: base}
}

func (c *clock) now() statestore.Millis {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, at := c.read()
	if wall > c.base.Add(at-c.at) {
		c.base, c.at = wall, at
	}
	c.last = max(c.last, c.base.Add(at-c.at))
	return c.last
}
