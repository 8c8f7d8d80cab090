package migrations

import (
	"context"
	"fmt"
	"time"

	"berth/statestore"
)

// survey reads the sessions that a plan is about, beside one view of the registry.
type survey struct {
	store Store
	fleet *statestore.FleetView
	pool  string
	grace time.Duration
}

// drained reads the sessions of an instance that is drained. Those of a later boot
// are not the drain's; those of an earlier one are nobody's any more, and go as well.
func (y *survey) drained(ctx context.Context, source statestore.Owner) (found []session, err error) {
	boot := present(y.fleet, source)
	later := successor(y.fleet, source)
	for v, err := range y.store.SessionsOf(ctx, y.pool, source.Instance) {
		if err != nil {
			return nil, fmt.Errorf("read the sessions of %s: %w", source.Instance, err)
		}
		if v.Owner != later {
			found = append(found, y.seen(&v, boot, source))
		}
	}
	if boot != nil {
		shareLoad(found, boot.LastBeat.Running+boot.LastBeat.Waiting)
	}
	return found, nil
}

// named reads the named sessions that are not settled. Those that there is nothing
// to do for are returned by their places, with the reason.
func (y *survey) named(
	ctx context.Context, keys []statestore.SessionKey, settled map[int]bool, target string,
) (sessions []session, skipped map[int]string, err error) {
	counts, err := y.store.CountSessions(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("count sessions: %w", err)
	}
	skipped = map[int]string{}
	for i, key := range keys {
		if settled[i+1] {
			continue
		}
		v, err := y.store.Lookup(ctx, key)
		if err != nil {
			return nil, nil, fmt.Errorf("look at a session: %w", err)
		}
		if reason := idleErrand(&v, target); reason != "" {
			skipped[i+1] = reason
			continue
		}
		boot := present(y.fleet, v.Owner)
		s := y.seen(&v, boot, v.Owner)
		s.named = i + 1
		if n := counts[statestore.InstanceName{Pool: key.Pool, Instance: v.Owner.Instance}]; boot != nil && n > 0 && s.active() {
			s.load = min(1, float64(boot.LastBeat.Running+boot.LastBeat.Waiting)/float64(n))
		}
		sessions = append(sessions, s)
	}
	return sessions, skipped, nil
}

// idleErrand says why there is nothing to do for a named session, if there is not.
func idleErrand(v *statestore.View, target string) string {
	switch {
	case !v.Exists && v.Tombstone.Reason == statestore.Deleted:
		return SkippedDeleted
	case !v.Exists:
		return SkippedExpired
	case v.Owner.IsZero() || !v.Live():
		return SkippedLapsed
	case v.Owner.Instance == target:
		return SkippedAlreadyMoved
	}
	return ""
}

// overloaded reads the sessions of the instances that are to be relieved: those over
// their bound, of the whole pool or the one that is named, unless a drain is at work
// on them.
func (y *survey) overloaded(ctx context.Context, q *shift, only string) error {
	q.minStick = q.snapshot.Policy().MinStick
	for i := range y.fleet.Instances {
		in := &y.fleet.Instances[i]
		if !y.relieves(q, in, only) {
			continue
		}
		from := len(q.sessions)
		for v, err := range y.store.SessionsOf(ctx, y.pool, in.ID) {
			if err != nil {
				return fmt.Errorf("read the sessions of %s: %w", in.ID, err)
			}
			q.sessions = append(q.sessions, y.seen(&v, in, in.Owner()))
		}
		shareLoad(q.sessions[from:], in.LastBeat.Running+in.LastBeat.Waiting)
	}
	return nil
}

// relieves reports whether an instance is to be relieved.
func (y *survey) relieves(q *shift, in *statestore.Instance, only string) bool {
	leaves := in.Lifecycle == statestore.Draining || in.Lifecycle == statestore.Drained
	if in.Pool != y.pool || only != "" && in.ID != only || leaves || in.Health == statestore.Down {
		return false
	}
	if q.quota == nil {
		return q.snapshot.OverBound(in.ID)
	}
	_, wanted := q.quota[in.ID]
	return wanted
}

// relieved lists the instances that are to be.
func (y *survey) relieved(q *shift, only string) []string {
	ids := []string{}
	for i := range y.fleet.Instances {
		if in := &y.fleet.Instances[i]; y.relieves(q, in, only) {
			ids = append(ids, in.ID)
		}
	}
	return ids
}

// successor is the boot that registered under the same id since; nobody when
// there is none.
func successor(fleet *statestore.FleetView, who statestore.Owner) statestore.Owner {
	for i := range fleet.Instances {
		if in := &fleet.Instances[i]; in.ID == who.Instance && in.Owner() != who {
			return in.Owner()
		}
	}
	return statestore.Owner{}
}

// orphaned reports whether nobody is there to be waited for: the boot that owns
// the session is not the source's present one, or that is down.
func orphaned(boot *statestore.Instance, source statestore.Owner, v *statestore.View) bool {
	return boot == nil || v.Owner != source || boot.Health == statestore.Down
}

// seen is what a scan tells of a session of the source, of which boot is the
// registered one, nil when it is gone.
func (y *survey) seen(v *statestore.View, boot *statestore.Instance, source statestore.Owner) session {
	s := newSession(v)
	s.orphaned = orphaned(boot, source, v)
	s.resting = !s.orphaned && restedSince(boot, v, y.grace)
	return s
}

// restedSince reports whether a heartbeat, received after the session's last
// write and no longer ago than the grace, says that nothing runs.
func restedSince(in *statestore.Instance, v *statestore.View, grace time.Duration) bool {
	return in.Beats > 0 && in.BeatAt > v.LastTurn && v.Now.Sub(in.BeatAt) <= grace && !busy(in)
}
