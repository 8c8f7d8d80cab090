package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/client"
)

// rolled is instances that are replaced by other boots of theirs under load, with
// what was acknowledged and hinted meanwhile.
type rolled struct {
	lease  time.Duration
	routes []*client.Gateway
	acked  atomic.Int64

	mu       sync.Mutex
	boots    map[string]*bootOf            // by address, each boot's own
	acks     map[string][]acknowledged     // by session, in order of their versions
	writers  map[string]map[uint64]*bootOf // of a session's epochs
	dead     int                           // hints that named a boot which had been killed
	problems []string
}

// bootOf is one boot of an instance.
type bootOf struct {
	*engine
	killed   atomic.Bool
	replaced time.Time // when its successor was ready; guarded by rolled.mu
}

// acknowledged is a turn that was accepted as a version.
type acknowledged struct {
	version uint64
	value   string
	late    bool // written by a boot that had been killed
}

// add lets a boot serve.
func (r *rolled) add(address string, e *engine) *bootOf {
	b := &bootOf{engine: e}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.boots[address] = b
	return b
}

// named counts a hint that was asked for at a moment, and returns the boot; nil for
// one that has registered and serves in a moment.
func (r *rolled) named(hint *client.Route, asked time.Time) *bootOf {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.boots[hint.Address]
	if b != nil && b.killed.Load() {
		r.dead++
		if late := asked.Sub(b.replaced); !b.replaced.IsZero() && late > r.lease {
			r.problems = append(r.problems, fmt.Sprintf("a hint (%s) names a boot of %s that was replaced %s before", hint.Reason, hint.Instance, late))
		}
	}
	return b
}

// took notes an accepted append.
func (r *rolled) took(session, value string, by *bootOf, got client.Receipt) {
	r.acked.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acks[session] = append(r.acks[session], acknowledged{got.Version, value, by.killed.Load()})
	if got.Duplicate {
		return // answered with whatever epoch it is by then
	}
	if r.writers[session] == nil {
		r.writers[session] = map[uint64]*bootOf{}
	}
	if other := r.writers[session][got.Epoch]; other != nil && other != by {
		r.problems = append(r.problems, fmt.Sprintf("two boots, of %s and %s, wrote to %s in epoch %d", other.id, by.id, session, got.Epoch))
	}
	r.writers[session][got.Epoch] = by
}

// talk takes turn after turn of one session until enough ends, as a gateway that
// excludes whom it cannot reach.
func (r *rolled) talk(ctx, enough context.Context, session string) error {
	for n := 0; enough.Err() == nil; n++ {
		value := fmt.Sprintf(`"turn %d"`, n)
		w := client.Write{Op: fmt.Sprintf("op-%d", n), Turns: []client.Turn{client.JSON([]byte(value))}}
		var exclude []client.Exclusion
		for attempt := 0; ; attempt++ {
			asked := time.Now()
			ask := client.RouteRequest{Session: client.SessionKey{ID: session}, Exclude: exclude}
			hint, err := r.routes[(n+attempt)%len(r.routes)].Route(ctx, ask)
			exclude = nil
			var got client.Receipt
			if err == nil {
				b := r.named(hint, asked)
				if b == nil || b.killed.Load() {
					exclude = []client.Exclusion{{Instance: hint.Instance, Result: client.ResultConnect}}
					continue
				}
				if got, err = b.turn(ctx, session, hint.Hint(), w); err == nil {
					r.took(session, value, b, got)
					break
				}
			}
			if !r.follows(err) {
				return fmt.Errorf("turn %d of %s: %w", n, session, err)
			}
			if err := sleep(ctx, 5*time.Millisecond); err != nil {
				return err
			}
		}
		_ = sleep(enough, 50*time.Millisecond) // or until it is enough
	}
	return nil
}

