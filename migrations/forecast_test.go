package migrations

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"berth/statestore"
)

// A slow drain of workers that do what they are asked does what it foretold: who goes
// cold because it is idle for too long when its turn comes, who has lapsed by then, who
// gets how many, and how long that takes.
func TestADrainDoesWhatItForetold(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a")
		w.register("b").beating().polling(time.Millisecond)
		w.register("c", func(s *statestore.InstanceSpec) { s.Weight = 50 }).beating().polling(time.Millisecond)
		a.creates(0, 10)
		w.pass(20 * time.Minute)
		a.creates(10, 40)
		w.pass(9*time.Minute + 30*time.Second)
		a.creates(40, 100)
		w.pass(time.Minute)
		a.beating().polling(0)
		// The first ten lapsed half a minute ago. Of the next thirty two thirds are done when
		// their idle time passes the limit of prewarming.
		job := w.starts("one", w.store).drains(w, DrainSpec{
			Instances: []string{"a"}, Pace: Pace{SessionsPerS: 0.5}, Prewarm: Prewarm{IdleBelowMS: ms(11*time.Minute + 30*time.Second)},
			DeadlineMS: (20 * time.Minute).Milliseconds(),
		})
		got := w.ends(job.ID, statestore.JobSucceeded)
		f := got.Forecast
		if f == nil || f.Sessions != 90 || f.Lapsed != 10 || f.Left != 0 || f.Tokens != 9000 {
			t.Fatalf("forecast %+v", f)
		}
		if got.Moved != f.Sessions || got.Skipped[SkippedLapsed] != f.Lapsed || got.Tokens != f.Tokens || got.Bytes != f.Bytes {
			t.Errorf("moved %d, skipped %v, %d tokens, %d bytes; foretold %+v", got.Moved, got.Skipped, got.Tokens, got.Bytes, f)
		}
		if !maps.Equal(got.Targets, f.Targets) || f.Targets["b"] == 0 || f.Targets["c"] == 0 {
			t.Errorf("moved to %v, foretold %v", got.Targets, f.Targets)
		}
		// A pass plans for five seconds: who passes the limit meanwhile is still prewarmed.
		if f.Prewarmed != 80 || f.PrewarmedTokens != 8000 || got.Prewarmed < 80 || got.Prewarmed > 84 || got.PrewarmedTokens != 100*uint64(got.Prewarmed) {
			t.Errorf("prewarmed %d, %d tokens; foretold %d, %d", got.Prewarmed, got.PrewarmedTokens, f.Prewarmed, f.PrewarmedTokens)
		}
		if took := got.LastMoveMS - got.FirstMoveMS; f.TookMS != 178_000 || took < f.TookMS*95/100 || took > f.TookMS*105/100 {
			t.Errorf("the moves took %d ms, foretold %d", took, f.TookMS)
		}
	})
}

// Of a drain whose time is too short for its pace it is foretold who stays, and that the
// last ones go cold.
func TestForecastOfTooShortATime(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating().polling(0)
		w.register("b").beating().polling(time.Millisecond)
		a.creates(0, 100)
		w.pass(time.Minute)
		job := w.starts("one", w.store).drains(w, DrainSpec{
			Instances: []string{"a"}, Pace: Pace{SessionsPerS: 0.5}, DeadlineMS: (100 * time.Second).Milliseconds(),
		})
		got := w.ends(job.ID, statestore.JobPartial)
		f := got.Forecast
		if f == nil || f.Sessions+f.Left != 100 {
			t.Fatalf("forecast %+v", f)
		}
		within := func(what string, got, foretold, by int) {
			t.Helper()
			if got < foretold-by || got > foretold+by {
				t.Errorf("%s: %d, foretold %d", what, got, foretold)
			}
		}
		// One every two seconds; the last part begins 17 s before the end.
		within("foretold to move", f.Sessions, 51, 1)
		within("foretold to be prewarmed", f.Prewarmed, 42, 1)
		within("moved", got.Moved, f.Sessions, 2)
		within("left", got.Open(), f.Left, 2)
		within("prewarmed", got.Prewarmed, f.Prewarmed, 2)
	})
}

