package migrations

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
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
	pollLeast = 10 * time.Millisecond
	pollMost  = 200 * time.Millisecond
)

// pollPatience is how long a worker may take to pull its first task. Workers poll
// with requests that are answered as soon as there is a task, so one that polls
// at all is there within a round trip, or when it is done with what it does.
const pollPatience = 5 * time.Second

// declineLimit is how many tasks of one kind a worker declines in a row, without
// ever having done one, before it is not asked for such any more.
const declineLimit = 3

// board puts one job's tasks up for workers to pull, and collects the answers. A
// worker that lets a task hang for the patience without ever having taken one
// does not poll, and is not asked again; neither is one that left two unanswered,
// one after the other, and answered nothing else meanwhile: who is only slow is not
// passive, however many questions it has at once. A release that is not answered counts for nothing there: the turn goes on. One that
// is known to have polled for nothing lately is not waited for at all (silence.go).
type board struct {
	store    taskStore
	job      string
	patience time.Duration
	gone     func(statestore.Owner) bool // that boot of a worker is no more

	mu       sync.Mutex
	open     map[string]hanging             // by task id
	polls    map[statestore.Owner]bool      // has taken a task of this job
	misses   map[statestore.Owner]int       // tasks left unanswered, in a row
	last     map[statestore.Owner]time.Time // when it answered, or a miss was counted
	passive  map[statestore.Owner]bool
	presumed map[statestore.Owner]bool // not to poll
	silent   func(statestore.Owner) bool
	declines map[duty]int // in a row; far below 0 for what was done once
	looking  bool
	next     *posting // that more tasks can join
	posts    chan struct{}
	under    sync.WaitGroup // looks and postings
}

// hanging is a question that somebody waits for the answer to.
type hanging struct {
	of       statestore.Owner
	answered chan statestore.Task // holds one
}

// duty is one kind of task of one worker.
type duty struct {
	of   statestore.Owner
	kind statestore.TaskKind
}

// wait returns when nothing is put up and nothing looks any more, shortly after the
// last question.
func (b *board) wait() { b.under.Wait() }

func newBoard(store taskStore, job string, patience time.Duration, gone func(statestore.Owner) bool) *board {
	return &board{
		store: store, job: job, patience: patience, gone: gone,
		open:     map[string]hanging{},
		polls:    map[statestore.Owner]bool{},
		misses:   map[statestore.Owner]int{},
		last:     map[statestore.Owner]time.Time{},
		passive:  map[statestore.Owner]bool{},
		presumed: map[statestore.Owner]bool{},
		declines: map[duty]int{},
		posts:    make(chan struct{}, 1),
	}
}

// ask puts the task up and waits for its answer, at most for the given time. A
// worker known to be passive, or not to do such tasks, is not asked. The error is
// the store's, or ctx's.
func (b *board) ask(ctx context.Context, t statestore.Task, within time.Duration) (answer, error) {
	if within <= 0 || b.spares(t.For, t.Kind) {
		return answerNone, nil
	}
	if first, silent := b.presume(t.For); silent {
		if first {
			b.invite(ctx, t, within)
		}
		return answerNone, nil
	}
	t.Job = b.job
	answered := b.register(ctx, &t)
	defer b.unregister(t.ID)
	if err := b.put(ctx, t, within); err != nil {
		return answerNone, fmt.Errorf("ask %s to %s: %w", t.For.Instance, t.Kind, err)
	}
	asked := time.Now()
	end, patience := time.NewTimer(within), time.NewTimer(b.patience)
	defer end.Stop()
	defer patience.Stop()
	for {
		select {
		case done := <-answered:
			if done.Result == statestore.TaskOpen {
				return answerNone, nil // nobody is there any more
			}
			got := verdict(done.Result)
			b.heard(duty{t.For, t.Kind}, got)
			return got, nil
		case <-patience.C:
			if !b.hasPolled(t.For) {
				b.never(t.For)
				return answerNone, nil
			}
		case <-end.C:
			if t.Kind != statestore.TaskRelease {
				b.missed(t.For, asked)
			}
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
	return b.passive[w] || b.presumed[w]
}

// asks reports whether the worker would be asked to do something and waited for, as far
// as is known.
func (b *board) asks(w statestore.Owner) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	silent := b.silent != nil && b.silent(w) && !b.polls[w]
	return !b.passive[w] && !b.presumed[w] && !silent
}

func (b *board) hasPolled(w statestore.Owner) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.polls[w]
}

// spares reports whether the worker need not be asked.
func (b *board) spares(w statestore.Owner, kind statestore.TaskKind) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	// A target that declines to prewarm may mean this session only.
	return b.passive[w] || b.presumed[w] || kind != statestore.TaskPrewarm && b.declines[duty{w, kind}] >= declineLimit
}

// answers reports whether a worker may let go of a session when it is asked to.
func (b *board) answers(w statestore.Owner) bool { return !b.spares(w, statestore.TaskRelease) }

func (b *board) heard(d duty, a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.misses, d.of)
	b.last[d.of] = time.Now()
	switch a {
	case answerRefused:
		b.declines[d]++
	case answerDone:
		b.declines[d] = math.MinInt32
	}
}

// never says that a worker does not poll.
func (b *board) never(w statestore.Owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.passive[w] = true
}

// missed says that a question which was asked then was left unanswered. Questions that
// hang at the same time are one miss.
func (b *board) missed(w statestore.Owner, asked time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last[w].After(asked) {
		return
	}
	b.last[w] = time.Now()
	if b.misses[w]++; b.misses[w] >= 2 {
		b.passive[w] = true
	}
}

// register waits for the answer to a task; the first to wait begins to look.
func (b *board) register(ctx context.Context, t *statestore.Task) <-chan statestore.Task {
	answered := make(chan statestore.Task, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[t.ID] = hanging{t.For, answered}
	if !b.looking {
		b.looking = true
		b.under.Go(func() { b.look(ctx) })
	}
	return answered
}

func (b *board) unregister(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, id)
}

// look reads the tasks that somebody waits for, while anybody does. The time between
// two reads is never less than what a read takes, so that looking leaves the store its
// time.
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
		wait = max(wait, time.Since(began))
	}
}

// read reports whether there were answers.
func (b *board) read(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	tasks, err := b.store.ReadTasks(ctx, b.asked())
	some := err == nil && b.deliver(tasks)
	b.abandon()
	return some
}

// asked are the ids of the tasks whose answers are waited for.
func (b *board) asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.open))
}

// abandon ends the wait for boots that are no more.
func (b *board) abandon() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, h := range b.open {
		if b.gone(h.of) {
			delete(b.open, id)
			h.answered <- statestore.Task{}
		}
	}
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
		h, waits := b.open[t.ID]
		if waits && t.Result != statestore.TaskOpen {
			delete(b.open, t.ID)
			h.answered <- t
			some = true
		}
	}
	return some
}
