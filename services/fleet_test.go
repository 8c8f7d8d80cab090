package services

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/routing"
	"berth/statestore"
)

// registry is a fleet as a test wants it.
type registry struct {
	mu    sync.Mutex
	view  statestore.FleetView
	reads int
	hold  chan struct{}
}

func (r *registry) FleetView(ctx context.Context) (statestore.FleetView, error) {
	r.mu.Lock()
	r.reads++
	view, hold := r.view, r.hold
	r.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return view, ctx.Err()
		}
	}
	return view, nil
}

// put replaces the policy of a pool.
func (r *registry) put(pool, doc string) {
	policies := maps.Clone(r.view.Policies)
	if policies == nil {
		policies = map[string]statestore.Policy{}
	}
	policies[pool] = statestore.Policy{Version: policies[pool].Version + 1, Doc: []byte(doc)}
	r.view.Policies = policies
	r.view.Version++
	r.view.Members++
}

// add puts the ready instances from..to-1 into a pool.
func (r *registry) add(pool string, from, to int) {
	for i := from; i < to; i++ {
		r.view.Instances = append(r.view.Instances, statestore.Instance{
			InstanceSpec: statestore.InstanceSpec{ID: fmt.Sprintf("%s-%d", pool, i), Pool: pool, Incarnation: "x", Address: "10.0.0.1:80", Weight: 100},
			Lifecycle:    statestore.Ready,
		})
	}
	r.view.Version++
	r.view.Members++
}

// load gives every instance of a pool a load, and nothing else.
func (r *registry) load(pool string, running int) {
	r.view.Instances = slices.Clone(r.view.Instances)
	for i := range r.view.Instances {
		if in := &r.view.Instances[i]; in.Pool == pool {
			in.LastBeat.Running = running
			in.Beats++
		}
	}
	r.view.Version++
}

// Heartbeats move loads, and rebuild neither ring nor policy.
func TestOtherLoadsShareTheRing(t *testing.T) {
	t.Parallel()
	r := new(registry)
	r.add("a", 0, 3)
	r.add("b", 0, 2)
	r.put("a", `{"retention_ms":7200000}`)
	f := newFleet(r)
	if err := f.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := f.now()
	r.load("a", 7)
	if err := f.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := f.now()
	for name, running := range map[string]int{"a": 7, "b": 0} {
		was, is := before.pools[name], after.pools[name]
		if is.snapshot.Ring() != was.snapshot.Ring() || is.policy != was.policy {
			t.Errorf("pool %s: its ring or policy was built again", name)
		}
		if v := is.snapshot.LoadVersion(); v != r.view.Version || is.snapshot.Version() != v || was.snapshot.Version() == v {
			t.Errorf("pool %s: versions %d and %d of view %d", name, is.snapshot.Version(), v, r.view.Version)
		}
		in := is.snapshot.Lookup(name + "-0")
		if in.Load.Running != running || was.snapshot.Lookup(name+"-0").Load.Running != 0 {
			t.Errorf("pool %s: %d running", name, in.Load.Running)
		}
	}
	if in := after.instances["a-1"]; in.LastBeat.Running != 7 || in.Beats != 1 {
		t.Errorf("the instance: %+v", in)
	}
}

// What the holder of the health lease concluded is what every process decides by.
func TestVerdictsReachTheSnapshot(t *testing.T) {
	t.Parallel()
	r := new(registry)
	r.add("p", 0, 2)
	f := newFleet(r)
	for name, c := range map[string]struct {
		verdict  statestore.Verdict
		state    routing.State
		breaker  routing.Breaker
		ramp     int
		eligible bool
	}{
		"nothing":         {statestore.Verdict{}, routing.Ready, routing.BreakerClosed, 0, true},
		"suspect":         {statestore.Verdict{Health: statestore.Suspect}, routing.Suspect, routing.BreakerClosed, 0, false},
		"down":            {statestore.Verdict{Health: statestore.Down}, routing.Down, routing.BreakerClosed, 0, false},
		"open":            {statestore.Verdict{Breaker: statestore.BreakerOpen}, routing.Ready, routing.BreakerOpen, 0, false},
		"on trial":        {statestore.Verdict{Breaker: statestore.BreakerTrial, Trial: 1}, routing.Ready, routing.BreakerTrial, 0, false},
		"saturated":       {statestore.Verdict{Breaker: statestore.BreakerSaturated}, routing.Ready, routing.BreakerSaturated, 0, false},
		"of a later time": {statestore.Verdict{Breaker: "melted"}, routing.Ready, routing.BreakerClosed, 0, true},
		"ramping":         {statestore.Verdict{RampPercent: 30}, routing.Ready, routing.BreakerClosed, 30, true},
		"not let in yet":  {statestore.Verdict{RampPercent: -1}, routing.Ready, routing.BreakerClosed, -1, false},
	} {
		r.view.Instances = slices.Clone(r.view.Instances)
		r.view.Instances[0].Verdict = c.verdict
		r.view.Version++
		r.view.Members++
		if err := f.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		snapshot := f.now().pools["p"].snapshot
		in := snapshot.Lookup("p-0")
		if in.State != c.state || in.Breaker != c.breaker || in.RampPercent != c.ramp || snapshot.Eligible("p-0") != c.eligible {
			t.Errorf("%s: %+v, eligible %v", name, in, snapshot.Eligible("p-0"))
		}
	}
}

