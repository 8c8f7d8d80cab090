package services

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/statestore"
)

// records is a store of views, whose lookups a test can hold up.
type records struct {
	mu    sync.Mutex
	views map[statestore.SessionKey]statestore.View
	reads int
	hold  chan struct{} // lookups wait here, after they have looked
}

func (r *records) Lookup(ctx context.Context, key statestore.SessionKey) (statestore.View, error) {
	r.mu.Lock()
	v, hold := r.views[key], r.hold
	r.reads++
	r.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return statestore.View{}, ctx.Err()
		}
	}
	return v, nil
}

func (r *records) put(key statestore.SessionKey, owner string, epoch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.views[key] = statestore.View{Exists: true, Now: noon, Record: statestore.Record{
		Owner: statestore.Owner{Instance: owner, Incarnation: "x"}, Epoch: epoch, Version: epoch,
		AffinityUntil: noon.Add(time.Hour), Expires: noon.Add(time.Hour),
	}}
}

func (r *records) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reads
}

const noon = statestore.Millis(1_900_000_000_000)

var chat = statestore.SessionKey{Tenant: "default", Pool: "default", ID: "chat"}

func newCache(t *testing.T, change func(*Options)) (*bindings, *records) {
	t.Helper()
	store := &records{views: map[statestore.SessionKey]statestore.View{}}
	o := Options{CacheTTL: time.Minute, StoreTimeout: time.Minute}
	if change != nil {
		change(&o)
	}
	c, err := newBindings(store, o.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	return c, store
}

func (c *bindings) mustRead(t *testing.T) *binding {
	t.Helper()
	r, err := c.read(t.Context(), chat, chat.Digest(), true)
	if err != nil {
		t.Fatal(err)
	}
	return r.b
}

// Case R15: a read that began before a move and comes late is not cached over it,
// and whoever asks after the move does not share it.
func TestALateReadDoesNotUndoAMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, store := newCache(t, nil)
		store.put(chat, "i1", 1)
		hold := make(chan struct{})
		store.hold = hold
		late := make(chan *binding)
		go func() {
			r, err := c.read(t.Context(), chat, chat.Digest(), true)
			if err != nil {
				t.Error(err)
			}
			late <- r.b
		}()
		synctest.Wait() // it has looked
		store.hold = nil
		store.put(chat, "i2", 2)
		c.forget(chat.Digest())
		if b := c.mustRead(t); b.owner.Instance != "i2" {
			t.Fatalf("after the move the read says %s", b.owner.Instance)
		}
		close(hold)
		if b := <-late; b.owner.Instance != "i1" {
			t.Fatalf("the late read says %s, so that it was none", b.owner.Instance)
		}
		if b := c.cached(chat.Digest()); b != nil && b.owner.Instance != "i2" {
			t.Fatalf("cached is %s, which is over", b.owner.Instance)
		}
	})
}

func TestAGapInTheFeedEmptiesTheCache(t *testing.T) {
	t.Parallel()
	c, store := newCache(t, nil)
	store.put(chat, "i1", 1)
	c.mustRead(t)
	if c.cached(chat.Digest()) == nil {
		t.Fatal("nothing is cached")
	}
	c.forgetAll()
	if c.cached(chat.Digest()) != nil {
		t.Fatal("something is cached after a gap")
	}
}

// What the feed tells is no longer cached; after a gap nothing is.
func TestTheFeedInvalidates(t *testing.T) {
	t.Parallel()
	other := statestore.SessionKey{Tenant: "default", Pool: "default", ID: "other"}
	cases := map[string]struct {
		event  statestore.Event
		cached bool
	}{
		"this session":    {statestore.Event{Kind: statestore.EventSession, Session: chat.Digest()}, false},
		"another session": {statestore.Event{Kind: statestore.EventSession, Session: other.Digest()}, true},
		"the fleet":       {statestore.Event{Kind: statestore.EventFleet}, true},
		"a gap":           {statestore.Event{Kind: statestore.EventGap}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, store := newCache(t, nil)
			store.put(chat, "i1", 1)
			c.mustRead(t)
			s := &Server{bindings: c, fleet: newFleet(nil), wakeups: newWakeups(), looks: newTaskLooks(time.Minute)}
			s.apply(tc.event)
			if got := c.cached(chat.Digest()) != nil; got != tc.cached {
				t.Errorf("cached %v, want %v", got, tc.cached)
			}
			kind := tc.event.Kind
			if woken := len(s.fleet.wake) == 1; woken != (kind == statestore.EventFleet || kind == statestore.EventGap) {
				t.Errorf("the registry is read again: %v", woken)
			}
		})
	}
}

// A session's own clock says when its binding lapses: that of the store which holds
// the record, not this process's.
func TestABindingLapsesByItsStoresClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, store := newCache(t, func(o *Options) { o.CacheTTL = 24 * time.Hour })
		store.put(chat, "i1", 1) // its clock says noon, far from this one's
		c.mustRead(t)
		time.Sleep(time.Hour - time.Second)
		if b := c.cached(chat.Digest()); b == nil || b.record().Lapsed {
			t.Fatal("the binding lapsed too soon")
		}
		time.Sleep(2 * time.Second)
		if c.cached(chat.Digest()) != nil {
			t.Fatal("the binding outlived its affinity")
		}
		if b := c.stale(chat.Digest()); b != nil && !b.record().Lapsed {
			t.Fatal("a stale binding does not say that it lapsed")
		}
	})
}

