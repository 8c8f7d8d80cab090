package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/client"
	"berth/cmd/berth/internal/pause"
	"berth/cmd/berth/internal/simworker"
)

// A gateway tries one request so often before its user sees it fail, and waits
// so long where there is nobody to send it to.
const (
	attempts = 20
	patience = 100 * time.Millisecond
	// routeTimeout leaves room for a machine that does everything else as well.
	routeTimeout = 10 * time.Second
)

// newGateway makes the gateway of a crew.
func newGateway(berth client.Config, c *crew) (gateway, error) {
	berth.AttemptTimeout = routeTimeout
	routes, err := client.NewGateway(berth)
	if err != nil {
		return gateway{}, fmt.Errorf("make a gateway: %w", err)
	}
	return gateway{routes: routes, crew: c}, nil
}

// gateway sends requests where Berth says, and follows its answers.
type gateway struct {
	routes *client.Gateway
	crew   *crew
}

// trip is how a request went, from the gateway's side.
type trip struct {
	simworker.Served
	route    *client.Route // the last one
	refused  int           // connections that failed
	redirect int           // answers that named another owner
}

// send routes one request and follows failures and redirections. The op stays
// the same on every try: one request is one write.
func (g *gateway) send(ctx context.Context, r simworker.Request) (t trip, err error) {
	var exclude []client.Exclusion
	for range attempts {
		t.route, err = g.routes.Route(ctx, client.RouteRequest{Session: r.Session, Exclude: exclude})
		var silent *client.UnansweredError
		if errors.Is(err, client.ErrNotEligible) || errors.As(err, &silent) {
			exclude = nil // everybody failed once: ask again without prejudice
			if err := pause.For(ctx, patience); err != nil {
				return t, err
			}
			continue
		}
		if err != nil {
			return t, fmt.Errorf("route: %w", err)
		}
		worker, err := g.crew.worker(t.route.Instance)
		if err != nil {
			return t, err
		}
		r.Hint = t.route.Hint()
		t.Served, err = worker.Serve(ctx, r)
		switch {
		case err == nil:
			return t, nil
		case errors.Is(err, simworker.ErrDead):
			t.refused++
			exclude = append(exclude, client.Exclusion{Instance: worker.ID(), Result: client.ResultConnect})
		case errors.Is(err, client.ErrNotOwner), errors.Is(err, client.ErrStaleHandle), errors.Is(err, client.ErrBadHandle):
			// Moved meanwhile, or hinted without the store: the next route knows where.
			t.redirect++
			if err := pause.For(ctx, patience/10); err != nil {
				return t, err
			}
		default:
			return t, err
		}
	}
	return t, fmt.Errorf("no instance served the request in %d tries: %w", attempts, err)
}
