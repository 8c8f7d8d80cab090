package simulate

import (
	"strconv"

	"berth/cmd/berth/internal/policies"
	"berth/routing"
)

// placer is a policy as the engine plays it.
type placer interface {
	// members shows it a snapshot with other members or states, loads one with
	// another load table.
	members(snap *routing.Snapshot) error
	loads(snap *routing.Snapshot)
	// place names the instance for a session's next turn and why, empty for none.
	place(e *engine, session int32, exclude []string) (string, routing.Reason)
	// owner is where a key belongs before any load or memory, empty for nowhere.
	owner(key string) string
	// binds reports whether sessions stay where they are, and a drain moves them.
	binds() bool
	// senses reports whether loads count.
	senses() bool
}

// Names of the policies, as reports call them.
const (
	Berth       = "berth"
	Random      = "random"
	Modulo      = "modulo"
	PlainRing   = "plain_ring"
	BoundedRing = "bounded_ring"
)

func newPlacer(name string) placer {
	switch name {
	case Random:
		return &baseline{policy: policies.NewRandom(), aimless: true}
	case Modulo:
		return &baseline{policy: &policies.Modulo{}}
	case PlainRing:
		return &baseline{policy: &policies.PlainRing{}}
	case BoundedRing:
		return &bounded{}
	}
	return &berth{}
}

// berth is the real thing: [routing.Decide] with the session's record.
type berth struct {
	snap  *routing.Snapshot
	hints *routing.Hints
}

func (b *berth) members(snap *routing.Snapshot) error { b.loads(snap); return nil }
func (b *berth) loads(snap *routing.Snapshot)         { b.snap, b.hints = snap, b.hints.After(snap) }
func (b *berth) binds() bool                          { return true }
func (b *berth) senses() bool                         { return true }

func (b *berth) owner(key string) string {
	if in := b.snap.Owner(key); in != nil {
		return in.ID
	}
	return ""
}

func (b *berth) place(e *engine, session int32, exclude []string) (string, routing.Reason) {
	s := &e.sessions[session]
	var rec routing.Record
	if s.owner != nobody {
		rec = routing.Record{
			Exists: true, Owner: e.fleet[s.owner].id, Incarnation: strconv.Itoa(int(s.boot)),
			Lapsed: !s.live(e), BoundFor: e.now - s.bound,
		}
		if s.last != nobody {
			rec.LastServer = e.fleet[s.last].id
		}
	}
	req := routing.Request{Key: e.load.key(session), Exclude: exclude, Trials: e.trials()}
	if e.load.shares() {
		req.Hinted, req.Session = b.hints, mix(uint64(session))
	}
	d := routing.Decide(b.snap, req, rec)
	if d.Instance == nil {
		return "", d.Reason
	}
	if req.Hinted != nil {
		req.Hinted.Count(&req, &d)
	}
	if d.Trial {
		e.fleet[e.index[d.Instance.ID]].health.trial = false
	}
	return d.Instance.ID, d.Reason
}

// bounded is a ring with bounded loads and no memory: every turn goes to the
// first of its walk under the bound.
type bounded struct{ berth }

func (b *bounded) binds() bool { return false }

func (b *bounded) place(e *engine, session int32, exclude []string) (string, routing.Reason) {
	d := routing.Decide(b.snap, routing.Request{Key: e.load.key(session), Exclude: exclude}, routing.Record{})
	if d.Instance == nil {
		return "", d.Reason
	}
	return d.Instance.ID, d.Reason
}

// baseline is a policy that knows neither loads nor sessions.
type baseline struct {
	policy  policies.Policy
	aimless bool // no key has a first choice
	nobody  bool
}

func (b *baseline) members(snap *routing.Snapshot) error {
	var members []routing.Member
	for in := range snap.Instances() {
		if in.State.MayTakeNew() && in.Weight > 0 {
			members = append(members, routing.Member{ID: in.ID, Weight: in.Weight})
		}
	}
	b.nobody = len(members) == 0
	return b.policy.Members(members)
}

func (b *baseline) loads(*routing.Snapshot) {}
func (b *baseline) binds() bool             { return false }
func (b *baseline) senses() bool            { return false }

func (b *baseline) owner(key string) string {
	if b.nobody || b.aimless {
		return ""
	}
	return b.policy.Route(key)
}

func (b *baseline) place(e *engine, session int32, _ []string) (string, routing.Reason) {
	if b.nobody {
		return "", routing.ReasonNone
	}
	return b.policy.Route(e.load.key(session)), routing.ReasonNew
}
