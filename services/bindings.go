package services

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"berth/statestore"
)

// binding is a session as the cache keeps it.
type binding struct {
	known
	signed atomic.Pointer[signedHandle]
}

// known is what a route needs of a session. It is immutable.
type known struct {
	floor      statestore.Floor
	owner      statestore.Owner
	lastServer string
	exists     bool
	turns      uint64
	boundAt    statestore.Millis
	until      statestore.Millis // affinity
	expires    statestore.Millis
	readAt     statestore.Millis // by the clock of the store that holds the record
	read       time.Time         // the same moment, monotonic
}

// signedHandle is the handle of a plain route: no affinity key, no fallbacks, no
// second floor. Signing is the dearest part of a route, and a handle that lives
// a day may be given out for a while.
type signedHandle struct {
	instance string
	until    time.Time // monotonic, when the next is signed
	text     string
}

const signedFor = time.Minute

// reuse is how long a handle is given out that lives as long as the retention:
// whoever gets it has at least half of its life left.
func reuse(retention time.Duration) time.Duration { return min(signedFor, retention/2) }

// now is the clock that the record's times are told by, carried on since it was
// read: another store's clock, or this process's, may show another time.
func (b *binding) now() statestore.Millis { return b.readAt.Add(time.Since(b.read)) }

// live reports whether the binding holds.
func (b *binding) live() bool {
	now := b.now()
	return b.exists && !b.owner.IsZero() && now < b.until && now < b.expires
}

func newBinding(v statestore.View) *binding {
	b := &binding{known: known{floor: v.Floor(), exists: v.Exists, readAt: v.Now, read: time.Now()}}
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
	store    recordReader
	cache    *otter.Cache[statestore.SessionDigest, *binding]
	changes  changes
	ttl      time.Duration
	timeout  time.Duration
	budget   *rate.Limiter
	patience *patience
	flight   singleflight.Group
}

// changes counts what was invalidated, so that what was read before and comes
// late is not cached after. Sessions share counters: at worst something true is
// not cached.
type changes struct {
	all atomic.Uint64
	of  [1024]atomic.Uint64
}

// mark is a moment in the history of a session's invalidations.
type mark struct{ all, one uint64 }

func (c *changes) counter(d statestore.SessionDigest) *atomic.Uint64 {
	return &c.of[binary.BigEndian.Uint16(d[:])%uint16(len(c.of))]
}

func (c *changes) mark(d statestore.SessionDigest) mark {
	return mark{c.all.Load(), c.counter(d).Load()}
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
		budget: rate.NewLimiter(rate.Limit(o.MissRate), max(1, o.MissRate/4)), patience: newPatience(o.StoreTimeout),
	}, nil
}

// cached returns a binding that may answer a route: young and live.
func (c *bindings) cached(d statestore.SessionDigest) *binding {
	b, ok := c.cache.GetIfPresent(d)
	if !ok || !b.live() || time.Since(b.read) > c.ttl {
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
// counts against the budget, and is not made while the store is known to be away.
func (c *bindings) read(ctx context.Context, key statestore.SessionKey, d statestore.SessionDigest, urgent bool) (readResult, error) {
	if !urgent {
		leave, may := c.patience.enter()
		if !may {
			return readResult{}, errAway
		}
		defer leave()
		if !c.budget.Allow() {
			return readResult{}, errBudget
		}
	}
	caller, began := ctx, time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	found := c.flight.DoChan(string(d[:]), func() (any, error) {
		// The read is shared: it must not end with the first caller.
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
		defer cancel()
		before, began := c.changes.mark(d), time.Now()
		v, err := c.store.Lookup(shared, key)
		c.patience.met(began, err)
		if err != nil {
			return readResult{}, err
		}
		b := newBinding(v)
		c.keep(d, b, before)
		return readResult{view: v, b: b}, nil
	})
	select {
	case <-ctx.Done():
		if caller.Err() == nil {
			c.patience.met(began, ctx.Err())
		}
		return readResult{}, ctx.Err()
	case r := <-found:
		if r.Err != nil {
			return readResult{}, r.Err
		}
		return r.Val.(readResult), nil
	}
}

// keep caches what was learned after the mark was taken, unless it has been
// invalidated since. Only live bindings are worth their place: others are decided
// from the store each time.
func (c *bindings) keep(d statestore.SessionDigest, b *binding, since mark) {
	if !b.live() {
		c.cache.Invalidate(d)
		return
	}
	c.cache.Set(d, b)
	if c.changes.mark(d) != since {
		c.cache.Invalidate(d)
	}
}

// wrote carries a cached binding on over a write of its owner.
func (c *bindings) wrote(d statestore.SessionDigest, r statestore.Receipt, by statestore.Owner) {
	since := c.changes.mark(d)
	b, ok := c.cache.GetIfPresent(d)
	if !ok {
		return
	}
	if r.Moved || b.owner != by || b.floor.Epoch != r.Floor.Epoch || r.Floor.Version <= b.floor.Version {
		if b.floor.Epoch != r.Epoch {
			c.forget(d)
		}
		return
	}
	next := &binding{known: b.known}
	next.floor, next.turns, next.lastServer = r.Floor, r.Turns, by.Instance
	next.until = b.now().Add(r.Affinity)
	c.keep(d, next, since)
}

// forget drops a session; who asks from here on does not share a read that began
// before.
func (c *bindings) forget(d statestore.SessionDigest) {
	c.changes.counter(d).Add(1)
	c.flight.Forget(string(d[:]))
	c.cache.Invalidate(d)
}

func (c *bindings) forgetAll() {
	c.changes.all.Add(1)
	c.cache.InvalidateAll()
}
