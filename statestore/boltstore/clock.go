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
	wall func() time.Time

	mu     sync.Mutex
	anchor time.Time // a reading of the wall
	base   statestore.Millis
	last   statestore.Millis
}

// newClock makes a clock that says nothing before floor.
func newClock(wall func() time.Time, floor statestore.Millis) *clock {
	now := wall()
	base := max(statestore.Millis(now.UnixMilli()), floor)
	return &clock{wall: wall, anchor: now, base: base, last: base}
}

func (c *clock) now() statestore.Millis {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.wall()
	if ms := statestore.Millis(t.UnixMilli()); ms > c.base.Add(t.Sub(c.anchor)) {
		c.anchor, c.base = t, ms
	}
	c.last = max(c.last, c.base.Add(t.Sub(c.anchor)))
	return c.last
}
