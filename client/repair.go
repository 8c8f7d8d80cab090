package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// RepairError is a loss that this Session could not repair. Cause is what
// stopped it: ErrNotOwner when another instance has come since, where the first
// lost write is parked for it and Waiting more wait for what it decides;
// ErrStoreBehind when what is missing is not held here any more. Accepting the
// loss (RecoverRequest.AcceptLost) ends it; any later call tries again.
type RepairError struct {
	Op      string // the write that the repair stopped at; "" if none is held
	Waiting int    // writes after it that have not been repeated
	Cause   error
}

func (e *RepairError) Error() string {
	return fmt.Sprintf("the store lost accepted writes; repair stopped with %d more waiting: %v", e.Waiting, e.Cause)
}

// Unwrap gives the cause, and says ErrStoreBehind whatever it is.
func (e *RepairError) Unwrap() []error { return []error{e.Cause, ErrStoreBehind} }

// repairKnown repairs a loss that was noticed before, so that no write goes
// past it. The caller has the turn.
func (s *Session) repairKnown(ctx context.Context) error {
	s.mu.Lock()
	known, repairs := s.lostFrom != "", s.repairs
	s.mu.Unlock()
	if !known {
		return nil
	}
	_, err := s.repair(ctx, hasTurn, repairs, nil)
	return err
}

// maxRounds bounds how often a repair begins again with a store that goes on
// losing what it has just been given.
const maxRounds = 16

// repair repeats the lost writes, oldest first, each with its own op and its own
// handle, and returns how many of them the store had lost. seen is how many
// repairs the caller had seen when it met the loss: if there has been another
// one since, there is nothing to do. found is the refusal that showed the loss,
// nil if it is known already where it begins.
func (s *Session) repair(ctx context.Context, turn turnState, seen int, found *Problem) (stored int, err error) {
	if turn == noTurn {
		if err := s.takeTurn(ctx); err != nil {
			return 0, &RepairError{Cause: err}
		}
		defer s.passTurn()
	}
	for rounds := 0; ; rounds++ {
		lost, from, done := s.beginRepair(seen, found)
		switch {
		case done:
			return 0, nil
		case len(lost) == 0:
			return 0, &RepairError{Cause: found}
		}
		n, err := s.replay(ctx, lost, from)
		stored += n
		if again := lostAgain(err); again != nil && n > 0 && rounds < maxRounds {
			found = again
			continue
		}
		s.endRepair(ctx, stored, err)
		return stored, err
	}
}

// beginRepair picks what to repeat.
func (s *Session) beginRepair(seen int, found *Problem) (lost []*kept, from int, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost = slices.Clone(s.journal.writes)
	if s.repairs != seen || (found == nil && len(lost) == 0) {
		return nil, 0, true
	}
	if len(lost) == 0 {
		return nil, 0, false
	}
	from = len(lost) - 1
	if found != nil {
		from = firstLost(lost, found)
	}
	if i := s.journal.index(s.lostFrom); i >= 0 {
		from = min(from, i)
	}
	return lost, from, false
}

// endRepair notes where the next one begins, if this one stopped.
func (s *Session) endRepair(ctx context.Context, stored int, err error) {
	var stopped *RepairError
	errors.As(err, &stopped)
	s.mu.Lock()
	s.lostFrom = ""
	if stopped != nil && s.journal.index(stopped.Op) >= 0 {
		s.lostFrom = stopped.Op
	}
	if stopped == nil {
		s.repairs++
	}
	s.mu.Unlock()
	s.w.conn.log().WarnContext(ctx, "repeated accepted writes that the store may have lost", "lost", stored, "done", err == nil)
}

// lostAgain is the refusal of a store that went back while it was repaired.
func lostAgain(err error) *Problem {
	var stopped *RepairError
	if !errors.As(err, &stopped) {
		return nil
	}
	if p := refusal(stopped.Cause); p != nil && p.Code == ErrStoreBehind {
		return p
	}
	return nil
}

// firstLost guesses where the loss begins: above the store's version, or, where
// the store holds another history, at the last write. replay steps back from
// there until it stands on what the store holds.
func firstLost(lost []*kept, found *Problem) int {
	if have, want := found.Have, found.Want; have != nil && want != nil && have.Version < want.Version {
		i := slices.IndexFunc(lost, func(k *kept) bool { return k.answered.version > have.Version })
		if i >= 0 {
			return i
		}
	}
	return len(lost) - 1
}

// replay repeats the writes from the i-th on, and from an earlier one on if that
// one has no ground to stand on.
func (s *Session) replay(ctx context.Context, lost []*kept, i int) (stored int, err error) {
	again := map[string]mark{} // op → where it is now
	over := uint64(0)          // epoch of a life that is found to be over
	for i < len(lost) {
		k := lost[i]
		if k.answered.epoch <= over {
			i++
			continue
		}
		r, err := s.send(ctx, k.write, k.ground(again))
		switch {
		case err == nil:
			again[k.write.Op] = r.mark()
			if r.fresh {
				stored++
			}
			i++
		case errors.Is(err, ErrStoreBehind) && len(again) == 0 && i > 0:
			i--
		case errors.Is(err, ErrExpired), errors.Is(err, ErrDeleted):
			over = k.answered.epoch
			s.over(over)
		case errors.Is(err, ErrStaleHandle):
			// Another claimant has accepted this loss: it is told this once.
			s.drop(k.answered.epoch)
			fallthrough
		default:
			return stored, &RepairError{Op: k.write.Op, Waiting: len(lost) - i - 1, Cause: err}
		}
	}
	return stored, nil
}

// ground is the handle that a kept write is repeated with: its own. Where the
// write that it names has got another place by being repeated, that is the
// handle of the new place, which names the same write.
func (k *kept) ground(again map[string]mark) mark {
	if m, ok := again[k.presented.op]; ok && !m.samePlace(k.presented) {
		return m
	}
	return k.presented
}
