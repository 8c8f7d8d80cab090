package migrations

import (
	"testing"
	"time"

	"berth/statestore"
)

// Every session is counted once, by the process that did it, whoever else held the
// job; phases and ends are counted where they end.
func TestTotalsAreCountedOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b").beating().polling(0)
		a.creates(0, 10) // these lapse
		w.pass(time.Hour)
		a.creates(10, 40)
		w.pass(time.Minute)
		first := w.starts("first", w.store)
		job := first.drains(w, DrainSpec{Instances: []string{"a"}, Pace: Pace{SessionsPerS: 5}})
		w.eventually("half is done", func() bool { _, p := w.job(job.ID); return p.done() > 15 })
		first.stops()
		second := w.starts("second", w.store)
		got := w.ends(job.ID, statestore.JobSucceeded)
		w.eventually("it is let go", func() bool { return len(second.Held()) == 0 })
		one, two := first.Totals()[KindDrain], second.Totals()[KindDrain]
		for result, want := range map[string]int{SkippedLapsed: 10, ResultPrewarmed: got.Prewarmed, ResultMoved: got.Moved - got.Prewarmed} {
			if one.Sessions[result]+two.Sessions[result] != want {
				t.Errorf("%s: %d and %d, want %d", result, one.Sessions[result], two.Sessions[result], want)
			}
		}
		if got.Prewarmed == 0 || one.Bytes+two.Bytes != got.Bytes || one.Sessions[SkippedLapsed] == 0 || two.Sessions[ResultPrewarmed] == 0 {
			t.Errorf("%+v and %+v of %+v", one, two, got)
		}
		if len(one.Ended) != 0 || two.Ended[statestore.JobSucceeded] != 1 {
			t.Errorf("ended %v and %v", one.Ended, two.Ended)
		}
		if p := two.Phases[PhaseSettling]; p.Count != 1 || p.Time < 12*time.Second {
			t.Errorf("phases %+v", two.Phases)
		}
	})
}

// What is held tells how long the session has waited that has for longest, and when
// anything was done last.
func TestHeldJobsTellWhatWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a")
		w.register("b")
		a.creates(0, 10)
		w.pass(time.Minute)
		go func() {
			for sleep(w.ctx, 5*time.Second) == nil && a.appends(7) == nil {
				continue
			}
		}()
		w.pass(10 * time.Second)
		p := w.starts("one", w.store)
		job := p.drains(w, DrainSpec{Instances: []string{"a"}, DeadlineMS: 120_000})
		w.pass(100 * time.Second)
		held := p.Held()
		if len(held) != 1 || held[0].Kind != KindDrain || held[0].Progress.Blocked[BlockedInFlight] != 1 {
			t.Fatalf("held %+v", held)
		}
		if h := held[0]; h.OldestWait < 85*time.Second || h.OldestWait > 101*time.Second || h.LastProgress < 60*time.Second {
			t.Errorf("oldest wait %v, last progress %v ago", h.OldestWait, h.LastProgress)
		}
		w.ends(job.ID, statestore.JobPartial)
		w.eventually("it is let go", func() bool { return len(p.Held()) == 0 })
	})
}

// Sessions whose writers counted no tokens cost what a preview says.
func TestTokensThatNobodyCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b")
		_, err := w.store.Append(w.ctx, statestore.Append{
			Key: keyOf(0), By: a.by, Op: "op", At: statestore.AtEnd, Lifetimes: w.lives,
			Turns: []statestore.Turn{{Type: statestore.TurnJSON, Value: []byte(`"a turn of 24 bytes ----"`)}},
		})
		w.ok(err)
		w.pass(time.Minute)
		p := w.starts("one", w.store)
		plan, err := p.PreviewDrain(w.ctx, DrainSpec{Instances: []string{"a"}})
		w.ok(err)
		got := w.ends(p.drains(w, DrainSpec{Instances: []string{"a"}}).ID, statestore.JobSucceeded)
		if got.Tokens == 0 || got.Tokens != plan.Tokens {
			t.Errorf("moved %d tokens, planned %d", got.Tokens, plan.Tokens)
		}
	})
}
