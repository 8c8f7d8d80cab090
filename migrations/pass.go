package migrations

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/statestore"
)

// A pass takes so many sessions, or what the pace lets through in so long: enough to
// be fast, little enough that plans follow the fleet. Of those that are handed over it
// takes as many as are handed over in that time by what the last pass has shown, and
// never less than a few.
const (
	passLimit    = 4096
	handOffLeast = 256
	passTime     = 5 // seconds
)

// noticeLife is how long a worker may take to pull the notice that a session moved.
const noticeLife = time.Minute

// noticeEvery is how long a notice may wait for others to go along.
const noticeEvery = 250 * time.Millisecond

// pass carries a plan out. cut says that the limit left some of it for the next
// turn.
func (w *work) pass(ctx context.Context, p *plan, seen time.Time) (moved int, cut bool, err error) {
	w.why = p.why
	w.waits.planned(time.Now(), p)
	defer func() { w.keeper.wait(w.waits.oldest()) }()
	steps, asked := onePass(p.steps, &w.pace, w.handOffs)
	w.keeper.note(func(m *memo) { m.Blocked, m.Failed = p.blocked, p.failed })
	if len(steps) == 0 {
		return 0, false, nil
	}
	crossed, err := w.pledge(ctx, steps)
	if crossed || err != nil {
		return 0, false, err
	}
	defer w.pledged.clear()
	began := time.Now()
	moved, err = w.carryOut(ctx, steps, seen)
	if asked > 0 {
		w.handOffs = handOffsIn(asked, time.Since(began))
	}
	return moved, len(steps) < len(p.steps), err
}

// handOffsIn is how many hand-offs the next pass takes after one that had so many and
// took so long.
func handOffsIn(asked int, took time.Duration) int {
	fit := float64(asked) * passTime / max(took.Seconds(), 0.001)
	return max(handOffLeast, int(min(fit, passLimit)))
}

// onePass is the first steps of a plan, as many as one pass takes, and how many of
// them are handed over.
func onePass(steps []step, pace *Pace, handOffs int) (first []step, asked int) {
	var sessions, bytes, tokens float64
	for i := range steps {
		s := &steps[i]
		more := bit(s.prewarm || s.release)
		slow := beyond(sessions, pace.SessionsPerS) || beyond(bytes, pace.BytesPerS) || beyond(tokens, pace.TokensPerS)
		if i == passLimit || asked+more > handOffs || slow {
			return steps[:i], asked
		}
		asked += more
		sessions, bytes, tokens = sessions+1, bytes+float64(s.bytes), tokens+float64(s.prefill())
	}
	return steps, asked
}

// beyond reports whether a pace lets no more than n through in the time of a pass.
func beyond(n, perSecond float64) bool { return perSecond > 0 && n > 0 && n >= passTime*perSecond }

// fill puts into a question what the holding knows.
func (w *work) fill(ctx context.Context, q *question, at time.Time) error {
	if w.o.Silent != nil {
		w.mover.board.learn(w.o.Silent(ctx))
	}
	others, err := w.othersGave(ctx)
	if err != nil {
		return err
	}
	w.counted = maps.Clone(others)
	for id, load := range w.pledged.all(at) {
		others[id] += load
	}
	q.snapshot, q.grace, q.idleBelow = w.o.Snapshot(w.job.Pool), w.grace, w.prewarm.idleBelow()
	q.placed, q.refused, q.budget = others, w.refused, ^uint64(0)
	q.failed, q.answers = w.failed, w.mover.board.answers
	w.keeper.look(func(m *memo) {
		if most := w.prewarm.MaxTokens; most > 0 {
			q.budget = most - min(most, m.PrewarmedTokens)
		}
	})
	return nil
}

// carryOut takes the steps, in their order for each target, several at once, and
// returns how many ended in a move. None is under way any more then.
func (w *work) carryOut(ctx context.Context, steps []step, seen time.Time) (int, error) {
	slots := make(chan struct{}, w.pace.Concurrency)
	out := &outcomes{w: w}
	telling, told := context.WithCancel(ctx)
	var teller sync.WaitGroup
	teller.Go(func() { out.tell(telling) })
	g, ctx := errgroup.WithContext(ctx)
	for target, queue := range byTarget(steps) {
		width := w.pace.PerTarget
		if target.IsZero() {
			width = w.pace.Concurrency
		}
		for range min(width, len(queue)) {
			g.Go(func() error { return w.workOff(ctx, queue, slots, seen, out) })
		}
	}
	err := g.Wait()
	told()
	teller.Wait()
	out.notify(ctx)
	// The tasks of the steps are over; what is left of them is noise.
	w.dropTasks(ctx)
	return out.moved, err
}

