package boltstore_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/statestore"
	"berth/statestore/boltstore"
)

var benchLives = statestore.Lifetimes{Affinity: time.Hour, Retention: 24 * time.Hour, Tombstone: 25 * time.Hour}

// writer appends to one session, one after the other.
type writer struct {
	s      statestore.Store
	key    statestore.SessionKey
	by     statestore.Owner
	handle statestore.Presented
	n      int
}

func newWriter(s statestore.Store, id string) *writer {
	return &writer{
		s: s, key: statestore.SessionKey{Tenant: "default", Pool: "default", ID: id},
		by: statestore.Owner{Instance: "i1", Incarnation: "0123456789abcdef"},
	}
}

func (w *writer) append(tb testing.TB, value []byte) {
	w.appendTurns(tb, []statestore.Turn{{Type: statestore.TurnBytes, Value: value, Tokens: 1000}})
}

func (w *writer) appendTurns(tb testing.TB, turns []statestore.Turn) {
	w.n++
	r, err := w.s.Append(tb.Context(), statestore.Append{
		Key: w.key, By: w.by, Handle: w.handle, Op: "op-" + strconv.Itoa(w.n),
		Turns: turns, Lifetimes: benchLives,
	})
	if err != nil {
		tb.Error(err)
		return
	}
	w.handle = statestore.Presented{Floor: r.Floor}
}

func openBench(b *testing.B) *boltstore.Store {
	b.Helper()
	s, err := boltstore.Open(b.Context(), filepath.Join(b.TempDir(), "store"), boltstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// noise is what compression does not shorten: the worst case of a turn.
func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// Appends of 4 KiB, each to a session of its own at the same time.
func BenchmarkAppend4KiB(b *testing.B) {
	value := noise(4096)
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := openBench(b)
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for i := range writers {
				wg.Go(func() {
					w := newWriter(s, "session "+strconv.Itoa(i))
					for left.Add(-1) >= 0 {
						w.append(b, value)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		})
	}
}

// The cost of an append must not grow with its session: a session of ten thousand
// turns and new ones take turns of 4 KiB in one run, one each.
func BenchmarkAppendToALongSession(b *testing.B) {
	s, value := openBench(b), noise(4096)
	var long *writer
	var early, late time.Duration
	n := 0
	for b.Loop() {
		if n%5000 == 0 { // before it is too large
			b.StopTimer()
			long = longSession(b, s, value, strconv.Itoa(n))
			b.StartTimer()
		}
		early += timed(b, newWriter(s, "new "+strconv.Itoa(n)), value)
		late += timed(b, long, value)
		n++
	}
	b.ReportMetric(float64(early.Microseconds())/float64(n), "µs/turn-1")
	b.ReportMetric(float64(late.Microseconds())/float64(n), "µs/turn-10000")
	b.ReportMetric(late.Seconds()/early.Seconds(), "ratio")
}

// longSession has ten thousand turns.
func longSession(b *testing.B, s statestore.Store, value []byte, id string) *writer {
	w := newWriter(s, "long "+id)
	for range 10 {
		w.appendTurns(b, slices.Repeat([]statestore.Turn{{Type: statestore.TurnBytes, Value: value}}, 1000))
	}
	return w
}

func timed(b *testing.B, w *writer, value []byte) time.Duration {
	start := time.Now()
	w.append(b, value)
	return time.Since(start)
}
