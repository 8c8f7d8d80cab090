package services

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/statestore"
)

func promised(version uint64) statestore.Floor {
	return statestore.Floor{Epoch: 7, Version: version, Op: statestore.OpDigest{byte(version)}}
}

// booked is what was counted so far.
func booked(t *testing.T, l *losses) (found, back float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(l.detected, l.repaired)
	got := gathered(t, registry)
	return got["detected"], got["repaired"]
}

func newTestLosses() *losses {
	return newLosses(prometheus.NewCounter(prometheus.CounterOpts{Name: "detected"}), prometheus.NewCounter(prometheus.CounterOpts{Name: "repaired"}))
}

// Callers that were promised more add what was not counted; another history counts
// one version; and after an hour of silence the same is another loss.
func TestWhatOfALossIsCounted(t *testing.T) {
	t.Parallel()
	l, d, now := newTestLosses(), statestore.SessionDigest{1}, time.Now()
	for i, c := range []struct {
		want, have uint64
		after      time.Duration
		sum        float64
	}{
		{want: 5, have: 3, sum: 2},
		{want: 5, have: 3, sum: 2},
		{want: 4, have: 3, sum: 2},
		{want: 9, have: 3, sum: 6},
		{want: 9, have: 4, after: 59 * time.Minute, sum: 6},
		{want: 9, have: 4, after: 59 * time.Minute, sum: 6},
		{want: 9, have: 4, after: time.Hour, sum: 11},
		{want: 9, have: 12, after: time.Hour, sum: 12},
	} {
		now = now.Add(c.after)
		l.saw(d, promised(c.want), c.have, now)
		if found, _ := booked(t, l); found != c.sum {
			t.Fatalf("step %d: %v detected, want %v", i, found, c.sum)
		}
	}
	l.wrote(d, promised(5).Op, promised(4))
	l.wrote(statestore.SessionDigest{2}, promised(9).Op, promised(8))
	if _, back := booked(t, l); back != 0 || !l.some.Load() {
		t.Fatalf("%v repaired by writes of others", back)
	}
	l.wrote(d, promised(9).Op, promised(8))
	if _, back := booked(t, l); back != 1 || l.some.Load() {
		t.Errorf("%v repaired, want the one of the last loss", back)
	}
}

// A store that lost everything does not fill the memory of this process.
func TestLossesAreBounded(t *testing.T) {
	t.Parallel()
	l := newTestLosses()
	for i := range uint64(lossLimit + 1000) {
		var d statestore.SessionDigest
		binary.BigEndian.PutUint64(d[:], i)
		l.saw(d, promised(2), 1, time.Now())
	}
	if n := len(l.open); n != lossLimit {
		t.Errorf("%d losses are remembered, want %d", n, lossLimit)
	}
	if found, _ := booked(t, l); found != lossLimit+1000 {
		t.Errorf("%v are counted", found)
	}
}
