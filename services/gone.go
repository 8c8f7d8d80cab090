package services

import (
	"context"
	"fmt"
	"time"

	"berth/statestore"
)

// goneWatch knows which instances the holder of the health lease may remove. The
// store's word that one has been down for long is not enough: it must have been so
// for a while under this holding's own eyes too. Who was down before every Berth
// was away needs the time to be heard of again, and the store's clock may jump.
type goneWatch struct {
	after    time.Duration // down for, by the store's clock
	patience time.Duration // down for, by this process's
	token    uint64        // of the holding that everything below was seen in
	down     map[statestore.Owner]time.Time
}

func newGoneWatch(after, patience time.Duration) *goneWatch {
	return &goneWatch{after: after, patience: patience}
}

// due returns the boots that may be removed.
func (g *goneWatch) due(token uint64, view *statestore.FleetView, now time.Time) []statestore.Owner {
	before := g.down
	if token != g.token {
		g.token, before = token, nil
	}
	g.down = map[statestore.Owner]time.Time{}
	var boots []statestore.Owner
	for i := range view.Instances {
		in := &view.Instances[i]
		if in.Health != statestore.Down {
			continue
		}
		who := in.Owner()
		since, seen := before[who]
		if !seen {
			since = now
		}
		g.down[who] = since
		if in.GoneFor(view.Now) >= g.after && now.Sub(since) >= g.patience {
			boots = append(boots, who)
		}
	}
	return boots
}

// removeGone deregisters the instances that have been down for long. Sessions that
// are bound to one stay as they are: a gone owner counts as none, so the next
// route places them and whoever it names claims them.
func (s *Server) removeGone(ctx context.Context, lease statestore.Lease, view *statestore.FleetView) error {
	boots := s.gone.due(lease.Token, view, time.Now())
	if len(boots) == 0 {
		return nil
	}
	removed, err := s.store.RemoveGone(ctx, lease, boots, s.gone.after)
	if err != nil {
		return fmt.Errorf("remove gone instances: %w", err)
	}
	for _, who := range removed {
		s.log.Info("gone instance removed", "instance", who.Instance)
	}
	s.metrics.removed.Add(float64(len(removed)))
	s.fleet.nudge()
	return nil
}
