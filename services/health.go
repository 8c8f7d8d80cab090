package services

import (
	"context"
	"errors"
	"time"

	"berth/statestore"
)

// The health lease: its holder alone writes health.
const (
	healthLease = "health"
	healthEvery = time.Second
	healthTTL   = 5 * time.Second
)

// watchHealth judges silences while this process holds the health lease.
func (s *Server) watchHealth(ctx context.Context) error {
	watch := newSilences(s.options.SuspectAfter, s.options.DownAfter, healthEvery)
	for pause(ctx, healthEvery) {
		if err := s.judgeHealth(ctx, watch); err != nil && ctx.Err() == nil {
			watch.stall()
			var held *statestore.LeaseHeldError
			if !errors.As(err, &held) {
				s.log.Warn("health not judged", "error", err)
			}
		}
	}
	return nil
}

func (s *Server) judgeHealth(ctx context.Context, watch *silences) error {
	lease, err := s.store.AcquireLease(ctx, healthLease, s.options.Process, healthTTL)
	if err != nil {
		return err
	}
	watch.holds(lease.Token)
	view, err := s.store.FleetView(ctx)
	if err != nil {
		return err
	}
	if err := s.removeGone(ctx, lease, &view); err != nil {
		return err
	}
	verdicts := watch.judge(view.Instances, time.Now())
	if len(verdicts) == 0 {
		return nil
	}
	changed := make(map[statestore.Owner]statestore.Verdict, len(verdicts))
	for i := range view.Instances {
		in := &view.Instances[i]
		health, judged := verdicts[in.Owner()]
		if !judged {
			continue
		}
		verdict := in.Verdict
		verdict.Health = health
		changed[in.Owner()] = verdict
		s.log.Info("health changed", "instance", in.ID, "health", healthName(health))
	}
	if err := s.store.SetVerdicts(ctx, lease, changed); err != nil {
		return err
	}
	s.fleet.nudge()
	return nil
}

func healthName(h statestore.Health) string {
	if h == statestore.Healthy {
		return "healthy"
	}
	return string(h)
}

// silences measures, on this process's monotonic clock, how long each boot of an
// instance has not moved its heartbeat number. The measure stands still while
// the process was stalled or the store was away, so that neither kills anybody:
// a round counts at most twice the time between rounds.
type silences struct {
	suspectAfter, downAfter, every time.Duration
	token                          uint64 // of the holding that everything below was seen in
	last                           time.Time
	seen                           map[statestore.Owner]*silence
}

type silence struct {
	beats uint64
	moved bool // this watcher has seen a heartbeat of this boot
	quiet time.Duration
}

func newSilences(suspectAfter, downAfter, every time.Duration) *silences {
	return &silences{
		suspectAfter: suspectAfter, downAfter: downAfter, every: every, seen: map[statestore.Owner]*silence{},
	}
}

// stall forgets when the last round was: the time until the next does not count.
func (w *silences) stall() { w.last = time.Time{} }

// holds begins anew with every holding of the lease: what was seen before says
// nothing about what another holder found in between.
func (w *silences) holds(token uint64) {
	if token != w.token {
		w.token, w.last, w.seen = token, time.Time{}, map[statestore.Owner]*silence{}
	}
}

// judge returns the verdicts that differ from what is stored. An instance that
// never sent a heartbeat has no lease, and is left as it is.
func (w *silences) judge(instances []statestore.Instance, now time.Time) map[statestore.Owner]statestore.Health {
	var passed time.Duration
	if !w.last.IsZero() {
		if passed = now.Sub(w.last); passed > 2*w.every {
			passed = 0
		}
	}
	w.last = now
	verdicts := map[statestore.Owner]statestore.Health{}
	present := make(map[statestore.Owner]*silence, len(instances))
	for i := range instances {
		in := &instances[i]
		who := in.Owner()
		q := w.seen[who]
		switch {
		case q == nil:
			q = &silence{beats: in.Beats}
		case q.beats != in.Beats:
			q = &silence{beats: in.Beats, moved: true}
		default:
			q.quiet += passed
		}
		present[who] = q
		if in.Beats == 0 {
			continue
		}
		if verdict := w.verdict(q, in.Health); verdict != in.Health {
			verdicts[who] = verdict
		}
	}
	w.seen = present
	return verdicts
}

// verdict is what a silence means. A new holder of the lease has seen nothing
// yet: it takes a sick instance for well only once a heartbeat moved, and one
// that is down stays so until then.
func (w *silences) verdict(q *silence, stored statestore.Health) statestore.Health {
	switch {
	case q.quiet >= w.downAfter, stored == statestore.Down && !q.moved:
		return statestore.Down
	case q.quiet >= w.suspectAfter:
		return statestore.Suspect
	case q.moved:
		return statestore.Healthy
	}
	return stored
}
