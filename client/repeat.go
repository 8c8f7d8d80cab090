package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// Bounds of the wait between two rounds over the processes.
const (
	firstWait = 100 * time.Millisecond
	longWait  = 10 * time.Second
)

// UnansweredError is a call that was repeated until its time was over and never
// got an answer. It wraps the end of the time (context.DeadlineExceeded or
// context.Canceled) and the last failure. What it asked for may have happened.
type UnansweredError struct {
	Last  error // of the last attempt
	Ended error // why there was no further one
}

func (e *UnansweredError) Error() string { return fmt.Sprintf("no answer (%v): %v", e.Ended, e.Last) }

// Unwrap gives both errors.
func (e *UnansweredError) Unwrap() []error { return []error{e.Ended, e.Last} }

// repeat sends the call, byte for byte the same, until it is answered: by a 2xx,
// by a refusal that settles it, by one 500 too many, or by the end of ctx or of
// Config.RepeatFor.
// torn reports that an attempt before the last may have been carried out.
func (c *conn) repeat(ctx context.Context, k call) (torn bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RepeatFor)
	defer cancel()
	var wait backoff
	failures := 0
	for untried := len(c.cfg.BaseURLs) - 1; ; untried-- {
		err := c.attempt(ctx, k)
		pause, again := wait.after(err)
		if failed(err) {
			failures++
		}
		if !again || failures == maxFailures {
			return torn, wrapUnlessNil(k.act, err)
		}
		torn = true
		c.log().DebugContext(ctx, "berth did not settle a call, repeating it", "act", k.act, "error", err)
		if untried > 0 && pause.elsewhere && ctx.Err() == nil {
			continue // on the next process, which may be better off
		}
		untried = len(c.cfg.BaseURLs)
		if ended := sleep(ctx, pause.length()); ended != nil {
			return torn, fmt.Errorf("%s: %w", k.act, &UnansweredError{Last: err, Ended: ended})
		}
		wait.rounds++
	}
}

// maxFailures is how many 500s answer a call: a fault in the server may be met
// again however often one asks.
const maxFailures = 6

func failed(err error) bool {
	var p *Problem
	return errors.As(err, &p) && p.Status == http.StatusInternalServerError
}

func wrapUnlessNil(act string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", act, err)
}

// backoff doubles from firstWait to longWait. Half of each wait is random, so
// that the callers of a process that died do not come back as one.
type backoff struct{ rounds int }

// pause is a wait between two attempts; elsewhere says that another process need
// not be waited for.
type pause struct {
	own, asked time.Duration
	elsewhere  bool
}

// length never ends before the time that the server asked for; what is added
// to it spreads the callers that it told the same.
func (p pause) length() time.Duration {
	if p.asked > 0 {
		return p.asked + p.own/2
	}
	return p.own
}

// after says whether a failed attempt is worth another one, and when.
func (b backoff) after(err error) (p pause, again bool) {
	var own *permanentError
	var problem *Problem
	var torn *transportError
	switch {
	case err == nil, errors.As(err, &own):
		return pause{}, false
	case errors.As(err, &problem):
		if problem.isAnswer() {
			return pause{}, false
		}
		return pause{own: b.next(), asked: problem.RetryAfter, elsewhere: problem.elsewhere()}, true
	case errors.As(err, &torn):
		return pause{own: b.next(), elsewhere: true}, true
	}
	return pause{}, false
}

func (b backoff) next() time.Duration {
	full := longWait
	if b.rounds < 7 {
		full = min(firstWait<<b.rounds, longWait)
	}
	return full/2 + rand.N(full/2+1) //nolint:gosec // spreads load, guards nothing
}

// sleep waits for d or the end of ctx, which it returns.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
