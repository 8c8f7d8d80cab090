package migrations

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"berth/statestore"
)

// A target that declines to prewarm is passed by while another has room, and gets
// the session cold when it has not.
func TestTargetThatDeclines(t *testing.T) {
	for name, others := range map[string][]string{"with others": {"c", "d"}, "alone": nil} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, b := w.register("a").beating(), w.register("b")
				b.answer = statestore.TaskRefused
				b.polling(0)
				for _, id := range others {
					w.register(id).polling(time.Millisecond)
				}
				a.creates(0, 12)
				w.pass(time.Minute)
				got := w.ends(w.starts("one", w.store).drains(w, DrainSpec{Instances: []string{"a"}}).ID, statestore.JobSucceeded)
				declined := got.Targets["b"]
				if got.Moved != 12 || got.Prewarmed != 12-declined || (declined == 0) != (others != nil) {
					t.Errorf("progress %+v", got)
				}
			})
		})
	}
}

// A session that is written while its target prefills is prewarmed once more, and
// not a third time.
func TestPrewarmIsRepeatedOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a")
		b := w.register("b").polling(2 * time.Second)
		a.creates(0, 1)
		w.pass(time.Minute)
		go func() {
			// Each prewarm that begins finds the session written a second later.
			for seen := (statestore.Reservation{}); sleep(w.ctx, 10*time.Millisecond) == nil; {
				v, err := w.store.Lookup(w.ctx, keyOf(0))
				if err != nil || v.Owner != a.by {
					return
				}
				if v.Reserved != nil && *v.Reserved != seen {
					seen = *v.Reserved
					_ = sleep(w.ctx, time.Second)
					_ = a.appends(0)
				}
			}
		}()
		got := w.ends(w.starts("one", w.store).drains(w, DrainSpec{Instances: []string{"a"}, InFlightGraceMS: ms(3 * time.Second)}).ID, statestore.JobSucceeded)
		if n := b.warmed.Load(); n != prewarmRounds || got.Moved != 1 || got.Prewarmed != 0 {
			t.Errorf("%d prewarms, progress %+v", n, got)
		}
	})
}

// The budget of a job bounds what is prewarmed, and labels whom to spare.
func TestPrewarmBudgetAndAvoid(t *testing.T) {
	inWorld(t, func(w *world) {
		old := func(s *statestore.InstanceSpec) { s.Labels = map[string]string{"rs": "old"} }
		a := w.register("a", old).beating()
		w.register("b", old).polling(time.Millisecond)
		w.register("c").polling(time.Millisecond)
		w.register("d").polling(time.Millisecond)
		a.creates(0, 16)
		w.pass(time.Minute)
		got := w.ends(w.starts("one", w.store).drains(w, DrainSpec{
			Instances: []string{"a"}, Avoid: map[string]string{"rs": "old"}, Prewarm: Prewarm{MaxTokens: 1050},
		}).ID, statestore.JobSucceeded)
		if got.PrewarmedTokens != 1000 || got.Prewarmed != 10 || got.Moved != 16 || got.Targets["b"] != 0 {
			t.Errorf("progress %+v", got)
		}
		if f := got.Forecast; f.PrewarmedTokens != 1000 || f.Prewarmed != 10 || !maps.Equal(f.Targets, got.Targets) {
			t.Errorf("forecast %+v", f)
		}
	})
}

// Workers that never pull a task cost the patience once; those that pull and do
// not answer cost it twice.
func TestBoardLearnsWhoIsPassive(t *testing.T) {
	inWorld(t, func(w *world) {
		board := newBoard(w.store, "job", 5*time.Second, func(statestore.Owner) bool { return false })
		ask := func(k *worker, id string) (answer, time.Duration) {
			began := time.Now()
			got, err := board.ask(w.ctx, statestore.Task{ID: id, Kind: statestore.TaskPrewarm, For: k.by, Session: keyOf(0)}, 20*time.Second)
			w.ok(err)
			return got, time.Since(began).Round(time.Second)
		}
		never, mute, good := w.register("never"), w.register("mute"), w.register("good").polling(time.Second)
		go func() {
			for sleep(w.ctx, time.Second) == nil {
				if _, _, err := w.store.LeaseTasks(w.ctx, mute.by, 8, time.Minute); err != nil {
					return
				}
			}
		}()
		for i, c := range []struct {
			who  *worker
			want answer
			took time.Duration
		}{
			{never, answerNone, 5 * time.Second},
			{never, answerNone, 0},
			{mute, answerNone, 20 * time.Second},
			{mute, answerNone, 20 * time.Second},
			{mute, answerNone, 0},
			{good, answerDone, time.Second},
			{good, answerDone, time.Second},
		} {
			if got, took := ask(c.who, string(rune('a'+i))); got != c.want || took != c.took {
				t.Errorf("question %d: %d after %v, want %d after %v", i, got, took, c.want, c.took)
			}
		}
		board.wait()
	})
}

// A pace is kept within five percent, also by what comes in large pieces, and by
// several at once.
func TestBudgetKeepsItsPace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		perSecond float64
		pieces    int
		size      uint64
		want      time.Duration
	}{
		"sessions": {50, 500, 1, 10 * time.Second},
		"slow":     {0.5, 20, 1, 40 * time.Second},
		"tokens":   {1000, 10, 3000, 30 * time.Second},
		"no bound": {0, 1000, 1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBudget(c.perSecond)
				began := time.Now()
				for range c.pieces {
					if err := b.take(t.Context(), c.size); err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(began); (took - c.want).Abs() > c.want/20 {
					t.Errorf("took %v, want %v", took, c.want)
				}
			})
		})
	}
}

// What a job lets go by between two passes it makes up for.
func TestBudgetMakesUpForPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100)
		began := time.Now()
		for i := range 1000 {
			if err := b.take(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			if i%200 == 199 {
				_ = sleep(t.Context(), 400*time.Millisecond)
			}
		}
		if took := time.Since(began); (took - 10*time.Second).Abs() > 500*time.Millisecond {
			t.Errorf("took %v, want 10 s", took)
		}
	})
}
