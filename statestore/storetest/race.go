package storetest

import (
	"errors"
	"fmt"
	"sync"

	"berth/statestore"
)

func raceTraces() []trace {
	return []trace{
		{"of racing first appends one wins, and all others are told who", racingFirst},
		{"of racing claims with handles of one epoch one wins", racingClaims},
		{"of two saves from one version one wins, and both turns are there in the end", racingSaves},
		{"one op sent by many at once is one write", racingRepeats},
		{"large parallel writes are never interleaved", racingLarge},
		{"a load beside writes sees whole writes only", racingLoads},
		{"a delete beside appends leaves a session or a tombstone", racingDelete},
	}
}

// together runs fn for 0 to n-1 at the same time. Where two processes may use
// the store, every second one is the other process.
func (w *world) together(n int, fn func(i int, s statestore.Store)) {
	w.Helper()
	stores := []statestore.Store{w.store}
	if w.backend.Concurrent && w.backend.Reopen != nil {
		if w.other == nil {
			w.other = w.backend.Reopen(w, w.store)
		}
		stores = append(stores, w.other)
	}
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			fn(i, stores[i%len(stores)])
		})
	}
	close(start)
	all.Wait()
}

// racers are n workers with the handle of one route each.
func (w *world) racers(n int) []*worker {
	workers := make([]*worker, n)
	for i := range workers {
		workers[i] = w.worker(fmt.Sprintf("i%d", i)).routed()
	}
	return workers
}

const rounds = 12

// oneWinner fails unless exactly one of the errors is nil, and returns whose.
func (w *world) oneWinner(errs []error) int {
	w.Helper()
	winner := -1
	for i, err := range errs {
		if err != nil {
			continue
		}
		if winner >= 0 {
			w.Fatalf("both %d and %d won", winner, i)
		}
		winner = i
	}
	if winner < 0 {
		w.Fatalf("nobody won: %v", errors.Join(errs...))
	}
	return winner
}

// R15: several replicas hint a new session to different instances at once.
func racingFirst(w *world) {
	for round := range rounds {
		w.key.ID = fmt.Sprintf("round-%d", round)
		workers := w.racers(6)
		errs := make([]error, len(workers))
		w.together(len(workers), func(i int, s statestore.Store) {
			_, errs[i] = s.Append(w.ctx, workers[i].write(fmt.Sprintf("op-%d", i), fmt.Sprintf("from %d", i)))
		})
		winner := w.oneWinner(errs)
		w.holds(fmt.Sprintf("from %d", winner))
		equal(w, "the owner", w.view().Owner, workers[winner].by)
		for i, err := range errs {
			if i != winner {
				refused(w, err, w.notOwner(statestore.WhyFailover, true))
			}
		}
		equal(w, "parked", len(w.parked()), len(workers)-1)
	}
}

func racingClaims(w *world) {
	w.worker("a").routed().says("op-1", "one")
	for range rounds {
		workers := w.racers(6)
		owner := w.view().Owner
		errs := make([]error, len(workers))
		w.together(len(workers), func(i int, s statestore.Store) {
			if workers[i].by != owner {
				_, errs[i] = s.Claim(w.ctx, workers[i].take())
			} else {
				errs[i] = errors.New("is the owner, and does not run")
			}
		})
		winner := w.oneWinner(errs)
		equal(w, "the owner", w.view().Owner, workers[winner].by)
		for i, err := range errs {
			if i != winner && workers[i].by != owner {
				refused(w, err, w.stale())
			}
		}
	}
	w.holds("one")
}

// T03: the lost update.
func racingSaves(w *world) {
	a := w.worker("a").routed()
	var want []string
	for round := range rounds {
		reqs := []statestore.Append{
			a.write(fmt.Sprintf("op-%d-x", round), fmt.Sprintf("x%d", round)), a.write(fmt.Sprintf("op-%d-y", round), fmt.Sprintf("y%d", round)),
		}
		answers, errs := make([]statestore.Receipt, 2), make([]error, 2)
		w.together(2, func(i int, s statestore.Store) { answers[i], errs[i] = s.Append(w.ctx, reqs[i]) })
		winner := w.oneWinner(errs)
		loser := reqs[1-winner]
		if round == 0 { // the first append took an epoch that the other did not name
			refused(w, errs[1-winner], w.notOwner(statestore.WhyFailover, true))
		} else {
			refused(w, errs[1-winner], w.conflict())
		}
		loser.Handle.Floor = answers[winner].Floor
		a.sent(loser)
		turn := []string{fmt.Sprintf("x%d", round), fmt.Sprintf("y%d", round)}
		want = append(want, turn[winner], turn[1-winner])
		w.holds(want...)
	}
	equal(w, "the version", w.view().Version, uint64(2*rounds))
}

