package migrations

import (
	"context"
	"fmt"
	"strconv"

	"berth/statestore"
)

// prewarmRounds is how often a session is prewarmed at most: again when it was
// written while its target prefilled, and not a third time.
const prewarmRounds = 2

// handOff promises the session to its target and lets both ends get ready: the
// source puts its KV cache where the target can read it, the target builds its own,
// and the source lets the running turn end. What they do not manage is no obstacle,
// but for a turn that still runs: the session goes cold. A result that is not zero
// ends the step.
func (m *mover) handOff(ctx context.Context, s *step) (warm bool, r result) {
	m.keeper.note(func(k *memo) { k.Reserved++ })
	defer m.keeper.note(func(k *memo) { k.Reserved-- })
	for {
		if r := m.reserve(ctx, s); r != (result{}) {
			return false, r
		}
		built, r := m.build(ctx, s)
		if r != (result{}) {
			return false, r
		}
		released, err := m.release(ctx, s)
		if err != nil {
			return false, m.failed(ctx, err)
		}
		if r, ok := m.reread(ctx, s); !ok {
			return false, r
		}
		switch current := built > 0 && built == s.floor.Version; {
		case !released && s.inFlight(m.grace):
			return false, result{blocked: BlockedInFlight}
		case current, built == 0, !m.mayBuildAgain(s.key):
			// A turn that began since the source let go is saved late, by the tail's rule.
			return current, result{}
		}
		// It was written while its target prefilled.
	}
}

// reserve keeps other jobs' hands off the session while it is handed over.
func (m *mover) reserve(ctx context.Context, s *step) result {
	if s.target.IsZero() {
		return result{}
	}
	plan := statestore.Reserve{Key: s.key, Epoch: s.floor.Epoch, Target: s.target, Job: m.ref, For: 3*m.grace + callTimeout}
	err := m.store.Reserve(ctx, plan)
	if plan.Over = m.yielding(ctx, err); plan.Over != "" {
		err = m.store.Reserve(ctx, plan)
	}
	if err != nil {
		return m.refused(ctx, s.intent(false), fmt.Errorf("reserve a target: %w", err))
	}
	return result{}
}

// build lets the target build the KV cache, from what the source offloads if it
// does, and returns the version that the cache stands for; 0 for none.
func (m *mover) build(ctx context.Context, s *step) (built uint64, r result) {
	if s.unanswered = s.prewarm && m.board.isPassive(s.target); !s.prewarm || s.unanswered {
		return 0, result{}
	}
	round, ok := m.nextRound(s.key)
	if !ok {
		return 0, result{}
	}
	if err := m.pace.prewarm.take(ctx, s.prefill()); err != nil {
		return 0, result{err: err}
	}
	if err := m.offload(ctx, s, round); err != nil {
		return 0, m.failed(ctx, err)
	}
	got, err := m.ask(ctx, s, statestore.TaskPrewarm, s.target, strconv.Itoa(round))
	switch {
	case err != nil:
		return 0, m.failed(ctx, err)
	case got == answerRefused:
		return 0, result{blocked: BlockedTargetRefused, refusedBy: s.target.Instance}
	case got != answerDone:
		s.unanswered = got == answerNone
		return 0, result{}
	}
	m.keeper.update(func(k *memo) { k.PrewarmedTokens += s.prefill() })
	return s.floor.Version, result{}
}

func (m *mover) mayBuildAgain(key statestore.SessionKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rounds[key] < prewarmRounds
}

func (m *mover) nextRound(key statestore.SessionKey) (int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rounds[key] == prewarmRounds {
		return 0, false
	}
	m.rounds[key]++
	return m.rounds[key], true
}

// offload lets the source put the session's KV cache where the target can read it.
// Where it lies comes with the answer, as placements of the session.
func (m *mover) offload(ctx context.Context, s *step, round int) error {
	if s.orphaned {
		return nil
	}
	got, err := m.ask(ctx, s, statestore.TaskOffload, s.owner, "offload"+strconv.Itoa(round))
	if err == nil && got == answerDone {
		m.keeper.note(func(k *memo) { k.Offloaded++ })
	}
	return err
}

// release lets the source end the turn that runs and save it, and reports whether it
// has.
func (m *mover) release(ctx context.Context, s *step) (bool, error) {
	if !s.release {
		return false, nil
	}
	m.mu.Lock()
	m.releases++
	what := "release" + strconv.Itoa(m.releases)
	m.mu.Unlock()
	got, err := m.ask(ctx, s, statestore.TaskRelease, s.owner, what)
	if err != nil || got != answerDone {
		return false, err
	}
	m.keeper.note(func(k *memo) { k.Released++ })
	return true, nil
}

// ask lets a worker do something for the session.
func (m *mover) ask(ctx context.Context, s *step, kind statestore.TaskKind, of statestore.Owner, what string) (answer, error) {
	return m.board.ask(ctx, statestore.Task{
		ID: m.taskID(&s.session, what), Kind: kind, For: of, Session: s.key, Floor: s.floor,
	}, m.grace)
}

// taskID names a task of this holding. One of an earlier holding may have been
// answered for another version.
func (m *mover) taskID(s *session, what string) string {
	return m.ref.ID + "." + strconv.FormatUint(m.ref.Token, 10) + "." + s.key.Digest().String() + "." + what
}

// unreserve gives the target's promise back, also when ctx is over. A reservation
// that stays behind ends by itself.
func (m *mover) unreserve(ctx context.Context, s *step) {
	if s.target.IsZero() || !s.prewarm && !s.release {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_ = m.store.Reserve(ctx, statestore.Reserve{Key: s.key, Epoch: s.floor.Epoch, Target: s.target, Job: m.ref})
}