// follows reports whether the caller is to ask again. Nobody is eligible while all
// others but the excluded one seem silent.
func (r *rolled) follows(err error) bool {
	for _, known := range []error{client.ErrNotOwner, client.ErrStaleHandle, client.ErrNotEligible, client.ErrStaleIncarnation} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// haunt lets a killed boot, which was not dead but slow, write to what it served.
func (r *rolled) haunt(ctx context.Context, t *testing.T, b *bootOf, word string) (accepted int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for session, c := range b.sessions {
		value := fmt.Sprintf(`"late %s %s"`, b.id, word)
		w := client.Write{Op: fmt.Sprintf("late-%s-%s", b.id, word), Turns: []client.Turn{client.JSON([]byte(value))}}
		got, err := c.session.Append(ctx, w)
		switch {
		case err == nil:
			r.took(session, value, b, got)
			accepted++
		case errors.Is(err, client.ErrOpForgotten): // more than the store remembers was written since
		case !r.follows(err) && !errors.Is(err, client.ErrVersionConflict):
			t.Errorf("a late write to %s: %v", session, err)
		}
	}
	return accepted
}

// TestRollingRestartUnderLoad is case T21: five instances are killed one after the
// other while forty sessions talk, and each comes back as another boot elsewhere. A
// lease after that no hint names the boot before; no epoch has two writers, although
// each boot writes on while it dies and when it was replaced; and every acknowledged turn is stored once.
func TestRollingRestartUnderLoad(t *testing.T) {
	t.Parallel()
	const fleet, sessions = 5, 40
	rounds := 2
	if testing.Short() {
		rounds = 1
	}
	r := &rolled{lease: 10 * time.Second, boots: map[string]*bootOf{}, acks: map[string][]acknowledged{}, writers: map[string]map[uint64]*bootOf{}}
	p := onOneRedis(t, "--suspect-after", "4s", "--down-after", r.lease.String())
	var ids []string
	present := map[string]*bootOf{}
	start := func(i, generation int) *bootOf {
		id, address := fmt.Sprintf("i%d", i+1), fmt.Sprintf("10.0.%d.%d:80", generation, i+1)
		return r.add(address, boot(t, id, address, nil, p.urls()[i%2], p.urls()[1-i%2]))
	}
	for i := range fleet {
		b := start(i, 0)
		ids, present[b.id] = append(ids, b.id), b
	}
	for _, url := range p.urls() {
		r.routes = append(r.routes, gateway(t, url))
	}
	awaitReady(t, p, ids...)
	ctx := t.Context()
	enough, stop := context.WithCancel(ctx)
	defer stop()
	talking, tctx := errgroup.WithContext(ctx)
	for i := range sessions {
		talking.Go(func() error { return r.talk(tctx, enough, fmt.Sprintf("talk-%d", i)) })
	}
	more := func(n int64) {
		t.Helper()
		from := r.acked.Load()
		eventually(t, "the sessions go on", func() error {
			if got := r.acked.Load() - from; got < n && tctx.Err() == nil {
				return fmt.Errorf("%d of %d turns", got, n)
			}
			return nil
		})
	}
	more(2 * sessions)
	late := 0
	for n := range rounds * fleet {
		id, old := ids[n%fleet], present[ids[n%fleet]]
		old.killed.Store(true)
		old.stop()
		late += r.haunt(ctx, t, old, fmt.Sprint("dying-", n))
		more(sessions)
		present[id] = start(n%fleet, 1+n/fleet)
		awaitReady(t, p, id)
		r.mu.Lock()
		old.replaced = time.Now()
		r.mu.Unlock()
		late += r.haunt(ctx, t, old, fmt.Sprint("replaced-", n))
		more(sessions)
	}
	must(t, sleep(ctx, r.lease)) // the last boot's, under load
	more(2 * sessions)
	stop()
	must(t, talking.Wait())
	r.check(t, p)
	t.Logf("%d turns, %d of them late; %d hints named a killed boot", r.acked.Load(), late, r.dead)
}

// check holds what is stored against what was acknowledged.
func (r *rolled) check(t *testing.T, p pair) {
	t.Helper()
	for _, problem := range r.problems {
		t.Error(problem)
	}
	for session, acks := range r.acks {
		got, err := p.s2.api().load(t.Context(), session)
		must(t, err)
		stored := got.values()
		if len(stored) != len(acks) || got.Version != uint64(len(acks)) {
			t.Errorf("%s: %d turns acknowledged, %d stored, version %d", session, len(acks), len(stored), got.Version)
			continue
		}
		last := uint64(0) // version of the last turn of the talk, whose order is that of its answers
		for _, a := range acks {
			if a.version == 0 || a.version > uint64(len(stored)) || stored[a.version-1] != a.value {
				t.Errorf("%s: %s was acknowledged as version %d, which is another turn or none", session, a.value, a.version)
			}
			if !a.late {
				if a.version <= last {
					t.Errorf("%s: %s came as version %d after version %d", session, a.value, a.version, last)
				}
				last = a.version
			}
		}
	}
}
