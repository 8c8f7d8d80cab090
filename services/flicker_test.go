package services

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/statestore"
	"berth/statestore/boltstore"
)

// flickering is a store whose fleet is a test's. It takes note of what the fleet's
// image was built of before each read.
type flickering struct {
	statestore.Store
	registry
	fleet  atomic.Pointer[fleet]
	builds []build // guarded by the fleet's turn
}

// build is one time that pools were built: when it ended, and how long the next has
// to wait after that, both in ns.
type build struct {
	members   uint64
	end, rest int64
}

func (f *flickering) FleetView(ctx context.Context) (statestore.FleetView, error) {
	if fleet := f.fleet.Load(); fleet != nil {
		f.note(fleet)
	}
	return f.registry.FleetView(ctx)
}

func (f *flickering) note(fleet *fleet) {
	n, members := len(f.builds), fleet.now().built
	if n == 0 || f.builds[n-1].members != members {
		f.builds = append(f.builds, build{members, fleet.ended.Load(), fleet.rest.Load()})
	}
}

// flip lets one instance come or go.
func (f *flickering) flip(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := fmt.Sprintf("p-%d", i)
	without := slices.DeleteFunc(slices.Clone(f.view.Instances), func(in statestore.Instance) bool { return in.ID == id })
	if len(without) == len(f.view.Instances) {
		f.add("p", i, i+1)
		return
	}
	f.view.Instances = without
	f.view.Version++
	f.view.Members++
}

// flicker lets fifty instances come or go ten times a second, each told as the feed
// and a registration tell it, and returns how many changes that were.
func (f *flickering) flicker(ctx context.Context, t *testing.T) (changes int) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		for i := range 50 {
			f.flip(10 * i)
			changes++
			f.fleet.Load().nudge()
			if i%10 == 0 {
				if err := f.fleet.Load().refresh(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return changes
		}
	}
}

// routes asks a thousand times a second, and returns the 99th percentile of the
// answers' times.
func routes(ctx context.Context, t *testing.T, handler http.Handler) time.Duration {
	var mu sync.Mutex
	var took []time.Duration
	var askers sync.WaitGroup
	for k := range 4 {
		askers.Go(func() {
			tick := time.NewTicker(4 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, fmt.Sprintf("/route?pool=p&session=s%d", n%500*4+k), nil)
				began := time.Now()
				handler.ServeHTTP(w, r)
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
				if w.Code != http.StatusOK {
					t.Errorf("%d %s", w.Code, w.Body)
					return
				}
				<-tick.C
			}
		})
	}
	askers.Wait()
	slices.Sort(took)
	return took[len(took)*99/100]
}

// Case R08: while fifty of five hundred instances come and go, their ring is built
// again at most once in ten times of what that took, and once for all that changed
// meanwhile; and a thousand routes a second do not feel it.
func TestAFlickeringFleetIsRebuiltSeldomAndRoutesDoNotFeelIt(t *testing.T) {
	bolt, err := boltstore.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bolt.Close() })
	store := &flickering{Store: bolt}
	store.add("p", 0, 500)
	s, err := New(t.Context(), Options{
		Store: store, Process: "p1", Logger: slog.New(slog.DiscardHandler), StoreTimeout: time.Minute, CacheTTL: time.Hour, MissRate: 1_000_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	store.fleet.Store(s.fleet)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.fleet.run(ctx, func(err error) { t.Error(err) }) })
	during := func(span time.Duration) time.Duration {
		ctx, end := context.WithTimeout(ctx, span)
		defer end()
		return routes(ctx, t, s.Handler())
	}
	during(time.Second) // every session was read
	before, changes := s.fleet.now().pools["p"].rebuilds, 0
	quiet, busy := time.Duration(0), time.Hour // the slowest of the one, the quickest of the other
	felt := func() bool { return busy > max(5*time.Millisecond, 5*quiet) }
	for round := 0; round < 3 || round < 10 && felt(); round++ { // one that is slow may be the machine's
		quiet = max(quiet, during(500*time.Millisecond))
		var flickers sync.WaitGroup
		flicker, enough := context.WithCancel(ctx)
		flickers.Go(func() { changes += store.flicker(flicker, t) })
		busy = min(busy, during(time.Second))
		enough()
		flickers.Wait()
	}
	stop()
	running.Wait()
	store.note(s.fleet)
	rebuilds := s.fleet.now().pools["p"].rebuilds - before
	t.Logf("%d changes, %d builds, %d of them of the ring; p99 %s, and %s meanwhile", changes, len(store.builds)-1, rebuilds, quiet, busy)
	for i := 1; i < len(store.builds); i++ {
		last, next := store.builds[i-1], store.builds[i]
		if waited := next.end - last.end; waited < last.rest || next.rest == 0 {
			t.Errorf("built again after %v, should be %v at least", time.Duration(waited), time.Duration(last.rest))
		}
	}
	if n := uint64(len(store.builds) - 1); rebuilds == 0 || rebuilds > n || int(n)*2 > changes {
		t.Errorf("%d rings in %d builds for %d changes", rebuilds, n, changes)
	}
	if felt() {
		t.Errorf("p99 of a route is %s while the fleet flickers, and %s while it does not", busy, quiet)
	}
}
