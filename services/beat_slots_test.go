package services

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// An instance that beats when it is told comes back at the same time of every
// interval, however late a timer or an answer was, and never much later than the
// interval.
func TestBeatSlots(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		every := time.Duration(rapid.IntRange(1, 60_000).Draw(t, "every")) * time.Millisecond
		s := beatSlots{every: every, begun: time.Unix(1_800_000_000, 0)}
		now := s.begun.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "after")))
		late := rapid.Int64Range(0, int64(every/8))
		var home time.Duration
		for i := range 4 {
			wait := s.next("i1", now)
			if wait < min(every/8, time.Millisecond) || wait > every+every/8+time.Millisecond || wait%time.Millisecond != 0 {
				t.Fatalf("next heartbeat in %v of every %v", wait, every)
			}
			told := now.Add(wait).Sub(s.begun).Truncate(time.Millisecond) % every
			if i > 0 && (told-home+every)%every > time.Millisecond && (home-told+every)%every > time.Millisecond {
				t.Fatalf("told to come at %v of every %v, before at %v", told, every, home)
			}
			home, now = told, now.Add(wait+time.Duration(late.Draw(t, "late")))
		}
	})
}

// The instances of a fleet are spread over the interval, and many share a moment.
func TestBeatSlotsMakeBunches(t *testing.T) {
	t.Parallel()
	s := beatSlots{every: 2 * time.Second, begun: time.Now()}
	at := map[time.Duration]int{}
	const instances = 2000
	for i := range instances {
		at[s.next(fmt.Sprintf("i%d", i), s.begun.Add(time.Duration(i)*time.Millisecond))+time.Duration(i)*time.Millisecond]++
	}
	moments := map[time.Duration]int{}
	for when, n := range at {
		moments[when%s.every] += n
	}
	if slots := int(s.every / beatSlot); len(moments) != slots {
		t.Errorf("%d moments, want %d", len(moments), slots)
	}
	for when, n := range moments {
		if n < 50 || n > 200 {
			t.Errorf("%d of %d instances at %v", n, instances, when)
		}
	}
}
