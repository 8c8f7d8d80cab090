package services

import (
	"context"
	"errors"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"berth/statestore"
)

// binding is what a route needs of a session. It is immutable.
type binding struct {
	floor      statestore.Floor
	owner      statestore.Owner
	lastServer string
	exists     bool
	turns      uint64
	boundAt    statestore.Millis
	until      statestore.Millis // affinity
	expires    statestore.Millis
	read       time.Time // monotonic
}

// live reports whether the binding holds at now, by the store's clock.
func (b *binding) live(now statestore.Millis) bool {
	return b.exists && !b.owner.IsZero() && now < b.until && now < b.expires
}

func newBinding(v statestore.View) *binding {
	b := &binding{floor: v.Floor(), exists: v.Exists, read: time.Now()}
	if v.Exists {
		b.owner, b.lastServer, b.turns = v.Owner, v.LastServer(), v.Turns
		b.boundAt, b.until, b.expires = v.BoundAt, v.AffinityUntil, v.Expires
	}
	return b
}

// Errors of a read that was not made.
var errBudget = errors.New("the budget of store reads is used up")

// bindings caches what routes need, bounded in number and age. It is invalidated
// by the feed, which may be lossy; the age bounds what a lost event can do.
type bindings struct {
	store   recordReader
	cache   *otter.Cache[statestore.SessionDigest, *binding]
	ttl     time.Duration
	timeout time.Duration
	budget  *rate.Limiter
	flight  singleflight.Group
}

type recordReader interface {
	Lookup(ctx context.Context, key statestore.SessionKey) (statestore.View, error)
}

func newBindings(store recordReader, o Options) (*bindings, error) {
	cache, err := otter.New(&otter.Options[statestore.SessionDigest, *binding]{MaximumSize: o.CacheEntries})
	if err != nil {
		return nil, err
	}
	return &bindings{
		store: store, cache: cache, ttl: o.CacheTTL, timeout: o.StoreTimeout,
		budget: rate.NewLimiter(rate.Limit(o.MissRate), max(1, o.MissRate/4)),
	}, nil
}

// cached returns a binding that may answer a route: young and live.
func (c *bindings) cached(d statestore.SessionDigest, now statestore.Millis) *binding {
	b, ok := c.cache.GetIfPresent(d)
	if !ok || !b.live(now) || time.Since(b.read) > c.ttl {
		return nil
	}
	return b
}

// stale returns a binding of any age, for when the store is away.
func (c *bindings) stale(d statestore.SessionDigest) *binding {
	b, _ := c.cache.GetIfPresent(d)
	return b
}

// readResult is what one shared read found.
type readResult struct {
	view statestore.View
	b    *binding
}

// read asks the store, once for all who ask at the same time. Without urgent it
// counts against the budget.
func (c *bindings) read(ctx context.Context, key statestore.SessionKey, d statestore.SessionDigest, urgent bool) (readResult, error) {
	if !urgent && !c.budget.Allow() {
		return readResult{}, errBudget
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	found := c.flight.DoChan(string(d[:]), func() (any, error) {
		// The read is shared: it must not end with the first caller.
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
		defer cancel()
		v, err := c.store.Lookup(shared, key)
		if err != nil {
			return readResult{}, err
		}
		return readResult{view: v, b: c.keep(d, v)}, nil
	})
	select {
	case <-ctx.Done():
		return readResult{}, ctx.Err()
	case r := <-found:
		if r.Err != nil {
			return readResult{}, r.Err
		}
		return r.Val.(readResult), nil
	}
}

// keep caches what a read or a write of this process saw. Only live bindings are
// worth their place: others are decided from the store each time.
func (c *bindings) keep(d statestore.SessionDigest, v statestore.View) *binding {
	b := newBinding(v)
	if b.live(v.Now) {
		c.cache.Set(d, b)
	} else {
		c.cache.Invalidate(d)
	}
	return b
}

// wrote carries a cached binding on over a write of its owner.
func (c *bindings) wrote(d statestore.SessionDigest, r statestore.Receipt, by statestore.Owner, now statestore.Millis) {
	b, ok := c.cache.GetIfPresent(d)
	if !ok {
		return
	}
	if r.Moved || b.owner != by || b.floor.Epoch != r.Floor.Epoch || r.Floor.Version <= b.floor.Version {
		if b.floor.Epoch != r.Epoch {
			c.cache.Invalidate(d)
		}
		return
	}
	next := *b
	next.floor, next.turns, next.lastServer = r.Floor, r.Turns, by.Instance
	next.until = now.Add(r.Affinity)
	c.cache.Set(d, &next)
}

func (c *bindings) forget(d statestore.SessionDigest) { c.cache.Invalidate(d) }

func (c *bindings) forgetAll() { c.cache.InvalidateAll() }
