package migrations

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/statestore"
)

// passLimit is how many sessions leave between two looks: enough to be fast, few
// enough that plans follow the fleet.
const passLimit = 1024

// noticeLife is how long a source may take to pull the notice that a session left.
const noticeLife = time.Minute

// pass plans what was seen and carries the plan out. cut says that the limit left
// some of the plan for the next turn.
func (d *drain) pass(ctx context.Context, now *view) (moved int, cut bool, err error) {
	p := makePlan(d.question(now))
	d.why = p.why
	steps := p.steps
	if cut = len(steps) > passLimit; cut {
		steps = steps[:passLimit]
	}
	d.keeper.note(func(m *memo) { m.Blocked = p.blocked })
	if len(steps) == 0 {
		return 0, false, nil
	}
	gone, err := d.carryOut(ctx, steps, now.at)
	d.notify(ctx, gone)
	return len(gone), cut, err
}

// question puts what was seen into words for the planner.
func (d *drain) question(now *view) question {
	q := question{
		snapshot:  d.o.Snapshot(d.job.Pool),
		sessions:  now.sessions,
		mode:      d.spec.Mode,
		cold:      !time.Now().Before(d.endgame) && d.spec.AtDeadline == DeadlineCommit,
		grace:     d.spec.grace(),
		idleBelow: d.spec.Prewarm.idleBelow(),
		budget:    ^uint64(0),
		avoid:     d.spec.Avoid,
		refused:   d.refused,
	}
	for _, s := range d.sources {
		q.sources = append(q.sources, s.owner.Instance)
	}
	d.unseen.fade(now.at)
	q.placed = maps.Clone(d.unseen.load)
	d.keeper.look(func(m *memo) {
		if most := d.spec.Prewarm.MaxTokens; most > 0 {
			q.budget = most - min(most, m.PrewarmedTokens)
		}
	})
	return q
}

// carryOut takes the steps, in their order for each target, several at once, and
// returns those that ended in a move. None is under way any more then.
func (d *drain) carryOut(ctx context.Context, steps []step, seen time.Time) ([]step, error) {
	slots := make(chan struct{}, d.spec.Pace.Concurrency)
	out := &outcomes{d: d}
	g, ctx := errgroup.WithContext(ctx)
	for target, queue := range byTarget(steps) {
		width := d.spec.Pace.PerTarget
		if target.IsZero() {
			width = d.spec.Pace.Concurrency
		}
		for range min(width, len(queue)) {
			g.Go(func() error { return d.work(ctx, queue, slots, seen, out) })
		}
	}
	err := g.Wait()
	// The tasks of the steps are over; what is left of them is noise.
	d.dropTasks(ctx)
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

// work takes one target's steps, one after the other.
func (d *drain) work(ctx context.Context, queue <-chan step, slots chan struct{}, seen time.Time, out *outcomes) error {
	for s := range queue {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		r := d.mover.carry(ctx, s, seen)
		<-slots
		if r.err != nil {
			return r.err
		}
		out.add(s, r)
	}
	return nil
}

// outcomes collects what became of the steps of one pass.
type outcomes struct {
	d     *drain
	mu    sync.Mutex
	moved []step
}

func (o *outcomes) add(s step, r result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.moved {
		o.moved = append(o.moved, s)
		o.d.unseen.add(time.Now(), s.target.Instance, s.load)
	}
	if r.refusedBy != "" {
		o.d.refused[s.key] = r.refusedBy
	}
	if r.blocked != "" {
		o.d.why[s.key] = r.blocked
		o.d.keeper.note(func(m *memo) { increase(&m.Blocked, r.blocked, 1) })
	}
}

// notify tells the sources which sessions have left, so that they can let go of
// their KV cache: those that were active lately, since the cache of the others is
// the first to be evicted anyway. Who does not pull the notices misses nothing
// that the answer to a late append would not say as well.
func (d *drain) notify(ctx context.Context, moved []step) {
	tasks := make([]statestore.Task, 0, len(moved))
	for _, s := range moved {
		if s.orphaned || s.lapsed() || s.idle >= d.spec.Prewarm.idleBelow() {
			continue
		}
		tasks = append(tasks, statestore.Task{
			// The floor is the tail's own: only at that epoch may it still append.
			ID: d.mover.taskID(&s.session, string(statestore.TaskRelease)), Kind: statestore.TaskRelease,
			For: s.owner, Session: s.key, Floor: s.floor,
		})
	}
	if len(tasks) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := d.store.PutTasks(ctx, tasks, noticeLife); err != nil {
		d.log.InfoContext(ctx, "sources were not told of moves", "job", d.job.ID, "reason", err.Error())
	}
}

// dropTasks forgets what targets were asked; what stays behind ends by itself.
func (d *drain) dropTasks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_ = d.store.DropTasks(ctx, d.job.ID)
}

// taskID names a task of this holding. One of an earlier holding may have been
// answered for another version.
func (m *mover) taskID(s *session, what string) string {
	return m.ref.ID + "." + strconv.FormatUint(m.ref.Token, 10) + "." + s.key.Digest().String() + "." + what
}
