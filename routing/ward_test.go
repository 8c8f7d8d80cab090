package routing

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// ward is a fleet under a watch whose rounds a test lets come. Verdicts are
// stored at once.
type ward struct {
	t      testing.TB
	watch  *Watch
	fleet  []Sighting
	now    time.Duration
	stalls int
}

// newWard watches n instances of one pool that have sent one heartbeat.
func newWard(t testing.TB, n int) *ward {
	w := &ward{t: t, watch: NewWatch(DefaultHealthPolicy())}
	for i := range n {
		w.fleet = append(w.fleet, Sighting{Boot: Boot{fmt.Sprintf("i%d", i), "boot"}, Pool: "p", Beats: 1})
	}
	w.round(0)
	return w
}

// probed turns a ward into one without heartbeats, all of whose instances are probed.
func (w *ward) probed() *ward {
	for i := range w.fleet {
		w.fleet[i].Beats, w.fleet[i].Fall, w.fleet[i].Rise = 0, 3, 2
	}
	w.watch = NewWatch(w.watch.policy)
	w.round(0)
	return w
}

// round is one round after d.
func (w *ward) round(d time.Duration) *ward {
	w.now += d
	found := w.watch.Round(w.now, w.now, w.fleet)
	if found.SelfStall {
		w.stalls++
	}
	for i := range w.fleet {
		if verdict, differs := found.Verdicts[w.fleet[i].Boot]; differs {
			if verdict == w.fleet[i].Stored {
				w.t.Fatalf("%v of %s is told although it is stored", verdict, w.fleet[i].ID)
			}
			w.fleet[i].Stored = verdict
		}
		w.fleet[i].Flaps = w.watch.Flaps(w.fleet[i].Boot)
	}
	return w
}

// rounds are n rounds a second apart, in which some instances send heartbeats.
func (w *ward) rounds(n int, beating ...int) *ward {
	for range n {
		for _, i := range beating {
			w.fleet[i].Beats++
		}
		w.round(time.Second)
	}
	return w
}

func (w *ward) is(want ...Health) *ward {
	w.t.Helper()
	for i, h := range want {
		if got := w.fleet[i].Stored; got != h {
			w.t.Fatalf("at %v: %s is %v, want %v", w.now, w.fleet[i].ID, got, h)
		}
	}
	return w
}

// all checks every instance.
func (w *ward) all(want Health) *ward {
	w.t.Helper()
	return w.is(slices.Repeat([]Health{want}, len(w.fleet))...)
}

// probe feeds a probe of an instance, and lets five seconds pass.
func (w *ward) probe(i int, ends ...Probe) *ward {
	for _, end := range ends {
		w.watch.Probed(w.fleet[i].Boot, end)
		w.rounds(5)
	}
	return w
}

func (w *ward) observe(i int, o Outcome, times int) *ward {
	for range times {
		w.watch.Observe(w.fleet[i].Boot, o)
	}
	return w
}
