package migrations

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/statestore"
)

// EraseSpec is the request for an erase: to end every session that was begun with one
// affinity key, that of a user say, and to remove its context.
type EraseSpec struct {
	Tenant       string
	Pool         string // empty: all
	Key          statestore.AffinityKey
	Deadline     time.Duration // at most 7 days; 0: DefaultDeadline
	SessionsPerS float64       // 0: no bound
}

// eraseOrder is the stored form of an erase. The key is in hex.
type eraseOrder struct {
	Tenant       string  `json:"tenant"`
	Key          string  `json:"key"`
	SessionsPerS float64 `json:"sessions_per_s,omitempty"`
}

// CreateErase stores an erase. While one of the same sessions is under way, that one
// is returned, with existed true. What is wrong with the request is an [InvalidError].
func (r *Runner) CreateErase(ctx context.Context, spec EraseSpec) (statestore.Job, bool, error) {
	job, existed, err := r.createErase(ctx, &spec)
	if err != nil {
		return statestore.Job{}, false, fmt.Errorf("create erase: %w", err)
	}
	r.rouse()
	return job, existed, nil
}

func (r *Runner) createErase(ctx context.Context, spec *EraseSpec) (statestore.Job, bool, error) {
	deadline := cmp.Or(spec.Deadline, DefaultDeadline)
	switch {
	case spec.Key == statestore.AffinityKey{}:
		return statestore.Job{}, false, invalid("key", "must not be empty")
	case deadline < time.Millisecond || deadline > maxDeadline:
		return statestore.Job{}, false, invalid("deadline_ms", "must be 1 to %d", maxDeadline.Milliseconds())
	case spec.SessionsPerS < 0:
		return statestore.Job{}, false, invalid("sessions_per_s", "must not be negative")
	}
	order := eraseOrder{Tenant: spec.Tenant, Key: hex.EncodeToString(spec.Key[:]), SessionsPerS: spec.SessionsPerS}
	jobs, _, err := r.store.Jobs(ctx)
	if err != nil {
		return statestore.Job{}, false, err
	}
	for _, j := range jobs {
		var other eraseOrder
		if j.Kind != KindErase || j.Pool != spec.Pool || j.State.Ended() || json.Unmarshal(j.Spec, &other) != nil {
			continue
		}
		if other.Key == order.Key && other.Tenant == order.Tenant {
			return j, true, nil
		}
	}
	return r.storeJob(ctx, statestore.Job{Kind: KindErase, Pool: spec.Pool}, order, deadline)
}

// erase is one holding of an erase. It ends sessions at the epoch at which it saw
// them, so that a holder which was paused ends none that was begun since; and it is
// done when a whole scan has found no session of the key, also none that was begun
// meanwhile.
type erase struct {
	work
	query statestore.SessionQuery
}

// erasePage is how many sessions one read lists.
const erasePage = 500

// eraseBatch is how many deletes are put on record together before they are sent.
const eraseBatch = 256

func (r *Runner) newErase(h *holding, order *eraseOrder) (*erase, error) {
	e := &erase{query: statestore.SessionQuery{Tenant: order.Tenant, Pool: h.job.Pool, Limit: erasePage}}
	key, err := hex.DecodeString(order.Key)
	if err != nil || len(key) != len(e.query.AffinityKey) {
		return nil, errors.New("parse an erase: its key is none")
	}
	copy(e.query.AffinityKey[:], key)
	pace := Pace{SessionsPerS: order.SessionsPerS}.withDefaults()
	e.work = r.newWork(h, &pace, &Prewarm{}, 0)
	return e, nil
}

// run works on the job until it ends; see [drain.run].
func (e *erase) run(ctx context.Context) (statestore.JobState, error) {
	if e.job.State == statestore.JobCancelling {
		return e.cancel(ctx)
	}
	if e.job.State == statestore.JobPending {
		e.keeper.enter(statestore.JobPlanning, PhasePlanning)
	}
	if err := e.insist(ctx, e.cancelled, e.begin); err != nil {
		return "", err
	}
	return e.loop(ctx, func(ctx context.Context) (statestore.JobState, error) {
		return e.turn(ctx, max(time.Until(e.deadline), callTimeout), e.act)
	}, e.cancel)
}

func (e *erase) begin(ctx context.Context) error {
	_, now, err := e.store.Job(ctx, e.job.ID)
	if err != nil {
		return fmt.Errorf("read job %s: %w", e.job.ID, orLost(err))
	}
	e.setDeadline(now)
	return nil
}

// cancel settles what was sent. What was erased stays so.
func (e *erase) cancel(ctx context.Context) (statestore.JobState, error) {
	e.keeper.enter(statestore.JobCancelling, PhaseRestoring)
	e.keeper.wake()
	if err := e.insist(ctx, never, e.recount); err != nil {
		return "", err
	}
	return statestore.JobCancelled, nil
}

