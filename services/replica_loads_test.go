package services_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Case R40: the load that one replica is told bounds the decisions of the other
// within a second, whenever it comes, with no scraping; and when the first is gone,
// with the health lease, the other goes on without a gap.
func TestLoadToldToOneReplicaBoundsTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := openStore(t)
		a := start(t, store, usual, patient)
		var workers []*worker
		for i := range 4 {
			workers = append(workers, a.worker(fmt.Sprintf("i%d", i)))
		}
		time.Sleep(3 * time.Second) // a holds the health lease
		b := start(t, store, usual, patient)
		hot := workers[0]
		// hinted is how many of 50 new sessions the other replica sends to the hot one.
		hinted := func() (n int) {
			for range 50 {
				got := b.route(fmt.Sprint("other-", serial.Add(1))).want(200)
				if got.str("degraded") != "" {
					t.Fatalf("degraded: %s", got.body)
				}
				if got.str("instance") == hot.id {
					n++
				}
			}
			return n
		}
		loads := func(at *bundle) {
			t.Helper()
			for i := range 10 {
				hot.at(at).beat(0)
				time.Sleep(time.Second)
				if hinted() == 0 {
					t.Fatalf("round %d: a second after its load fell it is still passed by", i)
				}
				hot.at(at).beat(200)
				time.Sleep(time.Second)
				if n := hinted(); n > 0 {
					t.Fatalf("round %d: a second after its load rose %d of 50 still go there", i, n)
				}
				time.Sleep(70 * time.Millisecond) // another moment of whatever goes by the clock
			}
		}
		for _, w := range workers[1:] {
			w.beat(2)
		}
		loads(a)
		a.stop()
		for i := range 200 { // longer than a lease lasts
			if n := hinted(); n > 0 {
				t.Fatalf("%d ms after the other replica ended %d of 50 go to the hot instance", 50*i, n)
			}
			time.Sleep(50 * time.Millisecond)
		}
		loads(b)
		b.stop()
	})
}
