package migrations

import (
	"context"
	"fmt"
	"sync"
	"time"

	"berth/statestore"
)

// Ends of a question put to a worker.
type answer uint8

const (
	answerNone    answer = iota // it did not answer in time, or does not poll
	answerDone                  // it did what was asked
	answerRefused               // it will not
	answerFailed                // it tried in vain
)

// pollLeast and pollMost bound the time between two looks at a job's tasks: short
// after an answer, longer while none comes.
const (
	pollLeast = 20 * time.Millisecond
	pollMost  = 200 * time.Millisecond
)

// pollPatience is how long a worker may take to pull its first task. Workers poll
// with requests that are answered as soon as there is a task, so one that polls
// at all is there within a round trip, or when it is done with what it does.
const pollPatience = 5 * time.Second

// board puts one job's tasks up for workers to pull, and collects the answers. A
// worker that lets a task hang for the patience without ever having taken one
// does not poll, and is not asked again; neither is one that left two unanswered.
type board struct {
	store    taskStore
	job      string
	patience time.Duration

	mu      sync.Mutex
	open    map[string]chan statestore.Task // by task id; each holds one answer
	polls   map[statestore.Owner]bool       // has taken a task of this job
	misses  map[statestore.Owner]int        // tasks left unanswered, in a row
	passive map[statestore.Owner]bool
	looking bool
	looks   sync.WaitGroup
}

// wait returns when nothing looks any more, shortly after the last question.
func (b *board) wait() { b.looks.Wait() }

func newBoard(store taskStore, job string, patience time.Duration) *board {
	return &board{
		store: store, job: job, patience: patience,
		open:    map[string]chan statestore.Task{},
		polls:   map[statestore.Owner]bool{},
		misses:  map[statestore.Owner]int{},
		passive: map[statestore.Owner]bool{},
	}
}

// ask puts the task up and waits for its answer, at most for the given time. A
// worker known to be passive is not asked. The error is the store's, or ctx's.
func (b *board) ask(ctx context.Context, t statestore.Task, within time.Duration) (answer, error) {
	if b.isPassive(t.For) || within <= 0 {
		return answerNone, nil
	}
	t.Job = b.job
	if err := b.store.PutTasks(ctx, []statestore.Task{t}, within); err != nil {
		return answerNone, fmt.Errorf("ask %s to %s: %w", t.For.Instance, t.Kind, err)
	}
	answered := b.register(ctx, t.ID)
	defer b.unregister(t.ID)
	end, patience := time.NewTimer(within), time.NewTimer(b.patience)
	defer end.Stop()
	defer patience.Stop()
	for {
		select {
		case done := <-answered:
			b.heard(t.For)
			return verdict(done.Result), nil
		case <-patience.C:
			if !b.hasPolled(t.For) {
				b.missed(t.For, true)
				return answerNone, nil
			}
		case <-end.C:
			b.missed(t.For, false)
			return answerNone, nil
		case <-ctx.Done():
			return answerNone, context.Cause(ctx)
		}
	}
}

func verdict(r statestore.TaskResult) answer {
	switch r {
	case statestore.TaskDone:
		return answerDone
	case statestore.TaskRefused:
		return answerRefused
	}
	return answerFailed
}

func (b *board) isPassive(w statestore.Owner) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.passive[w]
}

func (b *board) hasPolled(w statestore.Owner) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.polls[w]
}

func (b *board) heard(w statestore.Owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.misses, w)
}

func (b *board) missed(w statestore.Owner, never bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.misses[w]++
	b.passive[w] = never || b.misses[w] >= 2
}

// register waits for the answer to a task; the first to wait begins to look.
func (b *board) register(ctx context.Context, id string) <-chan statestore.Task {
	answered := make(chan statestore.Task, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[id] = answered
	if !b.looking {
		b.looking = true
		b.looks.Go(func() { b.look(ctx) })
	}
	return answered
}

func (b *board) unregister(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, id)
}

// look reads the job's tasks while anybody waits for one. The time between two
// reads is never less than what a read costs a few times over, so that looking
// leaves the store its time.
func (b *board) look(ctx context.Context) {
	ctx = context.WithoutCancel(ctx) // those who wait have contexts of their own
	for wait := pollLeast; b.watched(); {
		_ = sleep(ctx, wait) // never cancelled
		began := time.Now()
		if b.read(ctx) {
			wait = pollLeast
		} else {
			wait = min(wait*5/4, pollMost)
		}
		wait = max(wait, 4*time.Since(began))
	}
}

// read reports whether there were answers.
func (b *board) read(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	tasks, err := b.store.TasksOf(ctx, b.job)
	return err == nil && b.deliver(tasks)
}

// watched reports whether anybody waits, and ends the looking if nobody does.
func (b *board) watched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looking = len(b.open) > 0
	return b.looking
}

// deliver hands answers to those who wait for them.
func (b *board) deliver(tasks []statestore.Task) (some bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range tasks {
		if t.LeaseEnd > 0 || t.Result != statestore.TaskOpen {
			b.polls[t.For] = true
		}
		answered, waits := b.open[t.ID]
		if waits && t.Result != statestore.TaskOpen {
			delete(b.open, t.ID)
			answered <- t
			some = true
		}
	}
	return some
}