func TestACachedBindingIsYoung(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, store := newCache(t, func(o *Options) { o.CacheTTL = 10 * time.Second })
		store.put(chat, "i1", 1)
		c.mustRead(t)
		time.Sleep(9 * time.Second)
		if c.cached(chat.Digest()) == nil {
			t.Fatal("too young to go")
		}
		time.Sleep(2 * time.Second)
		if c.cached(chat.Digest()) != nil {
			t.Fatal("older than it may be")
		}
	})
}

// Many who ask for one session make one read; many sessions keep to the budget.
func TestReadsAreSharedAndBudgeted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, store := newCache(t, func(o *Options) { o.MissRate = 40 })
		store.put(chat, "i1", 1)
		store.hold = make(chan struct{})
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if r, err := c.read(t.Context(), chat, chat.Digest(), true); err != nil || r.b.owner.Instance != "i1" {
					t.Error(r, err)
				}
			})
		}
		synctest.Wait()
		close(store.hold)
		all.Wait()
		if n := store.count(); n != 1 {
			t.Fatalf("%d reads for 50 at the same time", n)
		}
		refused := 0
		for i := range 100 {
			key := statestore.SessionKey{Tenant: "default", Pool: "default", ID: fmt.Sprint(i)}
			if _, err := c.read(t.Context(), key, key.Digest(), false); errors.Is(err, errBudget) {
				refused++
			}
		}
		if refused != 90 {
			t.Fatalf("%d of 100 were refused with a budget of 10 at once", refused)
		}
	})
}

// A caller that gives up leaves the shared read to the others.
func TestASharedReadOutlivesItsFirstCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, store := newCache(t, nil)
		store.put(chat, "i1", 1)
		store.hold = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { _, err := c.read(ctx, chat, chat.Digest(), true); first <- err }()
		synctest.Wait()
		second := make(chan error, 1)
		go func() { _, err := c.read(t.Context(), chat, chat.Digest(), true); second <- err }()
		synctest.Wait()
		cancel()
		if err := <-first; err == nil {
			t.Error("the first caller was not told that it gave up")
		}
		close(store.hold)
		if err := <-second; err != nil || store.count() != 1 {
			t.Errorf("the second: %v after %d reads", err, store.count())
		}
	})
}

// The cache is bounded: ids that come once leave no more than it holds.
func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	c, store := newCache(t, func(o *Options) { o.CacheEntries, o.MissRate = 100, 1_000_000 })
	for i := range 20_000 {
		key := statestore.SessionKey{Tenant: "default", Pool: "default", ID: fmt.Sprint(i)}
		store.put(key, "i1", 1)
		if _, err := c.read(t.Context(), key, key.Digest(), false); err != nil {
			t.Fatal(err)
		}
	}
	c.cache.CleanUp()
	if n := c.cache.EstimatedSize(); n > 100 {
		t.Fatalf("%d entries of at most 100", n)
	}
}

// What this process wrote is carried on, so that the next route reads nothing; what
// it cannot vouch for is dropped.
func TestAnOwnWriteIsCarriedOn(t *testing.T) {
	t.Parallel()
	owner := statestore.Owner{Instance: "i1", Incarnation: "x"}
	receipt := func(epoch, version uint64) statestore.Receipt {
		return statestore.Receipt{Epoch: epoch, Floor: statestore.Floor{Epoch: epoch, Version: version}, Turns: version, Affinity: time.Hour}
	}
	cases := []struct {
		name    string
		by      statestore.Owner
		r       statestore.Receipt
		version uint64 // cached afterwards; 0: nothing
	}{
		{"the owner's next", owner, receipt(7, 8), 8},
		{"an older one that comes late", owner, receipt(7, 6), 7},
		{"of another epoch", owner, receipt(9, 8), 0},
		{"of another owner", statestore.Owner{Instance: "i2", Incarnation: "x"}, receipt(9, 8), 0},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, store := newCache(t, nil)
			store.put(chat, "i1", 7)
			c.mustRead(t)
			c.wrote(chat.Digest(), tc.r, tc.by)
			got := uint64(0)
			if b := c.cached(chat.Digest()); b != nil {
				got = b.floor.Version
			}
			if got != tc.version {
				t.Fatalf("cached version %d, want %d", got, tc.version)
			}
		})
	}
}

func TestAHandleIsNotGivenOutForLongerThanHalfItsLife(t *testing.T) {
	t.Parallel()
	for retention, want := range map[time.Duration]time.Duration{
		24 * time.Hour: time.Minute, 2 * time.Minute: time.Minute, 10 * time.Second: 5 * time.Second,
	} {
		if got := reuse(retention); got != want {
			t.Errorf("a handle of %s is given out for %s, want %s", retention, got, want)
		}
	}
}
