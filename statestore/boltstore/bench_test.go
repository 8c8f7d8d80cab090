package boltstore_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
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
	w.n++
	r, err := w.s.Append(tb.Context(), statestore.Append{
		Key: w.key, By: w.by, Handle: w.handle, Op: "op-" + strconv.Itoa(w.n),
		Turns:     []statestore.Turn{{Type: statestore.TurnBytes, Value: value, Tokens: 1000}},
		Lifetimes: benchLives,
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