// A pool whose policy makes no sense must not hold up the others, nor its own
// instances; what is wrong is told once.
func TestABrokenPolicyHoldsUpNobody(t *testing.T) {
	t.Parallel()
	policies := map[string]string{
		"broken": `{"retention_ms":`,
		"absurd": `{"ring":{"slots":3}}`,
		"fine":   `{"retention_ms":7200000}`,
	}
	r := new(registry)
	for name, doc := range policies {
		r.put(name, doc)
		r.add(name, 0, 2)
	}
	f := newFleet(r)
	err := f.poll(t.Context())
	if err == nil || !strings.Contains(err.Error(), "broken") || !strings.Contains(err.Error(), "absurd") || strings.Contains(err.Error(), "fine") {
		t.Fatalf("told %v", err)
	}
	for name := range policies {
		if p := f.now().pools[name]; p == nil || p.snapshot.Len() != 2 || !p.snapshot.Eligible(name+"-0") {
			t.Errorf("pool %s: %+v", name, p)
		}
	}
	if got := f.now().pools["fine"].policy.lifetimes.Retention.Hours(); got != 2 {
		t.Errorf("retention of the pool that is fine: %v hours", got)
	}
	if err := f.poll(t.Context()); err != nil {
		t.Errorf("told again: %v", err)
	}
	r.add("absurd", 2, 5)
	if err := f.poll(t.Context()); err != nil || f.now().pools["absurd"].snapshot.Len() != 5 {
		t.Errorf("a broken pool does not follow its members: %v", err)
	}
	r.put("broken", `{"retention_ms":3600000}`)
	if err := f.poll(t.Context()); err != nil || f.now().pools["broken"].policy.lifetimes.Retention.Hours() != 1 {
		t.Errorf("a mended pool stays broken: %v", err)
	}
	r.put("broken", `[]`)
	if err := f.poll(t.Context()); err == nil || f.now().pools["broken"].policy.lifetimes.Retention.Hours() != 1 {
		t.Errorf("a policy that cannot be read does not leave the last one in force: %v", err)
	}
}

// A pool that was deleted is gone; one that the store lost, or never was told of, stays
// until the instances come again.
func TestOnlyDeletedPoolsGo(t *testing.T) {
	t.Parallel()
	r := new(registry)
	r.put("deleted", `{}`)
	r.put("lost", `{}`)
	r.add("untold", 0, 1)
	f := newFleet(r)
	sees := func(when string, want ...string) {
		t.Helper()
		r.view.Version++
		if err := f.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(f.now().pools)); !slices.Equal(got, want) {
			t.Errorf("%s: pools %v, want %v", when, got, want)
		}
	}
	sees("at first", "deleted", "lost", "untold")
	r.view.Instances = nil
	r.view.Members++
	sees("without instances", "deleted", "lost", "untold")
	r.view.Policies = map[string]statestore.Policy{"lost": r.view.Policies["lost"]}
	r.view.Members++
	sees("deleted", "lost", "untold")
	r.view = statestore.FleetView{}
	sees("of an empty store", "lost", "untold")
	r.put("lost", `{}`)
	sees("told again", "lost", "untold")
	r.view.Policies = nil
	r.view.Members++
	sees("deleted then", "untold")
}

// A fleet has only so many pools: each has a ring in every process.
func TestOnlySoManyPools(t *testing.T) {
	t.Parallel()
	s := &Server{fleet: newFleet(new(registry))}
	image := &fleetImage{loaded: true, pools: map[string]*pool{}}
	for i := range maxPools - 1 {
		image.pools[fmt.Sprint("p-", i)] = &pool{}
	}
	s.fleet.image.Store(image)
	if err := s.mayJoin("i1", "new", &principal{}); err != nil {
		t.Errorf("the last pool: %v", err)
	}
	image.pools["new"] = &pool{}
	var large *statestore.TooLargeError
	if err := s.mayJoin("i1", "another", &principal{}); !errors.As(err, &large) || large.Limit != maxPools {
		t.Errorf("one too many: %v", err)
	}
	if err := s.mayJoin("i1", "new", &principal{}); err != nil {
		t.Errorf("a pool that is there: %v", err)
	}
}

