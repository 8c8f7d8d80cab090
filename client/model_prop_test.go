package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// plan is what one run against the model does.
type plan struct {
	faults  []fault
	durable []bool
	acts    []int // what is written, and with which argument
	seed    uint64
}

func drawPlan(t *rapid.T) plan {
	return plan{
		faults: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fault {
			if rapid.IntRange(0, 2).Draw(t, "faulty") > 0 {
				return none
			}
			return fault(rapid.IntRange(int(lostBefore), int(rollback)+depths).Draw(t, "fault"))
		}), 0, 60).Draw(t, "faults"),
		durable: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) bool { return rapid.IntRange(0, 4).Draw(t, "durable") == 0 }), 0, 60).Draw(t, "durability"),
		acts:    rapid.SliceOfN(rapid.IntRange(0, 99), 1, 30).Draw(t, "acts"),
		seed:    rapid.Uint64().Draw(t, "seed"),
	}
}

// inBubble runs one plan with time of its own.
func inBubble(t *testing.T, rt *rapid.T, run func(context.Context, *model, *Session) error) {
	p := drawPlan(rt)
	var err error
	var trace []string
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		m.faults, m.durable = p.faults, p.durable
		s := sessionOf(t, only(m), 0, 0)
		s.newest.handle, s.hint.handle = "0/0/", "0/0/"
		err = run(context.WithValue(t.Context(), planKey{}, p), m, s)
		trace = m.trace
	})
	if err != nil {
		rt.Fatalf("%v\n%s", err, strings.Join(trace, "\n"))
	}
}

type planKey struct{}

// Whatever the connection and the store do, short of losing what they called
// durable, a worker that writes one turn after another has exactly its own copy
// in the store in the end: nothing lost, nothing doubled, nothing out of order.
func TestNothingLostOrDoubledByOneWriter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, rt, func(ctx context.Context, m *model, s *Session) error {
			own := []string{}
			for i, act := range append(ctx.Value(planKey{}).(plan).acts, 0) {
				w := Write{Turns: []Turn{JSON([]byte(strconv.Itoa(i)))}}
				var err error
				switch kept := act / 10 * len(own) / 10; {
				case act%10 == 9:
					own = nil
					_, err = s.Replace(ctx, w)
				case act%10 == 8:
					own, w.Base = own[:kept], &kept
					_, err = s.Append(ctx, w)
				case act%10 > 4:
					w.At = AtEnd
					_, err = s.Append(ctx, w)
				default:
					_, err = s.Append(ctx, w)
				}
				if err != nil {
					return fmt.Errorf("write %d: %w", i, err)
				}
				own = append(own, strconv.Itoa(i))
				if h := s.Have(); h != nil && h.Turns > len(own) {
					return fmt.Errorf("after write %d the copy is said to have %d turns, it has %d", i, h.Turns, len(own))
				}
			}
			m.faults = nil
			r, err := s.Recover(ctx, RecoverRequest{Mode: Read, Have: s.Have()})
			if err != nil {
				return fmt.Errorf("recover: %w", err)
			}
			whole := slices.Clone(own[:r.Base])
			for _, turn := range r.Turns {
				whole = append(whole, string(turn.Value))
			}
			if !slices.Equal(m.stored.turns, own) || !slices.Equal(whole, own) {
				return fmt.Errorf("stored %q, recovered %q, acknowledged %q", m.stored.turns, whole, own)
			}
			return nil
		})
	})
}

// Requests of one session that append in parallel lose and double nothing either.
func TestNothingLostOrDoubledByParallelWriters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, rt, func(ctx context.Context, m *model, s *Session) error {
			errs := writeInParallel(ctx, m, s, func(int) time.Duration { return time.Hour })
			_, last := s.Append(ctx, Write{At: AtEnd, Turns: []Turn{JSON([]byte(`"last"`))}})
			if err := errors.Join(append(errs, last)...); err != nil {
				return err
			}
			return compareTurns(m, errs, `"last"`)
		})
	})
}

// A request that gives up leaves a write behind that nobody vouches for. If the
// store loses that one, what came after it may have no ground to stand on: the
// repair says so. What was acknowledged is never lost in silence, and nothing
// is ever doubled.
func TestNothingLostInSilence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, rt, func(ctx context.Context, m *model, s *Session) error {
			acts := ctx.Value(planKey{}).(plan).acts
			errs := writeInParallel(ctx, m, s, func(i int) time.Duration { return time.Duration(acts[i]*acts[i]) * time.Millisecond })
			_, err := s.Append(ctx, Write{At: AtEnd, Turns: []Turn{JSON([]byte(`"last"`))}})
			if err == nil {
				return compareTurns(m, errs, `"last"`)
			}
			if !errors.Is(err, ErrStoreBehind) {
				return err
			}
			for i := range errs {
				errs[i] = err // it may be missing now, but not twice there
			}
			return compareTurns(m, errs)
		})
	})
}

// writeInParallel appends one turn an act, all at once, each for as long as it
// may take, and returns the error of each.
func writeInParallel(ctx context.Context, m *model, s *Session, within func(i int) time.Duration) []error {
	p := ctx.Value(planKey{}).(plan)
	dice := rand.New(rand.NewPCG(p.seed, 1))
	m.late = func() { time.Sleep(time.Duration(dice.IntN(50)) * time.Millisecond) } // one at a time
	var wg sync.WaitGroup
	errs := make([]error, len(p.acts))
	for i := range p.acts {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, within(i))
			defer cancel()
			_, errs[i] = s.Append(ctx, Write{Op: "op" + strconv.Itoa(i), At: AtEnd, Turns: []Turn{JSON([]byte(strconv.Itoa(i)))}})
		})
	}
	wg.Wait()
	m.faults = nil
	return errs
}

// compareTurns wants every acknowledged turn once, and every other at most once.
func compareTurns(m *model, errs []error, more ...string) error {
	times := map[string]int{}
	if m.stored != nil {
		for _, turn := range m.stored.turns {
			times[turn]++
		}
	}
	for i, err := range errs {
		n := times[strconv.Itoa(i)]
		if n > 1 || (err == nil && n == 0) {
			return fmt.Errorf("turn %d is there %d times (its append: %v)", i, n, err)
		}
	}
	for _, turn := range more {
		if times[turn] != 1 {
			return fmt.Errorf("turn %s is there %d times", turn, times[turn])
		}
	}
	return nil
}
