package simulate

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTicksAreReadable(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.25: "0.25", 1.5: "1.5", 999: "999", 1000: "1,000", 4000: "4,000", 2050: "2,050",
		10_000: "10k", 12_500: "12.5k", 2_500_000: "2.5M", 4e9: "4G",
	} {
		if got := tick(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
	for at, want := range map[time.Duration]string{0: "0", 90 * time.Second: "1m30s", 2 * time.Hour: "2h", 61 * time.Minute: "1h1m"} {
		if got := clockTime(at); got != want {
			t.Errorf("%v is written %s, want %s", at, got, want)
		}
	}
}

// An axis holds every value, begins where it should, has a few ticks at round
// numbers and leaves little room above.
func TestAxesFitTheirValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.SampledFrom([]float64{0, 1}).Draw(t, "from")
		whole := rapid.Bool().Draw(t, "whole")
		most := from + math.Pow(10, rapid.Float64Range(-3, 9).Draw(t, "magnitude"))
		ticks := axis{from: from, whole: whole}.upTo(most).ticks()
		last := ticks[len(ticks)-1]
		if ticks[0] != from || last < most*(1-1e-8) || len(ticks) < 2 || len(ticks) > 6 {
			t.Fatalf("for %v the ticks are %v", most, ticks)
		}
		if step := ticks[1] - ticks[0]; last-step >= most && !(whole && step <= 1) {
			t.Fatalf("for %v the last of %v is not needed", most, ticks)
		}
		for _, v := range ticks {
			if strings.Contains(tick(v), "e") || whole && v != math.Trunc(v) {
				t.Fatalf("tick %v is written %s", v, tick(v))
			}
		}
	})
	for _, p := range panels {
		if !strings.HasPrefix(p.title, "hit rate") {
			continue
		}
		for _, most := range []float64{0, 0.1, 0.97, 1} {
			if got := p.axis.upTo(most).ticks(); !slices.Equal(got, []float64{0, 0.25, 0.5, 0.75, 1}) {
				t.Errorf("the hit rate, up to %v, has the ticks %v", most, got)
			}
		}
	}
}

// Labels of events stay inside and do not lie on each other.
func TestLabelsOfEventsHaveRoom(t *testing.T) {
	t.Parallel()
	p := &plot{Report: new(Report), end: 10 * time.Minute}
	for _, at := range []string{"1m0s", "1m1s", "1m2s", "5m0s", "9m58s", "9m59s"} {
		p.Events = append(p.Events, Effect{At: at, Event: at + ":kill:i1,i2,i3,i4,i5,i6,i7,i8,i9"})
	}
	lanes := p.lanes()
	span := func(i int) (from, to float64) {
		at, _ := time.ParseDuration(p.Events[i].At)
		_, width := label(&p.Events[i])
		from = p.labelAt(at, width)
		return from, from + width
	}
	for i := range lanes {
		from, to := span(i)
		if from < marginLeft || to > plotRight {
			t.Errorf("the label of %s is drawn from %.0f to %.0f", p.Events[i].Event, from, to)
		}
		for j := range i {
			if before, after := span(j); lanes[i] == lanes[j] && from < after && before < to {
				t.Errorf("%s lies on %s", p.Events[i].Event, p.Events[j].Event)
			}
		}
	}
	if slices.Max(lanes) > 2 {
		t.Errorf("lanes %v, want no more than three", lanes)
	}
}

func TestThePlotHasRoundTimesAndNumbers(t *testing.T) {
	t.Parallel()
	var svg strings.Builder
	if err := mustRun(t, with(t, small(), "2m:add:2", "2m:kill:i3"), Random).WriteSVG(&svg); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">1m</text>", ">6m</text>", ">0.75</text>", ">2m:add:2<", ">2m:kill:i3<", ", every 5s</text>"} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("the plot has no %s", want)
		}
	}
	if strings.Contains(svg.String(), "e+0") || strings.Contains(svg.String(), "NaN") {
		t.Error("the plot has numbers that nobody reads")
	}
}
