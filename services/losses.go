package services

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/statestore"
)

// What is told of a loss that nobody was told of for lossLife is another one: no client
// repeats a write for longer. At most lossLimit sessions' losses are remembered.
const (
	lossLife  = time.Hour
	lossLimit = 100_000
)

// losses count what the store was found to have lost, and what came back. A loss is
// the versions of a session between the newest that the store holds and the newest
// that a caller was promised, and it is seen when a caller is told store_behind. All
// that names the same loss counts once. It is repaired when the write that made the
// newest of them is there again: lost writes are repeated oldest first, each with the
// handle that names the one before, so that those before it are there as well.
//
// It is the memory of one process: a loss that callers tell two processes of counts
// in both.
type losses struct {
	detected, repaired prometheus.Counter

	some atomic.Bool // open is not empty: what every accepted write looks at
	mu   sync.Mutex
	open map[statestore.SessionDigest]loss
}

// loss is what is missing of one session.
type loss struct {
	newest   statestore.Floor // that was promised
	versions uint64           // that were counted
	seen     time.Time        // last
}

func newLosses(detected, repaired prometheus.Counter) *losses {
	return &losses{detected: detected, repaired: repaired, open: map[statestore.SessionDigest]loss{}}
}

// refused takes in what a call that presented a handle, or the floor of a copy, was
// refused with. Others than store_behind say nothing.
func (l *losses) refused(d statestore.SessionDigest, err error, p *statestore.Presented, have *statestore.Floor) {
	behind, ok := errors.AsType[*statestore.StoreBehindError](err)
	if !ok {
		return
	}
	floors := []*statestore.Floor{have}
	if p != nil {
		floors = append(floors, &p.Floor, p.Second)
	}
	for _, f := range floors {
		if f != nil && f.Version == behind.WantVersion {
			l.saw(d, *f, behind.HaveVersion, time.Now())
			return
		}
	}
}

// saw counts the versions up to newest that are not there, but for those that were
// counted before. Where the store holds another history, all that is known is that one
// is missing.
func (l *losses) saw(d statestore.SessionDigest, newest statestore.Floor, have uint64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, again := l.open[d]
	if now.Sub(known.seen) >= lossLife {
		known, again = loss{}, false
	}
	missing := uint64(1)
	switch {
	case again && newest.Version <= known.newest.Version:
		known.seen = now
		l.open[d] = known
		return
	case again:
		missing = newest.Version - known.newest.Version
	case newest.Version > have:
		missing = newest.Version - have
	}
	if !again && len(l.open) >= lossLimit {
		for other := range l.open {
			delete(l.open, other)
			break
		}
	}
	l.detected.Add(float64(missing))
	l.open[d] = loss{newest: newest, versions: known.versions + missing, seen: now}
	l.some.Store(true)
}

// wrote takes in a write that was accepted, or was known, and the floor that it
// presented: either may show that the newest of what was lost is there.
func (l *losses) wrote(d statestore.SessionDigest, op statestore.OpDigest, presented statestore.Floor) {
	if !l.some.Load() {
		return
	}
	if one, ok := l.take(d, func(one *loss) bool { return op == one.newest.Op || presented.Op == one.newest.Op }); ok {
		l.repaired.Add(float64(one.versions))
	}
}

// accepted forgets a loss that a claimant goes on without.
func (l *losses) accepted(d statestore.SessionDigest) { l.take(d, func(*loss) bool { return true }) }

// take removes the session's loss, if it is one of those.
func (l *losses) take(d statestore.SessionDigest, which func(*loss) bool) (loss, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, ok := l.open[d]
	if !ok || !which(&one) {
		return loss{}, false
	}
	delete(l.open, d)
	l.some.Store(len(l.open) > 0)
	return one, true
}
