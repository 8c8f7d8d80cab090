package drainbench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/cmd/berth/internal/pause"
)

// Config says what to measure.
type Config struct {
	URL       string // of a Berth that holds no other sessions in the pool
	Pool      string
	Sessions  int
	Targets   int
	Clients   int           // that take turns on sessions of their own meanwhile
	IdleBelow time.Duration // sessions idle for less are handed over with their KV cache
	Pace      float64       // sessions a second of the second drain

	Concurrency, PerTarget int
	// Step, unless nil, is told how far the measurement has come.
	Step func(what string, done, total int)
}

// Figures are what was measured.
type Figures struct {
	SessionsPerS     float64 `json:"sessions_per_s"` // from the request until all had moved, as fast as it goes
	PacedError       float64 `json:"paced_error"`    // of the rate that was asked for: 0.05 is five percent
	Lost             int     `json:"lost"`           // acknowledged turns that are not stored
	Doubled          int     `json:"doubled"`        // turns that are stored more than once
	NewHintsToSource int     `json:"new_hints_to_source"`

	Sessions     int     `json:"sessions"`
	Prewarmed    int     `json:"prewarmed"` // of them, by the unpaced drain
	Offloaded    int     `json:"offloaded"` // by their source, the same
	PacedPerS    float64 `json:"paced_per_s"`
	AskedPerS    float64 `json:"asked_per_s"`
	Turns        int     `json:"turns"`           // taken meanwhile
	FailedTurns  int     `json:"failed_turns"`    // that no answer led to success
	NewSessions  int     `json:"new_sessions"`    // begun meanwhile
	Redirections int     `json:"redirections"`    // answers that a client had to follow
	SafeToStopMS int64   `json:"safe_to_stop_ms"` // from the request until the unpaced drain had succeeded
}

// settle is how long traffic runs before the first drain: longer than the in-flight
// grace, so that only sessions of the traffic are in flight.
const settle = 2500 * time.Millisecond

// Run measures.
func Run(ctx context.Context, c Config) (f Figures, err error) {
	s, err := newStage(ctx, c)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.seat(ctx); err != nil {
		return f, err
	}
	traffic := newTraffic(s)
	running, stop := context.WithCancel(ctx)
	defer stop()
	g, running := errgroup.WithContext(running)
	g.Go(func() error { return traffic.run(running) })
	err = s.measure(ctx, traffic, &f)
	stop()
	if err := errors.Join(err, g.Wait()); err != nil {
		return f, err
	}
	f.Turns, f.FailedTurns = int(traffic.turns.Load()), int(traffic.failed.Load())
	f.NewSessions, f.NewHintsToSource = int(traffic.begun.Load()), int(traffic.wrong.Load())
	f.Redirections = int(traffic.redirected.Load())
	f.Lost, f.Doubled, err = s.check(ctx, traffic)
	return f, err
}

// measure drains the source as fast as it goes, and then one of those that got its
// sessions at the pace.
func (s *stage) measure(ctx context.Context, t *traffic, f *Figures) error {
	if err := pause.For(ctx, settle); err != nil {
		return err
	}
	fast, err := s.drain(ctx, t, s.ids[0], 0)
	if err != nil {
		return err
	}
	f.Sessions, f.Prewarmed, f.Offloaded = fast.sessions, fast.prewarmed, fast.offloaded
	f.SessionsPerS = float64(fast.sessions) / fast.moved.Seconds()
	f.SafeToStopMS = fast.safe.Milliseconds()
	f.AskedPerS = s.c.Pace
	if s.c.Pace <= 0 {
		return nil
	}
	paced, err := s.drain(ctx, t, s.ids[1], s.c.Pace)
	if err != nil {
		return err
	}
	if paced.sessions == 0 {
		return fmt.Errorf("%s had no sessions to move at a pace", s.ids[1])
	}
	f.PacedPerS = paced.rate()
	f.PacedError = math.Abs(f.PacedPerS/s.c.Pace - 1)
	return nil
}