// Who is known to poll for nothing is not expected to prewarm. Of who turns out not to,
// the sessions that it let go cold are counted.
func TestForecastOfPassiveTargets(t *testing.T) {
	for name, known := range map[string]bool{"known": true, "not known": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, b := w.register("a").beating(), w.register("b").beating()
				c := w.register("c").beating().polling(time.Millisecond)
				a.creates(0, 40)
				w.pass(time.Minute)
				silent := func(o *Options) {
					if known {
						o.Silent = func(context.Context) func(statestore.Owner) bool {
							return func(who statestore.Owner) bool { return who == b.by }
						}
					}
				}
				job := w.starts("one", w.store, silent).drains(w, DrainSpec{Instances: []string{"a"}})
				got := w.ends(job.ID, statestore.JobSucceeded)
				toB, toC := got.Targets["b"], got.Targets["c"]
				want := map[bool]int{true: toC, false: toB + toC}[known]
				if f := got.Forecast; f == nil || !maps.Equal(f.Targets, got.Targets) || toB == 0 || toC == 0 || f.Prewarmed != want {
					t.Fatalf("foretold %+v of %v", f, got.Targets)
				}
				if got.Prewarmed != toC || got.Unanswered != toB || int(c.warmed.Load()) != toC {
					t.Errorf("%d prewarmed, %d unanswered of %v", got.Prewarmed, got.Unanswered, got.Targets)
				}
			})
		})
	}
}

// A forecast is made once, before the first move, whoever holds the job later; and only
// of drains that move sessions.
func TestForecastIsMadeOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b").beating()
		w.register("c").beating()
		a.creates(0, 20)
		w.pass(time.Minute)
		one := w.starts("one", w.store)
		job := one.drains(w, DrainSpec{Instances: []string{"a"}, InFlightGraceMS: ms(0), Pace: Pace{SessionsPerS: 1}})
		w.eventually("half of them move", func() bool { _, p := w.job(job.ID); return p.Moved >= 10 })
		_, first := w.job(job.ID)
		one.kill()
		<-one.done
		two := w.starts("two", w.store)
		got := w.ends(job.ID, statestore.JobSucceeded)
		if got.Forecast == nil || got.Forecast.Sessions != 20 || !maps.Equal(got.Forecast.Targets, first.Forecast.Targets) {
			t.Errorf("forecast %+v, before %+v", got.Forecast, first.Forecast)
		}
		if got.FirstMoveMS != first.FirstMoveMS || got.LastMoveMS < 18_000 {
			t.Errorf("moved from %d to %d ms, the first at %d", got.FirstMoveMS, got.LastMoveMS, first.FirstMoveMS)
		}
		detach := two.drains(w, DrainSpec{Instances: []string{"b"}, Mode: ModeDetach})
		if got := w.ends(detach.ID, statestore.JobSucceeded); got.Forecast != nil {
			t.Errorf("forecast of a detach: %+v", got.Forecast)
		}
		w.register("d").beating()
		empty := two.drains(w, DrainSpec{Instances: []string{"d"}})
		if got := w.ends(empty.ID, statestore.JobSucceeded); got.Forecast == nil || got.Forecast.Sessions != 0 {
			t.Errorf("forecast of an empty instance: %+v", got.Forecast)
		}
	})
}

// A commit in hand keeps why its session goes cold.
func TestIntentsKeepWhoDidNotAnswer(t *testing.T) {
	t.Parallel()
	var set, again intents
	for i, unanswered := range []bool{true, false} {
		set.put(intent{Key: keyOf(i), From: statestore.Owner{Instance: "a"}, Unanswered: unanswered})
	}
	doc, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(doc, &again); err != nil || !maps.Equal(set, again) {
		t.Errorf("%v: %s is %v", err, doc, slices.Collect(maps.Values(again)))
	}
}
