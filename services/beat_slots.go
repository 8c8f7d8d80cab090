package services

import (
	"time"

	"github.com/cespare/xxhash/v2"
)

// beatSlot is from one bunch of heartbeats to the next. It is longer than the time
// between two store calls that count them, or a call that was late once would leave
// every later bunch waiting as long.
const beatSlot = 2 * beatEvery

// beatSlots gives every instance its time within the heartbeat interval, so that the
// heartbeats of many come in bunches. A process that sleeps between any two requests
// pays more for waking up than for answering: of 1,000 heartbeats a second, evenly
// spread, two thirds of the CPU time (`berth bench heartbeat`).
type beatSlots struct {
	every time.Duration // the interval
	begun time.Time     // of this process: the times of others are others
}

// next is the time from now to the next heartbeat of an instance, in whole
// milliseconds: about the interval, and after the first heartbeat as much less as brings
// it to its slot. It is rounded up, so that a bunch comes after its time and not around
// it, and is at least an eighth of the interval, at most nine.
func (s *beatSlots) next(id string, now time.Time) time.Duration {
	slots := max(1, s.every/beatSlot)
	slot := time.Duration(xxhash.Sum64String(id)%uint64(slots)) * s.every / slots //nolint:gosec // at least 1
	wait := (slot - now.Sub(s.begun)) % s.every
	for wait < s.every/8 {
		wait += s.every
	}
	return (wait + time.Millisecond - 1).Truncate(time.Millisecond)
}
