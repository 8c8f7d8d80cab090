package services_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/services"
	"berth/statestore"
)

// Case R17: with the store away, or too slow, routes still answer: in bounded
// time, the same on every process, and what was bound before wins afterwards.
func TestRoutesAnswerWithoutTheStore(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(context.Context, string) error{"away": away, "hung": hung} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			short := func(o *services.Options) { o.StoreTimeout = 250 * time.Millisecond }
			b, store := setupFaulty(t, short)
			second := setupOn(t, store, short)
			owner, other := b.open("bound", b.worker("i1"), b.worker("i2"))
			b.call("POST", "/v1/instances/"+owner.id+"/cordon", "").want(200) // the ring would not choose it
			for _, p := range []*bundle{b, second} {
				p.call("GET", "/v1/instances", "").want(200) // sees the fleet
				eventually(t, "the binding is cached", func() bool {
					a := p.route("bound").want(200)
					return a.str("instance") == owner.id && a.str("degraded") == ""
				})
			}
			store.fail(fault)
			var slowest time.Duration
			for i := range 5 {
				started := time.Now()
				a := b.route(fmt.Sprint("new-", i)).want(200)
				slowest = max(slowest, time.Since(started))
				if a.str("degraded") != "store_unavailable" || a.str("valid_ms") != "0" || a.str("handle") == "" || a.str("new") != "" {
					t.Fatalf("without the store: %s", a.body)
				}
				if again := second.route(fmt.Sprint("new-", i)).want(200); again.str("instance") != a.str("instance") {
					t.Fatalf("two processes say %s and %s", a.str("instance"), again.str("instance"))
				}
			}
			if slowest > 20*time.Second { // a quarter of one, on a machine that does not stand still
				t.Errorf("the slowest route took %v", slowest)
			}
			held := b.route("bound", "&exclude="+other.id).want(200)
			if held.str("instance") != owner.id || held.str("reason") != "bound" || held.str("degraded") != "store_unavailable" {
				t.Fatalf("a cached binding does not hold: %s", held.body)
			}
			b.call("GET", "/readyz", "").want(200)
			b.call("GET", "/livez", "").want(200)
			store.fail(nil)
			eventually(t, "the store answers again", func() bool {
				a := second.route("bound", "&exclude="+other.id).want(200)
				return a.str("instance") == owner.id && a.str("degraded") == ""
			})
			owner.append("bound", "second", held.str("handle"), `2`).want(200)
		})
	}
}

// While the feed cannot be followed nothing tells what has changed, and what is
// cached is all that is known. Once it is followed again, nothing of it counts.
func TestTheCacheOutlivesTheFeedUntilItIsBack(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t, func(o *services.Options) { o.CacheTTL, o.StoreTimeout = time.Hour, 250*time.Millisecond })
	owner, other := b.open("s", b.worker("i1"), b.worker("i2"))
	eventually(t, "the feed is followed and the binding cached", func() bool {
		b.route("s").want(200)
		return store.watch.Load() != nil && owner.beat(0).status == 200 && b.route("s").str("reason") == "bound"
	})
	b.call("POST", "/v1/instances/"+owner.id+"/cordon", "").want(200) // the ring would not choose it
	floor := b.floor("s")
	var tries atomic.Int64
	store.fail(func(ctx context.Context, call string) error {
		if call == "watch" {
			tries.Add(1)
		}
		return away(ctx, call)
	})
	(*store.watch.Load())()
	eventually(t, "the feed is asked for in vain", func() bool { return tries.Load() > 1 })
	if a := b.route("s").want(200); a.str("instance") != owner.id || a.str("reason") != "bound" {
		t.Fatalf("what was cached is gone: %s", a.body)
	}
	claim := statestore.Claim{
		Key: statestore.SessionKey{Tenant: "default", Pool: "default", ID: "s"}, Handle: &statestore.Presented{Floor: floor, Named: true},
		By:        statestore.Owner{Instance: other.id, Incarnation: statestore.IncarnationDigest(other.incarnation)},
		Lifetimes: statestore.Lifetimes{Affinity: time.Hour, Retention: time.Hour, Tombstone: time.Hour},
	}
	if _, err := store.Store.Claim(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	store.fail(nil)
	eventually(t, "the claim that nobody told of is seen", func() bool { return b.route("s").want(200).str("instance") == other.id })
}

// Nobody waits for a store that others waited for in vain just now, but for one
// miss a second and whoever comes with a handle.
func TestMissesDoNotWaitInTurnForAHungStore(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t, func(o *services.Options) { o.StoreTimeout = 250 * time.Millisecond })
	b.worker("i1")
	h := ""
	eventually(t, "misses are answered in time", func() bool {
		a := b.route("held").want(200)
		h = a.str("handle")
		return a.str("degraded") == ""
	})
	var waited atomic.Int64
	store.fail(func(ctx context.Context, call string) error {
		if call == "lookup" {
			waited.Add(1)
		}
		return hung(ctx, call)
	})
	started := time.Now()
	for i := range 40 {
		if a := b.route(fmt.Sprint("new-", i)).want(200); a.str("degraded") != "store_unavailable" || a.str("instance") != "i1" {
			t.Fatalf("without the store: %s", a.body)
		}
	}
	if n, most := waited.Load(), 1+int64(time.Since(started)/time.Second); n < 1 || n > most {
		t.Errorf("%d of 40 misses waited, want at least 1 and at most %d", n, most)
	}
	before := waited.Load()
	b.call("GET", "/route?session=held", "", "X-Berth-Handle: "+h).want(200)
	if waited.Load() == before {
		t.Error("a route with a handle did not read")
	}
	store.fail(nil)
	eventually(t, "misses read again", func() bool { return b.route("other").want(200).str("degraded") == "" })
}

