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

// slowPoster takes its time to store tasks, and counts how often it is asked to.
type slowPoster struct {
	statestore.Store
	calls  atomic.Int64
	failed error
}

func (s *slowPoster) PutTasks(ctx context.Context, tasks []statestore.Task, deadline time.Duration) error {
	s.calls.Add(1)
	if err := sleep(ctx, 5*time.Millisecond); err != nil {
		return err
	}
	if s.failed != nil {
		return s.failed
	}
	return s.Store.PutTasks(ctx, tasks, deadline)
}

// What is asked at the same time goes up together: all are answered, and the store is
// called a few times.
func TestQuestionsGoUpTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		good := w.register("good").polling(0)
		slow := &slowPoster{Store: w.store}
		board := newBoard(slow, "job", 5*time.Second, func(statestore.Owner) bool { return false })
		var g errgroup.Group
		for i := range 200 {
			g.Go(func() error {
				got, err := board.ask(w.ctx, statestore.Task{
					ID: fmt.Sprint(i), Kind: statestore.TaskPrewarm, For: good.by, Session: keyOf(i),
				}, 20*time.Second)
				if got != answerDone {
					t.Errorf("question %d: answer %d", i, got)
				}
				return err
			})
		}
		w.ok(g.Wait())
		if n := slow.calls.Load(); n > 20 {
			t.Errorf("%d calls for 200 questions", n)
		}
		board.wait()
	})
}

// What the store says of a posting it says of each question in it.
func TestQuestionsThatCannotGoUp(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a")
		board := newBoard(&slowPoster{Store: w.store, failed: statestore.ErrUnavailable}, "job", 5*time.Second,
			func(statestore.Owner) bool { return false })
		errs := make(chan error, 10)
		for i := range cap(errs) {
			go func() {
				_, err := board.ask(w.ctx, statestore.Task{ID: fmt.Sprint(i), Kind: statestore.TaskPrewarm, For: a.by}, time.Minute)
				errs <- err
			}()
		}
		for range cap(errs) {
			if err := <-errs; err == nil {
				t.Error("a question that did not go up has no error")
			}
		}
		board.wait()
	})
}

// A pass takes as many hand-offs as go through in its time, but never fewer than a
// few, nor more sessions than any pass.
func TestHandOffsOfAPass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		asked int
		took  time.Duration
		want  int
	}{
		{256, 10 * time.Minute, handOffLeast},
		{1000, 5 * time.Second, 1000},
		{1000, 2 * time.Second, 2500},
		{300, time.Microsecond, passLimit},
	} {
		if got := handOffsIn(c.asked, c.took); got != c.want {
			t.Errorf("after %d in %v: %d, want %d", c.asked, c.took, got, c.want)
		}
	}
	steps := make([]step, 1000)
	for i := range steps {
		steps[i].prewarm = i%2 == 0
	}
	if first, asked := onePass(steps, &Pace{}, 300); len(first) != 600 || asked != 300 {
		t.Errorf("a pass of %d steps, %d of them hand-offs", len(first), asked)
	}
}