func racingRepeats(w *world) {
	a := w.worker("a").routed()
	a.says("op-0", "zero")
	for round := 1; round <= rounds; round++ {
		req := a.write(fmt.Sprintf("op-%d", round), "more")
		answers, errs := make([]statestore.Receipt, 6), make([]error, 6)
		w.together(6, func(i int, s statestore.Store) { answers[i], errs[i] = s.Append(w.ctx, req) })
		firsts := 0
		for i, r := range answers {
			w.ok("append", errs[i])
			equal(w, "the version", r.Version, uint64(round)+1)
			if !r.Duplicate {
				firsts++
			}
		}
		equal(w, "answers that are no repeats", firsts, 1)
		a.keep(answers[0].Floor)
	}
	equal(w, "turns", w.view().Turns, uint64(rounds+1))
}

// largeWrite is a write of several turns of several chunks each. All bytes of it
// name the writer.
func largeWrite(a *worker, writer int) statestore.Append {
	req := a.write(fmt.Sprintf("large-%d", writer))
	req.At = statestore.AtEnd
	for j := range uint64(4) {
		value := noise(uint64(writer), 150_000)
		value[0] = byte(j)
		req.Turns = append(req.Turns, statestore.Turn{Type: statestore.TurnBytes, Value: value, Tokens: uint64(writer)})
	}
	return req
}

func racingLarge(w *world) {
	a := w.worker("a").routed()
	a.says("op-0", "zero")
	reqs := make([]statestore.Append, 6)
	for i := range reqs {
		reqs[i] = largeWrite(a, i)
	}
	answers, errs := make([]statestore.Receipt, len(reqs)), make([]error, len(reqs))
	w.together(len(reqs), func(i int, s statestore.Store) { answers[i], errs[i] = s.Append(w.ctx, reqs[i]) })
	want := make([][]statestore.Turn, len(reqs)+2)
	want[1] = says("zero")
	for i := range reqs {
		w.ok("append", errs[i])
		want[answers[i].Version] = reqs[i].Turns
	}
	var all []statestore.Turn
	for _, turns := range want {
		all = append(all, turns...)
	}
	_, got := w.load(0)
	w.sameTurns(got, all)
}

func racingLoads(w *world) {
	a := w.worker("a").routed()
	a.says("op-0", "zero")
	reqs := make([]statestore.Append, 4)
	for i := range reqs {
		reqs[i] = largeWrite(a, i)
		if i%2 == 1 {
			reqs[i] = based(reqs[i], 1)
		}
	}
	w.together(8, func(i int, s statestore.Store) {
		if i < len(reqs) {
			if _, err := s.Append(w.ctx, reqs[i]); err != nil {
				w.Errorf("append: %v", err)
			}
			return
		}
		for range 4 {
			if err := loadsWhole(w, s); err != nil {
				w.Error(err)
			}
		}
	})
}

// loadsWhole reads the session of racingLoads and fails on half a write.
func loadsWhole(w *world, s statestore.Store) error {
	r, err := s.Load(w.ctx, w.key, 0)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	n := 0
	var writer uint64
	for t, err := range r.Turns {
		switch {
		case errors.Is(err, statestore.ErrChanged):
			return nil
		case err != nil:
			return fmt.Errorf("read: %w", err)
		case n == 0:
			if string(t.Value) != `"zero"` {
				return fmt.Errorf("the first turn is %q", t.Value)
			}
		case (n-1)%4 == 0:
			writer = t.Tokens
		case t.Tokens != writer || t.Value[0] != byte((n-1)%4):
			return fmt.Errorf("turn %d is the %d-th of writer %d in the middle of writer %d", n, t.Value[0], t.Tokens, writer)
		}
		n++
	}
	if uint64(n) != r.View.Turns || n%4 != 1 {
		return fmt.Errorf("%d turns of %d", n, r.View.Turns)
	}
	return nil
}

func racingDelete(w *world) {
	for round := range rounds {
		w.key.ID = fmt.Sprintf("round-%d", round)
		a := w.worker("a").routed()
		a.says("op-1", "one")
		reqs := []statestore.Append{a.write("op-2", "two"), a.write("op-2", "two"), a.write("op-1", "one")}
		h := a.handle
		errs := make([]error, 4)
		w.together(4, func(i int, s statestore.Store) {
			if i == 3 {
				_, errs[i] = s.Delete(w.ctx, statestore.Delete{Key: w.key, Handle: &h, Lifetimes: w.lives})
				return
			}
			_, errs[i] = s.Append(w.ctx, reqs[i])
		})
		w.ok("delete at its epoch", errs[3])
		v := w.view()
		if v.Exists || v.Tombstone.Reason != statestore.Deleted {
			w.Fatalf("after the delete: %+v", v)
		}
		for _, err := range errs[:3] {
			if err != nil {
				refused(w, err, &statestore.EndedError{Reason: statestore.Deleted, Epoch: v.Tombstone.Epoch})
			}
		}
		if _, turns := w.load(0); len(turns) > 0 {
			w.Fatalf("%d turns outlive the delete", len(turns))
		}
	}
}
