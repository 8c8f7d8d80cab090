package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// absent is why a rung does not hold on this machine: not a fault, the ladder goes on.
type absent struct{ why string }

func (a absent) Error() string { return a.why }

// rung is one way to a Redis. open returns an absent error when the machine does
// not offer this way, and any other error when it does and the way is broken.
type rung struct {
	need string // what BERTH_TEST_REQUIRE calls it; "" is never required
	open func(context.Context, config) (*server, error)
}

// ladder is the order in which Standalone tries.
func ladder() []rung {
	return []rung{
		{open: func(ctx context.Context, c config) (*server, error) {
			return openNamed(ctx, os.Getenv("BERTH_TEST_REDIS"), c)
		}},
		{need: needDocker, open: openContainer},
		{open: openProcess},
	}
}

// climb returns the server of the first rung that holds. When none does, the error
// is absent and lists every reason. A rung that is required and does not hold, or
// one that is broken, ends the climb.
func climb(ctx context.Context, rungs []rung, c config, req requirements) (*server, error) {
	var reasons []string
	for _, r := range rungs {
		s, err := r.open(ctx, c)
		var lacking absent
		switch {
		case err == nil:
			return s, nil
		case !errors.As(err, &lacking):
			return nil, err
		case req[r.need]:
			return nil, fmt.Errorf("BERTH_TEST_REQUIRE names %s: %s", r.need, lacking.why)
		}
		reasons = append(reasons, lacking.why)
	}
	return nil, absent{strings.Join(reasons, "; ")}
}

// openProcess is the third rung.
func openProcess(ctx context.Context, c config) (*server, error) {
	p, err := startProcess(ctx, c.args())
	if err != nil {
		return nil, err
	}
	return newServer(p.URL, p.Rung, func(context.Context) error { return p.remove() })
}
