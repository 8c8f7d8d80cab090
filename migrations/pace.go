package migrations

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"
)

// budget lets so many units through each second. A nil one lets everything through.
type budget struct{ limit *rate.Limiter }

// newBudget allows a twentieth of a second's units at once, which keeps even a
// short job within a few percent of its pace; what was let go by later, as between
// two passes, is made up for up to half a second's.
func newBudget(perSecond float64) budget {
	if perSecond <= 0 {
		return budget{}
	}
	burst := int(max(1, min(perSecond/2, math.MaxInt32)))
	l := rate.NewLimiter(rate.Limit(perSecond), burst)
	l.AllowN(time.Now(), burst-max(1, burst/10))
	return budget{l}
}

// take waits for n units; what is larger than the burst waits in parts.
func (b budget) take(ctx context.Context, n uint64) error {
	if b.limit == nil {
		return ctx.Err()
	}
	burst := uint64(b.limit.Burst()) //nolint:gosec // positive, see newBudget
	for n > 0 {
		part := min(n, burst)
		if err := b.limit.WaitN(ctx, int(part)); err != nil { //nolint:gosec // at most the burst
			return err
		}
		n -= part
	}
	return nil
}

// budgets are what one holding of a job may spend.
type budgets struct {
	sessions, bytes, tokens budget
	prewarm                 budget // tokens
}

func newBudgets(p *Pace, w *Prewarm) *budgets {
	return &budgets{
		sessions: newBudget(p.SessionsPerS),
		bytes:    newBudget(p.BytesPerS),
		tokens:   newBudget(p.TokensPerS),
		prewarm:  newBudget(w.TokensPerS),
	}
}

// admit waits until the session may leave. Who is only unbound costs no target
// anything.
func (p *budgets) admit(ctx context.Context, s *step) error {
	if err := p.sessions.take(ctx, 1); err != nil {
		return err
	}
	if s.target.IsZero() {
		return nil
	}
	if err := p.bytes.take(ctx, s.bytes); err != nil {
		return err
	}
	return p.tokens.take(ctx, s.prefill())
}

// backoff waits longer and longer while nothing comes of it.
type backoff struct {
	least, most time.Duration
	next        time.Duration
}

// pause is the next wait: between half of it and the whole, so that jobs which
// were blocked together do not come back together.
func (b *backoff) pause() time.Duration {
	b.next = min(max(b.next*2, b.least), b.most)
	return b.next/2 + rand.N(b.next/2+1) //nolint:gosec // spreads retries, keeps no secret
}

func (b *backoff) reset() { b.next = 0 }

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
