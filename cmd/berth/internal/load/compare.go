package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Client makes one request after another on its own connection.
type Client interface {
	// Next makes one exchange; an error ends the run.
	Next() error
	Close() error
}

// Target is one server under load.
type Target struct {
	Name string
	// Clients make the load, one goroutine each.
	Clients []Client
}

// Plan says how long to drive.
type Plan struct {
	Rounds int           // counted rounds of each target
	Round  time.Duration // length of one
	// Progress is told of every round, counted or not.
	Progress func(done, of int)
}

// Result is what a comparison found.
type Result struct {
	Ratio    float64 // median of first over second, round by round
	First    Figures
	Second   Figures
	RatioMin float64
	RatioMax float64
}

// Figures are of one target over all its rounds.
type Figures struct {
	PerSecond float64 // median of the rounds
	P50, P99  time.Duration
}

// Compare drives the two targets in turn, after one round each that does not
// count.
func Compare(ctx context.Context, p Plan, first, second Target) (Result, error) {
	targets := [2]Target{first, second}
	var rates [2][]float64
	var times [2][]time.Duration
	total := 2 * (p.Rounds + 1)
	for round := range total {
		if p.Progress != nil {
			p.Progress(round, total)
		}
		// A B, then B A: a machine that slows down harms both alike.
		which := round % 2
		if round/2%2 == 1 {
			which = 1 - which
		}
		rate, took, err := drive(ctx, p.Round, targets[which].Clients)
		if err != nil {
			return Result{}, fmt.Errorf("drive %s: %w", targets[which].Name, err)
		}
		if round < 2 {
			continue
		}
		rates[which] = append(rates[which], rate)
		times[which] = append(times[which], took...)
	}
	if p.Progress != nil {
		p.Progress(total, total)
	}
	ratios := make([]float64, p.Rounds)
	for i := range ratios {
		ratios[i] = rates[0][i] / rates[1][i]
	}
	return Result{
		Ratio: median(ratios), RatioMin: slices.Min(ratios), RatioMax: slices.Max(ratios),
		First: figures(rates[0], times[0]), Second: figures(rates[1], times[1]),
	}, nil
}

// drive lets all clients run for d, but for one exchange each at least, and returns
// exchanges a second and the time of each.
func drive(ctx context.Context, d time.Duration, clients []Client) (float64, []time.Duration, error) {
	took := make([][]time.Duration, len(clients))
	var group errgroup.Group
	started := time.Now()
	for i, c := range clients {
		group.Go(func() error {
			// A busy machine may begin with it when d is over.
			for before, first := time.Now(), true; first || before.Sub(started) < d; first = false {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err := c.Next(); err != nil {
					return err
				}
				now := time.Now()
				took[i] = append(took[i], now.Sub(before))
				before = now
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, nil, err
	}
	elapsed := time.Since(started)
	all := slices.Concat(took...)
	if len(all) == 0 {
		return 0, nil, errors.New("no exchange was made")
	}
	return float64(len(all)) / elapsed.Seconds(), all, nil
}

func figures(rates []float64, took []time.Duration) Figures {
	slices.Sort(took)
	return Figures{PerSecond: median(rates), P50: took[len(took)/2], P99: took[len(took)*99/100]}
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
