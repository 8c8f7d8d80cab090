package simulate

import (
	"context"
	"slices"
	"testing"
)

// A search finds the value that costs less, and leaves alone what only chance
// tells apart.
func TestTuneTellsGainsFromChance(t *testing.T) {
	t.Parallel()
	sc := Default()
	sc.Policy.Ring.Points = 300 // not among the values: it is tried all the same
	played := 0
	tuned, err := Tune(t.Context(), sc, 3, func(_ context.Context, sc Scenario) (*Report, error) {
		played++
		r := new(Report)
		r.Turns, r.MaxMean = 1000, 1
		luck := int64(mix(sc.Seed^uint64(sc.Policy.Ring.Points)<<8) % 40) // points change nothing but luck
		r.MeanTTFTMS = 1000 + luck
		if sc.Policy.MaxAge.Seconds() == 300 {
			r.MeanTTFTMS -= 200
		}
		return r, nil
	}, func(done, of int) {
		if done > of {
			t.Errorf("%d of %d done", done, of)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := tuned.Recommended.Policy; got.Ring.Points != 300 || got.MaxAge.Seconds() != 300 || got.Bound.Percent != 125 {
		t.Errorf("recommended: %d points, bound %d %%, max age %v", got.Ring.Points, got.Bound.Percent, got.MaxAge)
	}
	if tuned.After >= tuned.Before || played == 0 {
		t.Errorf("cost %.3f before, %.3f after", tuned.Before, tuned.After)
	}
	tried := func(knob string) (values []float64) {
		for _, x := range tuned.Tried {
			if x.Knob == knob {
				values = append(values, x.Value)
			}
		}
		return values
	}
	if got := tried("ring points"); !slices.Equal(got, []float64{128, 256, 300, 512, 1024}) {
		t.Errorf("tried points %v", got)
	}
}