// act looks for the sessions once and erases as many of them as a pass takes.
func (e *erase) act(ctx context.Context) (end statestore.JobState, wait time.Duration, err error) {
	if err := e.recount(ctx); err != nil {
		return "", e.retry.pause(), err
	}
	found, left, err := e.find(ctx)
	if err != nil {
		return "", e.retry.pause(), err
	}
	late := !time.Now().Before(e.deadline)
	e.keeper.update(func(m *memo) { m.Total, m.Counted = max(m.Total, m.done()+left), true })
	switch {
	case left == 0 && !e.doubtful():
		e.keeper.update(func(m *memo) { m.Blocked = nil })
		return statestore.JobSucceeded, 0, nil
	case left == 0, late:
		e.partial(found, left)
		return statestore.JobPartial, 0, nil
	}
	e.keeper.enter(statestore.JobRunning, PhaseErasing)
	blocked := map[string]int{}
	for len(found) > 0 && err == nil {
		batch := found[:min(eraseBatch, len(found))]
		found = found[len(batch):]
		err = e.eraseAll(ctx, batch, blocked)
	}
	e.keeper.update(func(m *memo) { m.Blocked = blocked })
	if len(blocked) == 0 {
		e.retry.reset()
	}
	return "", min(e.retry.pause(), max(time.Until(e.deadline), 0)+time.Millisecond), err
}

// find lists the first sessions of the key, as many as a pass takes, and counts all.
func (e *erase) find(ctx context.Context) (first []statestore.View, all int, err error) {
	for q := e.query; ; {
		views, cursor, err := e.store.List(ctx, q)
		if err != nil {
			return nil, 0, fmt.Errorf("list the sessions of the key: %w", err)
		}
		all += len(views)
		first = append(first, views[:min(len(views), passLimit-len(first))]...)
		if cursor == "" {
			return first, all, nil
		}
		q.Cursor = cursor
	}
}

// eraseAll ends sessions, several at once. Each is on record before it is ended.
func (e *erase) eraseAll(ctx context.Context, batch []statestore.View, blocked map[string]int) error {
	e.keeper.update(func(m *memo) {
		for i := range batch {
			m.take(erasing(&batch[i]))
		}
	})
	if err := e.keeper.sync(ctx); err != nil {
		return err
	}
	why := make([]string, len(batch))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(e.pace.Concurrency)
	for i := range batch {
		g.Go(func() (err error) {
			if err := e.mover.pace.sessions.take(ctx, 1); err != nil {
				return err
			}
			why[i], err = e.eraseOne(ctx, &batch[i])
			return err
		})
	}
	err := g.Wait()
	for _, reason := range why {
		if reason != "" {
			blocked[reason]++
		}
	}
	return err
}

func erasing(v *statestore.View) intent {
	return intent{Key: v.Key, From: v.Owner, Epoch: v.Epoch, Bytes: v.Bytes, Tokens: Prefill(v)}
}

// eraseOne ends a session and counts it, or says why it has to be tried again. A
// delete that has begun is not given up when the time of the pass is over: it might
// happen after the count of what is left.
func (e *erase) eraseOne(ctx context.Context, v *statestore.View) (blocked string, err error) {
	in := erasing(v)
	begun, done := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer done()
	existed, err := e.o.Erase(begun, v)
	var stale *statestore.StaleHandleError
	var behind *statestore.StoreBehindError
	var ended *statestore.EndedError
	var undurable *statestore.NotDurableError
	switch {
	case errors.As(err, &undurable):
		e.keeper.update(func(m *memo) { m.countErased(in); m.Unproven.put(in) })
	case errors.As(err, &stale), errors.As(err, &behind):
		e.keeper.update(func(m *memo) { m.drop(in) })
		return BlockedChanged, nil // it is found again as it is now
	case errors.As(err, &ended), errors.Is(err, statestore.ErrNotFound), err == nil && !existed:
		e.keeper.update(func(m *memo) { m.drop(in); m.skip(SkippedDeleted, 1) })
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return BlockedStoreError, nil //nolint:nilerr // what became of it, recount reads off the session
	default:
		e.keeper.update(func(m *memo) { m.countErased(in) })
	}
	return "", nil
}

// recount settles the deletes of which nobody heard what they did. A session that is
// not there any more, at the epoch that was to be ended, was ended by them.
func (e *erase) recount(ctx context.Context) error {
	var inHand []intent
	e.keeper.look(func(m *memo) { inHand = m.InHand.list() })
	for _, in := range inHand {
		v, err := e.store.Lookup(ctx, in.Key)
		if err != nil {
			return fmt.Errorf("look at a session: %w", err)
		}
		e.keeper.update(func(m *memo) {
			if v.Exists && v.Epoch == in.Epoch {
				m.drop(in)
			} else {
				m.countErased(in)
			}
		})
	}
	return nil
}

// countErased settles a delete that happened, once.
func (m *memo) countErased(in intent) {
	m.drop(in)
	m.Erased++
	m.Bytes += in.Bytes
	m.Tokens += in.Tokens
}

// doubtful reports whether a session was ended without the durability that its pool
// asks for.
func (e *erase) doubtful() (yes bool) {
	e.keeper.look(func(m *memo) { yes = len(m.Unproven) > 0 })
	return yes
}

// partial ends a job that leaves something: sessions whose turn did not come in time,
// and those of which a failover of the store might bring a copy back.
func (e *erase) partial(found []statestore.View, left int) {
	e.keeper.update(func(m *memo) {
		m.Left, m.Blocked = nil, map[string]int{}
		name := func(in intent, reason string) {
			if len(m.Left) < leftoversKept {
				m.Left = append(m.Left, Leftover{Instance: in.From.Instance, Tenant: in.Key.Tenant, Session: in.Key.ID, Reason: reason})
			}
		}
		for i := range found {
			name(erasing(&found[i]), BlockedDeadline)
		}
		for _, in := range m.Unproven.list() {
			name(in, BlockedNotDurable)
		}
		if left > 0 {
			m.Blocked[BlockedDeadline] = left
		}
	})
}
