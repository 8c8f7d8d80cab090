package migrations

import (
	"math"
	"testing"
	"time"
)

// begun is any moment.
var begun = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A steady job tells its true rate, and when it will be done, from the first
// measurement on: time before the work, and a pause of it, are no part of the average.
func TestTheRateIsWhatWasMeasured(t *testing.T) {
	t.Parallel()
	p := Progress{Phase: PhasePlanning, Total: 600}
	now, entered := begun, begun
	s := newSpeed(now, 0)
	measure := func(phase Phase, after time.Duration, moved int) {
		now = now.Add(after)
		p.Phase, p.Moved = phase, p.Moved+moved
		s.measure(now, entered, &p)
	}
	measure(PhasePlanning, 5*time.Second, 0)
	if p.RatePerS != 0 || p.EtaMS != 0 {
		t.Errorf("before the work: %v/s, %d ms left", p.RatePerS, p.EtaMS)
	}
	steady := func(seconds int) {
		t.Helper()
		now = now.Add(3 * time.Second) // of the phase before
		entered = now
		for range seconds {
			measure(PhaseMoving, time.Second, 15)
			left := time.Duration(p.EtaMS) * time.Millisecond
			want := time.Duration(p.Total-p.Moved) * time.Second / 15
			if math.Abs(p.RatePerS-15) > 0.01 || (left-want).Abs() > 10*time.Millisecond {
				t.Fatalf("with %d moved: %v/s, %v left; want 15/s and %v", p.Moved, p.RatePerS, left, want)
			}
		}
	}
	steady(10)
	measure(PhasePaused, time.Minute, 0)
	if p.RatePerS != 0 || p.EtaMS != 0 {
		t.Errorf("in a pause: %v/s, %d ms left", p.RatePerS, p.EtaMS)
	}
	steady(10)
}

// The average forgets: after ten seconds without a session it is down to 1/e.
func TestTheRateForgets(t *testing.T) {
	t.Parallel()
	p := Progress{Phase: PhaseMoving, Total: 10_000}
	now := begun
	s := newSpeed(now, 0)
	for second := range 110 {
		now = now.Add(time.Second)
		if second < 100 {
			p.Moved += 10
		}
		s.measure(now, begun, &p)
	}
	if want := 10 / math.E; math.Abs(p.RatePerS-want) > 0.02 {
		t.Errorf("%v/s after ten seconds of nothing, want %.2f", p.RatePerS, want)
	}
	if p.LastProgressMS != 10_000 {
		t.Errorf("last progress %d ms ago", p.LastProgressMS)
	}
}