// A model that two pools list means the same one in every process.
func TestAModelListedTwiceMeansOnePool(t *testing.T) {
	t.Parallel()
	r := new(registry)
	for _, name := range []string{"b", "c", "a"} {
		r.put(name, `{"models":["m"]}`)
	}
	for range 20 {
		f := newFleet(r)
		err := f.poll(t.Context())
		if f.now().models["m"] != "a" {
			t.Fatalf("m means %q", f.now().models["m"])
		}
		if err == nil || !strings.Contains(err.Error(), `pool b: "m" already means pool a`) || !strings.Contains(err.Error(), `pool c: "m" already means pool a`) {
			t.Fatalf("told %v", err)
		}
	}
}

// Whoever asks while others wait is served by a read that began after it asked.
func TestReadsOfTheRegistryAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &registry{hold: make(chan struct{})}
		f := newFleet(r)
		var all sync.WaitGroup
		all.Go(func() {
			if err := f.refresh(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // it reads
		for range 50 {
			all.Go(func() {
				if err := f.refresh(t.Context()); err != nil {
					t.Error(err)
				}
				if f.now().instances["late-0"] == nil {
					t.Error("the read began before the question")
				}
			})
		}
		synctest.Wait()
		r.mu.Lock()
		r.add("late", 0, 1)
		r.mu.Unlock()
		close(r.hold)
		all.Wait()
		if r.reads != 2 {
			t.Fatalf("%d reads for 51 who asked", r.reads)
		}
	})
}

// A registry that does not answer holds nobody longer than its own patience, also
// those who wait for another's read.
func TestNobodyWaitsForAnothersRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &registry{hold: make(chan struct{})}
		f := newFleet(r)
		patient := make(chan error, 1)
		go func() { patient <- f.poll(t.Context()) }()
		synctest.Wait()
		hasty, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- f.refresh(hasty) }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the hasty: %v", err)
		}
		if err := <-patient; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the patient: %v", err)
		}
	})
}

// A long poll leaves nothing behind, and no event falls between two looks.
func TestWakeupsAreThereWhileSomebodyWaits(t *testing.T) {
	t.Parallel()
	w := newWakeups()
	a, b := w.join("x"), w.join("x")
	first := w.event(a)
	w.wake("x")
	w.wake("y")
	<-first
	second := w.event(b)
	w.all()
	<-second
	w.leave("x", a)
	w.leave("x", b)
	if len(w.topics) != 0 {
		t.Fatalf("left behind: %v", w.topics)
	}
	w.wake("x")
}

// Case R08: what costs much to rebuild is rebuilt at once after a quiet time, and
// then at most once in ten times of what it took, however often it changes.
func TestALargeFleetIsNotRebuiltAtEveryChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := new(registry)
		r.add("p", 0, 2)
		f := newFleet(r)
		reads := func() int {
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.reads
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.run(ctx, func(err error) { t.Error(err) })
		if n := reads(); n != 1 {
			t.Fatalf("%d reads at the start", n)
		}
		f.tire(largeFleet, 30*time.Millisecond)
		if f.rested() {
			t.Fatal("rested at once")
		}
		f.nudge()
		if n := reads(); n != 2 {
			t.Fatalf("%d reads after the first change", n)
		}
		for range 29 { // a change every 10 ms
			time.Sleep(10 * time.Millisecond)
			f.nudge()
		}
		if n := reads(); n != 2 {
			t.Fatalf("%d reads within 290 ms", n)
		}
		time.Sleep(20 * time.Millisecond)
		if n := reads(); n != 3 || !f.rested() {
			t.Fatalf("%d reads after 310 ms, rested %v", n, f.rested())
		}
		// Who registers meanwhile is known, and serves when its turn has come.
		f.tire(largeFleet, 30*time.Millisecond)
		r.mu.Lock()
		r.add("p", 2, 3)
		r.mu.Unlock()
		if err := f.refresh(ctx); err != nil || f.now().instances["p-2"] == nil || f.now().pools["p"].snapshot.Len() != 2 {
			t.Fatalf("a refresh in between: %v, %d in the pool", err, f.now().pools["p"].snapshot.Len())
		}
		f.nudge()
		time.Sleep(time.Second)
		if reads(); f.now().pools["p"].snapshot.Len() != 3 {
			t.Fatal("its turn never comes")
		}
	})
}
