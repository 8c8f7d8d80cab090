package migrations

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"berth/statestore"
)

// staleAfter is the age at which what a scan told of a session is read again
// before the session is judged in flight or not.
const staleAfter = time.Second

// reservation is the name under which a store refuses what another job reserved.
const reservation = "reservation"

// result is what became of one step. The zero value says that nothing has yet.
type result struct {
	settled   bool // the session is counted: moved, or skipped
	moved     bool
	epoch     uint64 // that a move began, if it is known
	warm      bool   // the target holds the KV cache
	blocked   string // why it has to be tried again
	refusedBy string // the target that would not have it
	err       error  // ends the pass: the job is another's, or ctx is over
}

// mover takes single sessions through reserve, hand-off and commit.
type mover struct {
	store  sessionStore
	keeper *keeper
	board  *board
	pace   *budgets
	ref    statestore.JobRef
	grace  time.Duration
	takes  func(statestore.Owner) bool                // the target may still be given sessions
	gone   func(statestore.Owner) bool                // that boot is no more: nobody is there to be waited for
	over   func(ctx context.Context, job string) bool // what that job has reserved may be taken from it
	lives  statestore.Lifetimes
	need   statestore.Requirement

	mu       sync.Mutex
	rounds   map[statestore.SessionKey]int    // prewarms that a session has had
	releases int                              // asked for so far
	open     map[statestore.SessionKey]intent // sessions seen bound that nobody counted yet
}

// carry takes one step. seen is when the session was read.
func (m *mover) carry(ctx context.Context, s *step, seen time.Time) result {
	if m.grace > 0 && time.Since(seen) > staleAfter {
		if r, ok := m.reread(ctx, s); !ok {
			return r
		}
		switch flies := s.inFlight(m.grace); {
		case flies && !s.release:
			return result{blocked: BlockedInFlight}
		case !flies && !s.prewarm:
			s.release = false // it has fallen quiet meanwhile
		}
	}
	warm := false
	if s.prewarm || s.release {
		var r result
		if warm, r = m.handOff(ctx, s); r != (result{}) {
			m.unreserve(ctx, s)
			return r
		}
	}
	if !s.target.IsZero() && !m.takes(s.target) {
		// It fell ill since it was chosen, maybe while it was asked to prewarm.
		m.unreserve(ctx, s)
		return result{blocked: BlockedTargetRefused}
	}
	r := m.commit(ctx, s, warm)
	if !r.moved {
		m.unreserve(ctx, s)
	}
	return r
}

// reread looks at the session again; false when it is not any more what was planned.
func (m *mover) reread(ctx context.Context, s *step) (result, bool) {
	v, err := m.store.Lookup(ctx, s.key)
	if err != nil {
		return m.failed(ctx, fmt.Errorf("look at a session: %w", err)), false
	}
	in := s.intent(false)
	if f := fateOf(&v, in, false); f != fateBound {
		return m.settle(f, in), false
	}
	fresh := newSession(&v)
	fresh.named, fresh.orphaned, fresh.load = s.named, s.orphaned || m.gone(s.owner), s.load
	// A rest that was told before the last write says nothing any more.
	fresh.resting = s.resting && fresh.floor.Version == s.floor.Version
	s.session = fresh
	return result{}, true
}

// intent puts the step on record.
func (s *step) intent(warm bool) intent {
	return intent{
		Key: s.key, From: s.owner, Epoch: s.floor.Epoch, To: s.target,
		Bytes: s.bytes, Tokens: s.prefill(), Warm: warm, Lapsed: s.lapsed(), Unanswered: s.unanswered && !warm, Named: s.named,
	}
}

