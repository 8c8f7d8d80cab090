package migrations

import (
	"encoding/binary"
	"math"
	"time"

	"berth/routing"
	"berth/statestore"
)

// activeWithin is how long ago a session may have been written and still count as
// one that brings load along.
const activeWithin = 10 * time.Minute

// shareLoad gives every active session of one instance its share of the requests
// that run and wait there. Sessions that nobody came back to for long run none.
func shareLoad(sessions []session, inFlight int) {
	active := 0
	for i := range sessions {
		if sessions[i].active() {
			active++
		}
	}
	for i := range sessions {
		if sessions[i].load = 0; sessions[i].active() {
			sessions[i].load = min(1, float64(inFlight)/float64(active))
		}
	}
}

func (s *session) active() bool { return !s.lapsed() && s.idle < activeWithin }

// placer finds targets and counts what they were given.
type placer struct {
	tally   *routing.Tally // nil: nobody is known
	given   map[string]float64
	avoid   map[string]string
	refused map[statestore.SessionKey]string
}

func newPlacer(q *question) *placer {
	pl := &placer{given: map[string]float64{}, avoid: q.avoid, refused: q.refused}
	if q.snapshot == nil {
		return pl
	}
	pl.tally = routing.NewTally(q.snapshot, q.sources...)
	for id, load := range q.placed {
		pl.count(id, load)
	}
	return pl
}

// ringOwner is whom the ring alone would give the session.
func ringOwner(snapshot *routing.Snapshot, s *session) string {
	walk := snapshot.Ring().Walk(s.key.ID)
	if s.affinity != (statestore.AffinityKey{}) {
		walk = snapshot.Ring().WalkHash(binary.BigEndian.Uint64(s.affinity[:8]))
	}
	i, ok := walk.Next()
	if !ok {
		return ""
	}
	return snapshot.Ring().ID(i)
}

// count adds load to an instance. The tally counts whole requests; what is left of
// them waits for more. One that has left the pool counts for nothing.
func (pl *placer) count(id string, load float64) {
	before := pl.given[id]
	after := before + load
	pl.given[id] = after
	if whole := int(math.Floor(after) - math.Floor(before)); whole != 0 {
		_ = pl.tally.Add(id, whole)
	}
}

// place names the target of a session and counts it. A session that is active
// needs room for one request, however small its share of them is.
func (pl *placer) place(s *session) (*routing.Instance, bool) {
	if pl.tally == nil {
		return nil, false
	}
	avoid := func(in *routing.Instance) bool {
		return carries(in.Labels, pl.avoid) || pl.refused[s.key] == in.ID
	}
	target, ok := placeOn(pl.tally, s, avoid)
	if !ok {
		return nil, false
	}
	pl.count(target.Instance.ID, s.load)
	return target.Instance, true
}

func placeOn(tally *routing.Tally, s *session, avoid func(*routing.Instance) bool) (routing.Target, bool) {
	more := int(math.Ceil(s.load))
	if s.affinity == (statestore.AffinityKey{}) {
		return tally.Place(s.key.ID, more, avoid)
	}
	return tally.PlaceHash(binary.BigEndian.Uint64(s.affinity[:8]), more, avoid)
}

// carries reports whether the labels have all that are asked for, at least one.
func carries(labels, asked map[string]string) bool {
	for name, value := range asked {
		if got, ok := labels[name]; !ok || got != value {
			return false
		}
	}
	return len(asked) > 0
}

// unseen is the load that targets were given lately: it takes some time until
// their heartbeats tell of it. It belongs to one holding of a job.
type unseen struct {
	at   time.Time
	load map[string]float64
}

// unseenHalf is the time in which half of what was given shows in heartbeats: the
// next turns come when people have read the answer to the last.
const unseenHalf = 15 * time.Second

// add counts load that the instance was just given, or relieved of.
func (u *unseen) add(now time.Time, id string, load float64) {
	if load == 0 {
		return
	}
	u.fade(now)
	u.load[id] += load
}

// fade forgets what heartbeats tell by then.
func (u *unseen) fade(now time.Time) {
	if u.load == nil {
		u.load = map[string]float64{}
	}
	rest := math.Exp2(-float64(max(0, now.Sub(u.at))) / float64(unseenHalf))
	u.at = now
	for id := range u.load {
		if u.load[id] *= rest; math.Abs(u.load[id]) < 0.01 {
			delete(u.load, id)
		}
	}
}
