package routing

import (
	"slices"
	"testing"
	"time"
)

func TestSilence(t *testing.T) {
	t.Parallel()
	w := newWard(t, 1).rounds(5).is(Healthy).rounds(1).is(HealthSuspect).rounds(8).is(HealthSuspect).rounds(1).is(HealthDown)
	w.rounds(3600).is(HealthDown).rounds(1, 0).is(Healthy).rounds(5).is(Healthy).rounds(1).is(HealthSuspect)
	w.rounds(1, 0) // it flaps, and has to be well for a while
	w.is(HealthSuspect).rounds(9, 0).is(HealthSuspect).rounds(1, 0).is(Healthy)
}

func TestWithoutAHeartbeatThereIsNoLease(t *testing.T) {
	t.Parallel()
	w := newWard(t, 1)
	w.fleet[0].Beats = 0
	w.watch = NewWatch(DefaultHealthPolicy())
	w.rounds(3600).is(Healthy).observe(0, OutcomeConnect, 100).rounds(10).is(Healthy)
}

// A sign of life makes a silent instance suspect instead of down.
func TestLifeKeepsFromDown(t *testing.T) {
	t.Parallel()
	signs := map[string]func(*ward){
		"a write":          func(w *ward) { w.watch.Wrote(w.fleet[0].Boot) },
		"a request served": func(w *ward) { w.observe(0, OutcomeOK, 1) },
		"a good probe":     func(w *ward) { w.watch.Probed(w.fleet[0].Boot, ProbePassed) },
	}
	for name, sign := range signs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWard(t, 1).rounds(10).is(HealthSuspect)
			sign(w)
			w.rounds(14).is(HealthSuspect).rounds(1).is(HealthDown)
			sign(w)
			w.rounds(1).is(HealthSuspect).rounds(1, 0).is(Healthy)
		})
	}
}

// R10: one failed probe flipped the state. F,P,F,P,P,F changes nothing.
func TestR10OneProbeChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWard(t, 2).probed()
	for _, end := range []Probe{ProbeFailed, ProbePassed, ProbeFailed, ProbePassed, ProbePassed, ProbeFailed} {
		w.probe(0, end).is(Healthy)
	}
	w.probe(0, ProbeFailed).is(Healthy).probe(0, ProbeFailed).is(HealthDown)
	w.probe(0, ProbePassed, ProbeFailed, ProbePassed).is(HealthSuspect).probe(0, ProbePassed).is(Healthy)
}

// An instance that lives but fails its probes is suspect until it passes again.
func TestProbesOfALivingInstance(t *testing.T) {
	t.Parallel()
	w := newWard(t, 1).probed()
	w.probe(0, ProbeFailed, ProbeFailed)
	w.watch.Wrote(w.fleet[0].Boot)
	w.probe(0, ProbeFailed).is(HealthSuspect).probe(0, ProbeFailed, ProbeFailed).is(HealthDown)

	w = newWard(t, 1)
	w.fleet[0].Fall, w.fleet[0].Rise = 3, 2
	for range 6 {
		w.watch.Probed(w.fleet[0].Boot, ProbeFailed)
		w.rounds(5, 0)
	}
	w.is(HealthSuspect)
	for range 2 {
		w.watch.Probed(w.fleet[0].Boot, ProbePassed)
		w.rounds(5, 0)
	}
	w.is(Healthy)
}

// Probes that time out take out at most half of a pool and never the last; refused
// ones, and those whom gateways cannot reach either, are outside of that.
func TestTimeoutsTakeOutHalfAtMost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		n       int
		ends    []Probe // of each instance, the last for the rest
		refused int     // so many of the first are complained about
		down    int
	}{
		{n: 1, ends: []Probe{ProbeTimedOut}, down: 0},
		{n: 1, ends: []Probe{ProbeFailed}, down: 1},
		{n: 4, ends: []Probe{ProbeTimedOut}, down: 2},
		{n: 5, ends: []Probe{ProbeTimedOut}, down: 2},
		{n: 4, ends: []Probe{ProbeFailed}, down: 4},
		{n: 4, ends: []Probe{ProbeFailed, ProbeFailed, ProbeTimedOut}, down: 3},
		{n: 4, ends: []Probe{ProbeFailed, ProbeTimedOut}, down: 3},
		{n: 4, ends: []Probe{ProbeTimedOut}, refused: 3, down: 3},
		{n: 4, ends: []Probe{ProbeTimedOut}, refused: 4, down: 4},
		{n: 4, ends: []Probe{ProbeTimedOut, ProbeTimedOut, ProbeTimedOut, ProbePassed}, down: 2},
	} {
		w := newWard(t, tt.n).probed()
		for range 6 {
			for i := range w.fleet {
				w.watch.Probed(w.fleet[i].Boot, tt.ends[min(i, len(tt.ends)-1)])
				if i < tt.refused {
					w.observe(i, OutcomeConnect, 1)
				}
			}
			w.rounds(5)
		}
		down := 0
		for _, s := range w.fleet {
			if s.Stored == HealthDown {
				down++
			} else if s.Stored != Healthy {
				t.Errorf("%+v: %s is %v", tt, s.ID, s.Stored)
			}
		}
		if down != tt.down {
			t.Errorf("%+v: %d are down", tt, down)
		}
	}
	// When the pool shrinks, so does the half.
	w := newWard(t, 4).probed()
	for range 3 {
		for i := range w.fleet {
			w.watch.Probed(w.fleet[i].Boot, ProbeTimedOut)
		}
		w.rounds(1)
	}
	w.is(HealthDown, HealthDown, Healthy, Healthy)
	w.fleet = w.fleet[:2]
	w.rounds(1).is(HealthDown, Healthy)
}