// commit changes the owner. The intent is in the store before the commit is sent,
// so that whoever holds the job next counts it neither twice nor not at all; from
// then on nothing but the store's answer ends the step.
func (m *mover) commit(ctx context.Context, s *step, warm bool) result {
	if err := m.pace.admit(ctx, s); err != nil {
		return result{err: err}
	}
	in := s.intent(warm)
	m.keeper.update(func(k *memo) { k.take(in) })
	if err := m.keeper.sync(ctx); err != nil {
		m.keeper.update(func(k *memo) { k.drop(in) })
		return result{err: err}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	moved, err := m.move(ctx, statestore.Move{
		Key: s.key, From: s.owner, Epoch: s.floor.Epoch, To: s.target, Job: m.ref,
		Lifetimes: m.lives, Require: m.need,
	})
	if err == nil {
		m.counted(in)
		m.keeper.update(func(k *memo) { k.count(in, m.keeper.age()) })
		return result{settled: true, moved: true, epoch: moved.Epoch, warm: warm && moved.Version == s.floor.Version}
	}
	return m.refused(ctx, in, fmt.Errorf("move a session: %w", err))
}

// move sends a commit; a reservation that this job may pass over does not stop it.
func (m *mover) move(ctx context.Context, move statestore.Move) (statestore.Moved, error) {
	out, err := m.store.Move(ctx, move)
	if move.Over = m.yielding(ctx, err); move.Over != "" {
		return m.store.Move(ctx, move) //nolint:wrapcheck // the caller says what it was about
	}
	return out, err //nolint:wrapcheck // the same
}

// yielding is the job whose reservation was in the way, if this one may take it.
func (m *mover) yielding(ctx context.Context, err error) string {
	var held *statestore.LeaseHeldError
	if errors.As(err, &held) && held.Name == reservation && m.over(ctx, held.Holder) {
		return held.Holder
	}
	return ""
}

// refused says what an error that is not nil means for an intent.
func (m *mover) refused(ctx context.Context, in intent, err error) result {
	var undurable *statestore.NotDurableError
	var stale *statestore.StaleHandleError
	var ended *statestore.EndedError
	var fenced *statestore.FencedTargetError
	var held *statestore.LeaseHeldError
	definite := errors.Is(err, statestore.ErrUnavailable) || errors.Is(err, statestore.ErrFull)
	switch {
	case errors.As(err, &undurable):
		return m.settle(fateMoved, in)
	case errors.As(err, &stale), errors.As(err, &ended):
		// Whoever changed the session, it was not this commit.
		return m.recount(ctx, in, false)
	case errors.As(err, &fenced), errors.As(err, &held), definite:
		m.keeper.update(func(k *memo) { k.drop(in) })
	}
	// Of anything else the outcome is unknown: the intent stays in hand, and the
	// next pass reads off the session what became of it.
	return m.failed(ctx, err)
}

// failed says how an error of the store blocks a step, or ends the pass.
func (m *mover) failed(ctx context.Context, err error) result {
	var held *statestore.LeaseHeldError
	var fenced *statestore.FencedTargetError
	switch {
	case errors.As(err, &held) && held.Name == reservation:
		return result{blocked: BlockedReserved}
	case errors.As(err, &held):
		return result{err: orLost(err)}
	case errors.As(err, &fenced):
		return result{blocked: BlockedTargetRefused, refusedBy: fenced.Target.Instance}
	case ctx.Err() != nil:
		return result{err: context.Cause(ctx)}
	}
	return result{blocked: BlockedStoreError}
}

// recount reads off the session what became of an intent, and counts it. sent says
// that its commit may have reached the store.
func (m *mover) recount(ctx context.Context, in intent, sent bool) result {
	v, err := m.store.Lookup(ctx, in.Key)
	if err != nil {
		return m.failed(ctx, fmt.Errorf("look at a session: %w", err))
	}
	return m.settle(fateOf(&v, in, sent), in)
}

// settle counts a fate.
func (m *mover) settle(f fate, in intent) result {
	if f == fateBound || f == fateStale {
		m.keeper.update(func(k *memo) { k.drop(in) })
		return result{blocked: BlockedChanged}
	}
	m.counted(in)
	m.keeper.update(func(k *memo) {
		if f == fateMoved {
			k.count(in, m.keeper.age())
			// That a commit happened says nothing of its durability.
			if m.need != (statestore.Requirement{}) {
				k.Unproven.put(in)
			}
			return
		}
		k.drop(in)
		k.skip(f.skipped(), 1)
		k.settle(in.Named)
	})
	return result{settled: true, moved: f == fateMoved}
}

// counted takes a session off the list of those that nobody counted yet.
func (m *mover) counted(in intent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, in.Key)
}

// vanished returns the sessions that were bound, are not, and that nobody counted.
func (m *mover) vanished(still map[statestore.SessionKey]intent) []intent {
	m.mu.Lock()
	defer m.mu.Unlock()
	var gone []intent
	for key, in := range m.open {
		if _, bound := still[key]; !bound {
			gone = append(gone, in)
		}
	}
	return gone
}

// expect takes over which sessions are bound.
func (m *mover) expect(still map[statestore.SessionKey]intent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = still
}

// prove asks the store to wait once more for the durability of a commit. Asked
// for its owner, a claim changes nothing and says what the record has reached; a
// session without an owner is unbound again instead.
func (m *mover) prove(ctx context.Context, in intent) error {
	v, err := m.store.Lookup(ctx, in.Key)
	if err != nil {
		return fmt.Errorf("look at a session: %w", err)
	}
	switch {
	case !v.Exists || v.Owner != in.To:
		// It has gone on since, by a write with a durability of its own.
		return nil
	case in.To.IsZero():
		_, err = m.store.Move(ctx, statestore.Move{
			Key: in.Key, Epoch: v.Epoch, Job: m.ref, Lifetimes: m.lives, Require: m.need,
		})
	default:
		_, err = m.store.Claim(ctx, statestore.Claim{Key: in.Key, By: in.To, Lifetimes: m.lives, Require: m.need})
	}
	if err != nil {
		return fmt.Errorf("wait for the durability of a move: %w", err)
	}
	return nil
}
