package simulate

import (
	"testing"
	"time"
)

// Hot sessions that all began on one instance stay spread for affinities to come,
// also where each of them is half of an instance's load and chance alone saturates
// one now and then: none of these sends them back to where they began together.
func TestHotSessionsMakeNoSecondWave(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		sc := Default()
		sc.Seed, sc.Instances, sc.Sessions = seed+1, 60, 40_000
		sc.Affinity, sc.Policy.MaxAge, sc.Duration = 10*time.Minute, 5*time.Minute, 45*time.Minute
		r := mustRun(t, with(t, sc, "2m:hot:1%:50%:i3"))
		for _, s := range r.Series {
			if s.AtS > (12*time.Minute).Seconds() && (s.MaxMean > 3 || s.Waiting > 30) {
				t.Errorf("seed %d: max/mean load is %.2f at %vs, and %d wait", sc.Seed, s.MaxMean, s.AtS, s.Waiting)
			}
		}
		if r.PeakMaxMean < 10 || r.MovedEarly != 0 || r.Refused != 0 {
			t.Errorf("seed %d: a peak of %.2f, %d moved twice within min_stick, %d turns refused", sc.Seed, r.PeakMaxMean, r.MovedEarly, r.Refused)
		}
	}
}