// The bound on the time is the option, 100 ms by default: nobody waits for a store
// that does not answer, however many ask.
func TestManyRoutesWaitForAHungStoreTogether(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t, func(o *services.Options) { o.StoreTimeout = time.Second })
	b.worker("i1")
	store.fail(hung)
	started := time.Now()
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() { b.route(fmt.Sprint("s-", i%10)).want(200) })
	}
	all.Wait()
	if took := time.Since(started); took > 30*time.Second { // one after the other they take 100 s
		t.Fatalf("100 routes took %v", took)
	}
}

// Writes are refused, never said to be saved, and the same op settles it later.
func TestWritesAreRefusedWithoutTheStore(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t)
	w := b.worker("i1")
	h := b.route("s").want(200).str("handle")
	store.fail(away)
	if a := w.append("s", "op", h, `1`).refused(503, "store_unavailable"); a.str("op") != "op" || a.header.Get("Retry-After") == "" {
		t.Fatalf("append: %s", a.body)
	}
	store.fail(nil)
	if a := w.append("s", "op", h, `1`).want(200); a.str("version") != "1" || a.str("duplicate") != "" {
		t.Fatalf("again: %s", a.body)
	}
}

// Without the store a route cannot hold the caller's handle against the record, so
// its answer carries both what the caller holds and what is cached.
func TestADegradedRouteForgetsNoFloor(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t)
	w := b.worker("i1")
	w.append("s", "first", b.route("s").want(200).str("handle"), `1`).want(200)
	b.route("s").want(200) // cached at version 1
	truth := b.floor("s")
	ahead := truth
	ahead.Version += 7 // promised by a store that lost it since
	lost := b.routeHandle("s", ahead)

	store.fail(away)
	hint := b.call("GET", "/route?session=s", "", "X-Berth-Handle: "+lost).want(200)
	if hint.str("degraded") != "store_unavailable" || hint.str("version") != fmt.Sprint(ahead.Version) {
		t.Fatalf("a lower floor than the caller's: %s", hint.body)
	}
	again := b.call("GET", "/route?session=s", "", "X-Berth-Handle: "+hint.str("handle")).want(200)
	store.fail(nil)
	for _, h := range []string{hint.str("handle"), again.str("handle")} {
		w.append("s", "second", h, `2`).refused(409, "store_behind")
		w.recover("s", h, "read").refused(409, "store_behind")
	}
	// The cache may be ahead, and of another history than what the caller holds.
	h := w.append("s", "second", b.routeHandle("s", truth), `2`).want(200).str("handle")
	w.append("s", "third", h, `3`).want(200)
	eventually(t, "version 3 is cached", func() bool { return b.route("s").want(200).str("version") == "3" })
	store.fail(away)
	elsewhere := truth
	elsewhere.Version, elsewhere.Op = 2, statestore.DigestOp("of a history that was lost")
	hint = b.call("GET", "/route?session=s", "", "X-Berth-Handle: "+b.routeHandle("s", elsewhere)).want(200)
	store.fail(nil)
	if hint.str("degraded") != "store_unavailable" || hint.str("version") != "3" {
		t.Fatalf("a lower floor than the cache's: %s", hint.body)
	}
	w.append("s", "fourth", hint.str("handle"), `4`).refused(409, "store_behind")
	// What was behind only the cache is no loss.
	store.fail(away)
	behind := b.call("GET", "/route?session=s", "", "X-Berth-Handle: "+b.routeHandle("s", truth)).want(200).str("handle")
	store.fail(nil)
	w.append("s", "fourth", behind, `4`).want(200)
}

// Case R21: ids that nobody will use again fill nothing up, store nothing, and do
// not keep real sessions out.
func TestRandomIDsFillNothing(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t, func(o *services.Options) { o.MissRate, o.CacheEntries = 400, 1000 })
	owner, other := b.open("real", b.worker("i1"), b.worker("i2"))
	before := b.stored()
	lookups := store.calls.Load()
	var reasons [4]map[string]int
	var all sync.WaitGroup
	started := time.Now()
	for g := range reasons {
		reasons[g] = map[string]int{}
		all.Go(func() {
			for i := range 2500 {
				a := b.route(fmt.Sprintf("random-%d-%d", g, i)).want(200)
				reasons[g][a.str("degraded")]++
			}
		})
	}
	all.Wait()
	took := time.Since(started)
	if b.stored() != before {
		t.Fatal("a route stored something")
	}
	if allowed := 100 + int64(400*(took.Seconds()+1)); store.calls.Load()-lookups > allowed {
		t.Errorf("%d reads of the store in %v, allowed are %d", store.calls.Load()-lookups, took, allowed)
	}
	for _, r := range reasons {
		for word := range r {
			if !slices.Contains([]string{"", "miss_budget"}, word) {
				t.Errorf("degraded %q", word)
			}
		}
	}
	first := b.route("a+new+one").want(200)
	w := map[string]*worker{owner.id: owner, other.id: other}[first.str("instance")]
	w.append("a%20new%20one", "op", first.str("handle"), `1`).want(200)
	if a := b.route("real").want(200); a.str("instance") != owner.id && a.str("degraded") != "miss_budget" {
		t.Fatalf("the session of before: %s", a.body)
	}
	// Whoever comes with a handle is never turned away by the budget.
	if a := b.call("GET", "/route?session=real", "", "X-Berth-Handle: "+b.routeHandle("real", b.floor("real"))).want(200); a.str("instance") != owner.id || a.str("degraded") != "" {
		t.Fatalf("with a handle: %s", a.body)
	}
}