// byTarget gives each target a queue of its own, filled and closed.
func byTarget(steps []step) map[statestore.Owner]chan step {
	count := map[statestore.Owner]int{}
	for i := range steps {
		count[steps[i].target]++
	}
	queues := make(map[statestore.Owner]chan step, len(count))
	for target, n := range count {
		queues[target] = make(chan step, n)
	}
	for _, s := range steps {
		queues[s.target] <- s
	}
	for _, q := range queues {
		close(q)
	}
	return queues
}

// workOff takes one target's steps, one after the other.
func (w *work) workOff(ctx context.Context, queue <-chan step, slots chan struct{}, seen time.Time, out *outcomes) error {
	for s := range queue {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		r := w.mover.carry(ctx, &s, seen)
		<-slots
		if r.err != nil {
			if s.inFlight(w.grace) {
				out.block(&s, BlockedInFlight) // that is what it waited for
			}
			return r.err
		}
		out.add(&s, r)
	}
	return nil
}

// outcomes collects what became of the steps of one pass.
type outcomes struct {
	w       *work
	mu      sync.Mutex
	moved   int
	notices []statestore.Task
}

func (o *outcomes) add(s *step, r result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.moved {
		o.moved++
		o.w.pledged.moved(time.Now(), s)
		o.notices = append(o.notices, o.w.noticesOf(s, r)...)
	}
	if r.refusedBy != "" {
		o.w.refused[s.key] = r.refusedBy
	}
	if r.blocked != "" {
		o.w.why[s.key] = r.blocked
		o.w.waits.blocked(time.Now(), s.key)
		o.w.keeper.note(func(m *memo) { increase(&m.Blocked, r.blocked, 1) })
		o.w.tried(s, r.blocked)
	}
}

// block notes why a step that was cut off had not ended yet.
func (o *outcomes) block(s *step, reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.w.why[s.key] = reason
}

// tried counts a try in vain against the job's retry budget. What only waits for a
// turn to end is no try.
func (w *work) tried(s *step, blocked string) {
	if w.pace.Retries == 0 || blocked == BlockedInFlight || blocked == BlockedChanged {
		return
	}
	if w.tries[s.key]++; w.tries[s.key] > w.pace.Retries {
		w.failed[s.key] = blocked
	}
}

// noticesOf tells both ends of a move: the source, so that it can let go of its KV
// cache, and a target that has built one, so that it knows it is the owner. Only
// of sessions that were active lately, since the cache of the others is the first
// to be evicted anyway. Who does not pull the notices misses nothing that the
// answer to a late append, or the next hint, would not say as well.
func (w *work) noticesOf(s *step, r result) []statestore.Task {
	if s.orphaned || s.lapsed() || s.idle >= w.prewarm.idleBelow() {
		return nil
	}
	notices := []statestore.Task{{
		// The floor is the tail's own: only at that epoch may it still append.
		ID: w.mover.taskID(&s.session, "moved"), Kind: statestore.TaskRelease,
		For: s.owner, Session: s.key, Floor: s.floor, Owner: s.target, Epoch: r.epoch,
	}}
	if r.warm {
		floor := s.floor
		floor.Epoch = r.epoch
		notices = append(notices, statestore.Task{
			ID: w.mover.taskID(&s.session, "yours"), Kind: statestore.TaskPrewarm,
			For: s.target, Session: s.key, Floor: floor, Owner: s.target, Epoch: r.epoch,
		})
	}
	return notices
}

// tell sends notices every now and then, until ctx ends.
func (o *outcomes) tell(ctx context.Context) {
	for sleep(ctx, noticeEvery) == nil {
		o.notify(ctx)
	}
}

// notify sends the notices that wait.
func (o *outcomes) notify(ctx context.Context) {
	o.mu.Lock()
	notices := o.notices
	o.notices = nil
	o.mu.Unlock()
	if len(notices) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := o.w.store.PutTasks(ctx, notices, noticeLife); err != nil {
		o.w.log.InfoContext(ctx, "workers were not told of moves", "job", o.w.job.ID, "reason", err.Error())
	}
}

// dropTasks forgets what workers were asked; what stays behind ends by itself.
func (w *work) dropTasks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_ = w.store.DropTasks(ctx, w.job.ID)
}