// What gateways cannot reach is down as soon as its lease has lapsed or a probe
// failed, but not while it lives.
func TestComplaintsConfirm(t *testing.T) {
	t.Parallel()
	newWard(t, 1).observe(0, OutcomeReset, 9).rounds(5).is(Healthy).rounds(1).is(HealthDown)
	newWard(t, 1).observe(0, OutcomeServer, 9).rounds(6).is(HealthSuspect)
	newWard(t, 1).observe(0, OutcomeReset, 9).observe(0, OutcomeOK, 1).rounds(6).is(HealthSuspect)
	newWard(t, 1).probed().observe(0, OutcomeConnect, 9).rounds(60).is(Healthy).probe(0, ProbeTimedOut).is(HealthDown)
	w := newWard(t, 1)
	w.fleet[0].Fall, w.fleet[0].Rise = 1, 1
	w.observe(0, OutcomeConnect, 9)
	w.watch.Probed(w.fleet[0].Boot, ProbeFailed)
	w.rounds(1).is(HealthSuspect).rounds(1, 0).is(HealthSuspect) // one gateway's network is not the fleet's
}

// T18: the control plane stood still and expired every client. Nobody is down,
// nobody moves, and it says so once.
func TestT18AStalledWatchEjectsNobody(t *testing.T) {
	t.Parallel()
	everybody := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}
	w := newWard(t, 20).rounds(10, everybody...)
	w.round(45*time.Second).all(Healthy).rounds(3).all(Healthy).rounds(60, everybody...).all(Healthy)
	if w.stalls != 1 {
		t.Errorf("%d self stalls told, want 1", w.stalls)
	}
	// Resumed under another holding of the lease, it still knows.
	w.watch.Holds(2)
	w.round(45 * time.Second).all(Healthy)
	if w.stalls != 2 {
		t.Errorf("%d self stalls told, want 2", w.stalls)
	}
	// Without the store it is no stall, and no silence either.
	for range 60 {
		w.now += time.Second
		w.watch.Miss(w.now)
	}
	w.rounds(5).all(Healthy)
	if w.stalls != 2 {
		t.Errorf("%d self stalls told, want 2", w.stalls)
	}
}

// Heartbeats that do not come in from anywhere are no death of everybody.
func TestMassLapseIsBerthsOwn(t *testing.T) {
	t.Parallel()
	some := func(n int) (list []int) {
		for i := range n {
			list = append(list, i)
		}
		return list
	}
	w := newWard(t, 20).rounds(10, some(20)...)
	downFrom := func(n int) []Health {
		return append(slices.Repeat([]Health{Healthy}, n), slices.Repeat([]Health{HealthDown}, 20-n)...)
	}
	w.rounds(60, some(6)...).all(Healthy) // 14 of 20
	w.rounds(10, some(20)...).all(Healthy)
	w.rounds(3600).all(Healthy) // all of them: there is nobody to prefer
	w.rounds(10, some(20)...).all(Healthy)
	if w.stalls != 2 {
		t.Errorf("%d self stalls told, want 2", w.stalls)
	}
	w.rounds(16, some(7)...).is(downFrom(7)...) // 13 of 20 are believed
	// After an hour of nothing a few are back: their heartbeats come in, so those of
	// the others would.
	w = newWard(t, 20).rounds(3600).all(Healthy).rounds(59, some(6)...).all(Healthy).rounds(5, some(6)...).is(downFrom(6)...)
	if w.stalls != 1 {
		t.Errorf("%d self stalls told, want 1", w.stalls)
	}
	// Gateways complain: what they complain about is down, and once what nobody
	// complains about is too little for a fault here, the rest is as well.
	w = newWard(t, 6).rounds(10, some(6)...).observe(0, OutcomeConnect, 3).rounds(60)
	w.is(HealthDown, Healthy, Healthy, Healthy, Healthy, Healthy)
	w.observe(1, OutcomeConnect, 3).rounds(1).is(HealthDown, HealthDown, Healthy, Healthy, Healthy, Healthy)
	w.observe(2, OutcomeConnect, 3).observe(3, OutcomeConnect, 3).rounds(1)
	w.is(HealthDown, HealthDown, HealthDown, HealthDown)
}

