package migrations

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/statestore"
)

// A worker that is known not to poll is not waited for, and one that begins to poll
// when it hears of a task is asked from then on.
func TestBoardDoesNotWaitForTheSilent(t *testing.T) {
	inWorld(t, func(w *world) {
		board := newBoard(w.store, "job", 5*time.Second, func(statestore.Owner) bool { return false })
		ask := func(k *worker, id string) (answer, time.Duration) {
			began := time.Now()
			got, err := board.ask(w.ctx, statestore.Task{ID: id, Kind: statestore.TaskPrewarm, For: k.by, Session: keyOf(0)}, 20*time.Second)
			w.ok(err)
			return got, time.Since(began).Round(time.Second)
		}
		a, b := w.register("a"), w.register("b").polling(time.Second)
		silent := map[statestore.Owner]bool{a.by: true, b.by: true}
		know := func() { board.learn(func(who statestore.Owner) bool { return silent[who] }) }
		if got, took := ask(b, "1"); got != answerDone || took != time.Second {
			t.Errorf("before anything is known: %d after %v", got, took)
		}
		know()
		if got, took := ask(b, "2"); got != answerDone || took != time.Second {
			t.Errorf("one that took a task of the job: %d after %v", got, took)
		}
		for _, id := range []string{"3", "4"} {
			if got, took := ask(a, id); got != answerNone || took != 0 {
				t.Errorf("question %s to a silent one: %d after %v", id, got, took)
			}
		}
		if !board.isPassive(a.by) || board.answers(a.by) {
			t.Error("a silent worker is not passive")
		}
		open, _, err := w.store.OpenTasks(w.ctx, a.by, 8)
		w.ok(err)
		if len(open) != 1 || open[0].ID != "3" || open[0].Job != "" {
			t.Errorf("it finds %+v", open)
		}
		know()
		if !board.isPassive(a.by) {
			t.Error("a silent worker is not passive in the next turn")
		}
		a.polling(time.Second)
		silent[a.by] = false
		know()
		w.pass(2 * time.Second)
		if got, took := ask(a, "5"); got != answerDone || took != time.Second {
			t.Errorf("one that polls by now: %d after %v", got, took)
		}
		board.wait()
	})
}

// A drain between workers that poll for nothing takes no time to find that out.
func TestDrainBetweenTheSilent(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		for _, id := range []string{"b", "c", "d"} {
			w.register(id)
		}
		a.creates(0, 30)
		w.pass(time.Minute)
		var reads atomic.Int64
		p := w.starts("one", w.store, func(o *Options) {
			o.Silent = func(context.Context) func(statestore.Owner) bool {
				reads.Add(1)
				return func(statestore.Owner) bool { return true }
			}
		})
		began := time.Now()
		p.drains(w, DrainSpec{Instances: []string{"a"}, Pace: Pace{PerTarget: 1}})
		w.eventually("all have moved", func() bool { moved, _ := w.truth("a", 30); return moved == 30 })
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("they moved after %v", took)
		}
		if n := reads.Load(); n == 0 || n > 10 {
			t.Errorf("what is known was read %d times", n)
		}
	})
}

// A worker that answers some of many questions in time is slow and not passive; one
// that answers none of them is passive after two rounds.
func TestManyQuestionsAtOnceMakeNobodyPassive(t *testing.T) {
	inWorld(t, func(w *world) {
		board := newBoard(w.store, "job", 5*time.Second, func(statestore.Owner) bool { return false })
		round := func(k *worker, name string) {
			t.Helper()
			var g errgroup.Group
			for i := range 20 {
				g.Go(func() error {
					task := statestore.Task{ID: fmt.Sprint(k.by.Instance, name, i), Kind: statestore.TaskOffload, For: k.by, Session: keyOf(i)}
					_, err := board.ask(w.ctx, task, 10*time.Second)
					return err
				})
			}
			w.ok(g.Wait())
		}
		slow, mute := w.register("slow"), w.register("mute")
		slow.atOnce, mute.atOnce = 1, 1
		slow.polling(time.Second)
		mute.does = func(statestore.Task) statestore.TaskAnswer {
			_ = sleep(w.ctx, time.Hour)
			return statestore.TaskAnswer{Result: statestore.TaskFailed}
		}
		mute.polling(0)
		for _, name := range []string{"first", "second", "third"} {
			if round(slow, name); board.isPassive(slow.by) {
				t.Errorf("slow is passive after the %s round", name)
			}
		}
		if round(mute, "first"); board.isPassive(mute.by) {
			t.Error("mute is passive after one round")
		}
		if round(mute, "second"); !board.isPassive(mute.by) {
			t.Error("mute is not passive after two rounds")
		}
		board.wait()
	})
}
