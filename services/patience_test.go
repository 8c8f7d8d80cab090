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

// absent is a store that a test takes away: then lookups wait until it is back or
// the caller's time is over, or are refused at once.
type absent struct {
	mu      sync.Mutex
	back    chan struct{} // nil: it is there
	refuses bool
	reads   int
}

func (a *absent) Lookup(ctx context.Context, _ statestore.SessionKey) (statestore.View, error) {
	a.mu.Lock()
	a.reads++
	back, refuses := a.back, a.refuses
	a.mu.Unlock()
	if refuses {
		return statestore.View{}, statestore.ErrUnavailable
	}
	if back != nil {
		select {
		case <-back:
		case <-ctx.Done():
			return statestore.View{}, fmt.Errorf("%w: %w", statestore.ErrUnavailable, ctx.Err())
		}
	}
	return statestore.View{Now: noon}, nil
}

// count is the number of lookups since it was asked last.
func (a *absent) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.reads
	a.reads = 0
	return n
}

// missing asks for one session after another, of which none is cached.
type missing struct {
	t     *testing.T
	c     *bindings
	store *absent
	n     int
}

// ask makes one read and says how long it took.
func (m *missing) ask(urgent bool) (time.Duration, error) {
	m.n++
	key := chat
	key.ID = fmt.Sprint("s-", m.n)
	began := time.Now()
	_, err := m.c.read(m.t.Context(), key, key.Digest(), urgent)
	return time.Since(began), err
}

// want makes one read that takes that long, and fails unless the store is there.
func (m *missing) want(what string, took time.Duration, fails bool) {
	m.t.Helper()
	got, err := m.ask(false)
	if word, _ := degradedWord(err); got != took || (err != nil) != fails || fails && word != degradedStore {
		m.t.Errorf("%s: after %v %v, want %v", what, got, err, took)
	}
}

func missesOf(t *testing.T) *missing {
	t.Helper()
	store := &absent{}
	c, err := newBindings(store, Options{StoreTimeout: wait}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	return &missing{t: t, c: c, store: store}
}

const wait = 100 * time.Millisecond

// While the store is away only one miss a second waits for it; with a handle every
// one does, and the first answer lets all read again.
func TestOneMissAtATimeWaitsForAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := missesOf(t)
		m.want("the store is there", 0, false)
		m.store.back = make(chan struct{})
		m.want("it goes", wait, true)
		m.store.count()
		for range 50 {
			m.want("it is known to be away", 0, true)
		}
		if n := m.store.count(); n != 0 {
			t.Fatalf("%d reads of a store that is known to be away", n)
		}
		if took, err := m.ask(true); took != wait || err == nil {
			t.Fatalf("with a handle: after %v %v, want a read", took, err)
		}

		time.Sleep(awayPause + time.Millisecond)
		m.store.count()
		var all sync.WaitGroup
		for i := range 20 {
			key := chat
			key.ID = fmt.Sprint("together-", i)
			all.Go(func() {
				if _, err := m.c.read(t.Context(), key, key.Digest(), false); err == nil {
					t.Error("an answer of a store that is away")
				}
			})
		}
		all.Wait()
		if n := m.store.count(); n != 1 {
			t.Fatalf("%d reads try whether it is back, want one", n)
		}
		m.want("it was not", 0, true)

		time.Sleep(awayPause + time.Millisecond)
		close(m.store.back)
		for range 3 {
			m.want("it is back", 0, false)
		}
	})
}

func TestAnAnswerWithAHandleEndsTheImpatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := missesOf(t)
		m.store.back = make(chan struct{})
		m.want("it goes", wait, true)
		m.want("it is away", 0, true)
		close(m.store.back)
		m.want("it is back, and nobody knows", 0, true)
		if _, err := m.ask(true); err != nil {
			t.Fatal(err)
		}
		m.want("it is known to be back", 0, false)
	})
}

// Of a store in several parts one may be away: as long as others are answered, the
// store is not.
func TestWhoWaitsInVainAmongOthersThatAreAnsweredSparesNobodyTheRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := missesOf(t)
		m.store.back = make(chan struct{})
		var lost sync.WaitGroup
		lost.Go(func() { _, _ = m.c.read(t.Context(), chat, chat.Digest(), false) })
		synctest.Wait()
		time.Sleep(wait / 2)
		m.store.mu.Lock()
		m.store.back = nil
		m.store.mu.Unlock()
		m.want("of another part", 0, false)
		lost.Wait()
		m.want("of another part again", 0, false)

		m.store.refuses = true
		m.store.count()
		for range 5 {
			m.want("refused at once", 0, true)
		}
		if n := m.store.count(); n != 5 {
			t.Errorf("%d of 5 reads were made of a store that refuses at once", n)
		}
	})
}

// A caller that goes away, and a store that does not keep to the time it is given.
func TestWhatCountsAsAWaitInVain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := missesOf(t)
		deaf := make(chan struct{})
		m.c.store = lookup(func(context.Context, statestore.SessionKey) (statestore.View, error) {
			<-deaf
			return statestore.View{Now: noon}, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), wait/2)
		defer cancel()
		if _, err := m.c.read(ctx, chat, chat.Digest(), false); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a caller that is gone: %v", err)
		}
		m.want("its going says nothing of the store", wait, true)
		m.want("but waiting in vain does", 0, true)
		close(deaf)
		synctest.Wait()
		m.want("an answer that comes late is one", 0, false)
	})
}

type lookup func(context.Context, statestore.SessionKey) (statestore.View, error)

func (l lookup) Lookup(ctx context.Context, key statestore.SessionKey) (statestore.View, error) {
	return l(ctx, key)
}