// R09: of three, two die at once and later the third. None of them is hinted.
func TestR09TheDeadAreDown(t *testing.T) {
	t.Parallel()
	w := newWard(t, 3).rounds(5, 0, 1, 2).rounds(15, 0).is(Healthy, HealthDown, HealthDown)
	w.rounds(15).all(HealthDown)
	if w.stalls != 0 {
		t.Errorf("%d self stalls told", w.stalls)
	}
}

// A new holder of the lease leaves what is stored until it has seen something.
func TestANewHolderTrustsWhatIsStored(t *testing.T) {
	t.Parallel()
	for _, stored := range []Health{HealthSuspect, HealthDown} {
		w := newWard(t, 1)
		w.fleet[0].Stored = stored
		w.watch.Holds(7)
		w.rounds(5).is(stored)
		w.watch.Holds(8)
		w.rounds(5).is(stored).rounds(1, 0).is(Healthy)

		w = newWard(t, 1)
		w.fleet[0].Stored = stored
		w.probed().rounds(60).is(stored).probe(0, ProbePassed).is(stored).probe(0, ProbePassed).is(Healthy)
	}
}

// Whoever was down stays so for a new holder of the lease that hears nothing of it: what
// is silent for less long than it takes to be down was so for longer.
func TestTheDeadStayDownForANewHolder(t *testing.T) {
	t.Parallel()
	w := newWard(t, 2)
	w.fleet[0].Stored = HealthDown
	w.watch.Holds(7)
	for range 40 {
		w.rounds(1, 1).is(HealthDown, Healthy)
	}
	w.rounds(1, 0, 1).is(Healthy, Healthy)
}

// T20 and R18: another boot begins anew, whatever the last one was.
func TestAnotherBootBeginsAnew(t *testing.T) {
	t.Parallel()
	w := newWard(t, 1).rounds(20).is(HealthDown)
	w.fleet[0].Incarnation, w.fleet[0].Stored = "next", Healthy
	w.rounds(6).is(Healthy)
}

// A registration at its address makes an instance suspect until it is heard of.
func TestAnothersWordStandsUntilItIsHeardOf(t *testing.T) {
	t.Parallel()
	w := newWard(t, 1).rounds(3, 0)
	w.fleet[0].Stored = HealthSuspect
	w.rounds(4).is(HealthSuspect).rounds(1, 0).is(Healthy)
	w = newWard(t, 1)
	w.fleet[0].Beats = 0 // no lease, no probes: a write is all there is to hear
	w.watch = NewWatch(DefaultHealthPolicy())
	w.rounds(1)
	w.fleet[0].Stored = HealthSuspect
	w.rounds(60).is(HealthSuspect)
	w.watch.Wrote(w.fleet[0].Boot)
	w.rounds(1).is(Healthy)
}

// A verdict that could not be stored is told again, and is not taken for another's.
func TestAVerdictNotStoredIsToldAgain(t *testing.T) {
	t.Parallel()
	w := newWard(t, 1).rounds(5)
	for range 3 {
		w.now += time.Second
		if got := w.watch.Round(w.now, w.now, w.fleet).Verdicts[w.fleet[0].Boot]; got != HealthSuspect {
			t.Fatalf("%v is told, want suspect", got)
		}
	}
	w.rounds(1, 0).is(Healthy)
}

// The store's clock may jump: what passed then is unknown.
func TestAStoresClockThatJumpsCountsNoSilence(t *testing.T) {
	t.Parallel()
	w := newWard(t, 1).rounds(1)
	store := w.now
	for i := range 10 {
		w.now += time.Second
		store += time.Second + time.Duration(1-i%2*2)*10*time.Minute
		if found := w.watch.Round(w.now, store, w.fleet); len(found.Verdicts) > 0 {
			t.Fatalf("round %d: %v", i, found.Verdicts)
		}
	}
}

// Who leaves again and again returns after twice the time each time, until it was
// healthy for long.
func TestFlappingDoublesTheTimeToReturn(t *testing.T) {
	t.Parallel()
	w := newWard(t, 1)
	back := func() (n int) {
		w.rounds(6)
		for w.is(HealthSuspect); w.fleet[0].Stored != Healthy; n++ {
			w.rounds(1, 0)
		}
		return n
	}
	for i, want := range []int{1, 11, 21, 41, 81, 161, 301, 301} {
		if got := back(); got != want {
			t.Fatalf("return %d takes %d s, want %d", i, got, want)
		}
	}
	w.watch = NewWatch(w.watch.policy) // of the next holder of the lease
	if w.rounds(200, 0); back() != 301 {
		t.Error("a change of the holder forgives it")
	}
	w.rounds(299, 0)
	if w.fleet[0].Flaps == 0 {
		t.Error("it is forgiven before it was healthy for five minutes")
	}
	w.rounds(1, 0)
	w.watch = NewWatch(w.watch.policy)
	if w.rounds(1, 0); back() != 1 {
		t.Error("it is still held for flapping after five minutes of health")
	}
}
