package simulate

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// axis is the upright one of a panel. What is left out is found for the values.
type axis struct {
	from, to float64
	step     float64 // between ticks
	whole    bool    // its values are whole numbers, and so are its ticks
}

// upTo ends the axis at the first tick that is not below the highest value.
func (a axis) upTo(most float64) axis {
	if a.to > a.from {
		return a
	}
	span := max(most-a.from, 0)
	if span == 0 {
		span = 1
	}
	a.step = roundStep(span / 4)
	if a.whole {
		a.step = math.Ceil(a.step)
	}
	a.to = a.from + a.step*math.Ceil(span/a.step-1e-9)
	return a
}

// roundStep is the first of 1, 2, 2.5, 5, 10 times a power of ten that is not below.
func roundStep(least float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(least)))
	for _, f := range []float64{1, 2, 2.5, 5} {
		if f*unit >= least*(1-1e-9) {
			return f * unit
		}
	}
	return 10 * unit
}

func (a axis) ticks() (list []float64) {
	n := int(math.Round((a.to - a.from) / a.step))
	for i := range n + 1 {
		list = append(list, a.from+float64(i)*a.step)
	}
	return list
}

// tick writes a value of an axis short.
func tick(v float64) string {
	short := func(v float64) string { return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64) }
	switch {
	case v >= 1e9:
		return short(v/1e9) + "G"
	case v >= 1e6:
		return short(v/1e6) + "M"
	case v >= 1e4:
		return short(v/1e3) + "k"
	case v >= 1e3 && v == math.Trunc(v):
		return fmt.Sprintf("%d,%03d", int(v)/1000, int(v)%1000)
	}
	return short(v)
}

// timeStep is between the ticks of the time, of which there are about six to ten.
func timeStep(whole time.Duration) time.Duration {
	const day = 24 * time.Hour
	for _, step := range []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	} {
		if whole <= 10*step {
			return step
		}
	}
	return day
}

// clockTime writes a time without units that are 0: 90s is 1m30s, 2h is 2h.
func clockTime(at time.Duration) string {
	text := ""
	for _, part := range []struct {
		unit time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := at / part.unit; n > 0 {
			text += strconv.Itoa(int(n)) + part.name
			at -= n * part.unit
		}
	}
	if text == "" {
		return "0"
	}
	return text
}
