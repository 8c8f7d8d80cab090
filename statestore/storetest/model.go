package storetest

import (
	"crypto/sha1" // the digest of a history, not a secret
	"maps"
	"slices"
	"time"

	"berth/statestore"
)

// model is what a store should hold, written from the contract in the plainest
// form. It keeps everything that ever happened to a session in this history, and
// forgets only where an answer is asked for. It shares no code with the rules
// that the backends follow.
type model struct {
	places map[string]*place // by session id
	fenced map[statestore.Owner]bool
	tokens map[string]uint64 // the highest of each job
}

// place is where a session is, or was.
type place struct {
	life *life // nil when there is none
	tomb statestore.Tombstone
}

// life is a session from its first append or report to its end.
type life struct {
	key      statestore.SessionKey
	affinity statestore.AffinityKey
	over     statestore.Tombstone // that it was begun over

	writes []written   // the n-th made version n+1
	owners []ownership // all, oldest first; the last is now
	owner  statestore.Owner

	tail       *statestore.Tail
	losses     []statestore.AcceptedLoss // all, oldest first
	reserved   *statestore.Reservation
	parked     []statestore.Parked
	placements map[statestore.Owner]string
	meta       []byte

	created, lastTurn, boundAt, affinityUntil, expires statestore.Millis
}

// written is one accepted write to the context.
type written struct {
	op      string
	kind    statestore.WriteKind
	base    *uint64
	turns   []statestore.Turn
	content statestore.ContentDigest
}

// ownership is one row of a record's changes.
type ownership = statestore.OwnerChange

func newModel() *model {
	return &model{places: map[string]*place{}, fenced: map[statestore.Owner]bool{}, tokens: map[string]uint64{}}
}

// clone is the model as a snapshot keeps it.
func (m *model) clone() *model {
	c := &model{places: map[string]*place{}, fenced: maps.Clone(m.fenced), tokens: maps.Clone(m.tokens)}
	for id, p := range m.places {
		q := &place{tomb: p.tomb}
		if l := p.life; l != nil {
			k := *l
			k.writes, k.owners = slices.Clone(l.writes), slices.Clone(l.owners)
			k.losses, k.parked = slices.Clone(l.losses), slices.Clone(l.parked)
			k.placements = maps.Clone(l.placements)
			q.life = &k
		}
		c.places[id] = q
	}
	return c
}

// at is the place of a session at a moment: a life whose time is over has ended.
func (m *model) at(key statestore.SessionKey, now statestore.Millis) *place {
	p := m.places[key.ID]
	if p == nil {
		p = &place{}
		m.places[key.ID] = p
	}
	if p.life != nil && now >= p.life.expires {
		p.end(statestore.Expired, p.life.expires)
	}
	return p
}

// end turns the life into a tombstone that takes a new epoch.
func (p *place) end(why statestore.EndReason, moment statestore.Millis) {
	p.tomb = statestore.Tombstone{Epoch: p.life.nextEpoch(moment), Reason: why}
	p.life = nil
}

// before is the end of the life before the present one, or of the last one.
func (p *place) before() statestore.Tombstone {
	if p.life != nil {
		return p.life.over
	}
	return p.tomb
}

func (l *life) version() uint64 { return uint64(len(l.writes)) }

// epoch is the present one. A life is never without an owner's row.
func (l *life) epoch() uint64 { return l.owners[len(l.owners)-1].Epoch }

// nextEpoch was never issued before: one more, or the clock if that is ahead.
func (l *life) nextEpoch(now statestore.Millis) uint64 {
	return max(l.epoch()+1, uint64(now))
}

// context replays all writes.
func (l *life) context() (turns []statestore.Turn, kept []uint64, rewritten uint64) {
	for i, w := range l.writes {
		keep := uint64(len(turns))
		switch {
		case w.kind == statestore.KindReplace:
			keep = 0
		case w.base != nil:
			keep = *w.base
		}
		if keep < uint64(len(turns)) {
			rewritten = uint64(i) + 1
		}
		turns = append(slices.Clone(turns[:keep]), w.turns...)
		kept = append(kept, keep)
	}
	return turns, kept, rewritten
}

// remembered is the writes whose ops a store still knows.
func (l *life) remembered() []written {
	return l.writes[max(0, len(l.writes)-statestore.OpsRemembered):]
}

// changes is the owners that a store still knows.
func (l *life) changes() []ownership {
	return l.owners[max(0, len(l.owners)-statestore.ChangesRemembered):]
}

// newest is the floor of the newest write.
func (l *life) newest() statestore.Floor {
	f := statestore.Floor{Epoch: l.epoch(), Version: l.version()}
	if n := len(l.writes); n > 0 {
		f.Op = statestore.DigestOp(l.writes[n-1].op)
	}
	return f
}

// record is what a lookup should find.
func (l *life) record() statestore.Record {
	turns, kept, rewritten := l.context()
	r := statestore.Record{
		Key: l.key, AffinityKey: l.affinity, Owner: l.owner, Epoch: l.epoch(), Version: l.version(),
		Turns: uint64(len(turns)), Rewritten: rewritten, Changes: l.changes(), Tail: l.tail, Before: l.over, Reserved: l.reserved,
		Created: l.created, LastTurn: l.lastTurn, BoundAt: l.boundAt, AffinityUntil: l.affinityUntil, Expires: l.expires,
	}
	for _, t := range turns {
		r.Bytes += uint64(len(t.Value))
		r.Tokens += t.Tokens
	}
	for i, w := range l.writes {
		r.Digest = sha1.Sum(slices.Concat(r.Digest[:], w.content[:]))
		if i >= len(l.writes)-statestore.OpsRemembered {
			r.Ops = append(r.Ops, statestore.Op{
				Op: statestore.DigestOp(w.op), Content: w.content, Version: uint64(i) + 1, Kept: kept[i],
			})
		}
	}
	if n := len(l.losses); n > 0 {
		r.Lost = &l.losses[n-1]
	}
	return r
}

// bind begins a new epoch of an owner.
func (l *life) bind(owner statestore.Owner, why statestore.ChangeReason, now statestore.Millis) {
	epoch := uint64(now)
	if len(l.owners) > 0 {
		epoch = l.nextEpoch(now)
	} else {
		epoch = max(epoch, l.over.Epoch+1)
	}
	l.owners = append(l.owners, ownership{Epoch: epoch, Version: l.version(), Instance: owner.Instance, Reason: why, At: now})
	l.owner, l.boundAt, l.reserved = owner, now, nil
}

// renew lets affinity and retention begin again.
func (l *life) renew(d statestore.Lifetimes, now statestore.Millis) {
	l.affinityUntil, l.expires = after(now, d.Affinity), after(now, d.Retention)
}

func after(now statestore.Millis, d time.Duration) statestore.Millis {
	return now + statestore.Millis(d/time.Millisecond)
}

// holds reports whether this history goes through the floor, as far as a store
// that forgets can tell.
func (l *life) holds(f statestore.Floor) bool {
	if f.Version == 0 {
		return true
	}
	if f.Version > l.version() {
		return false
	}
	if f.Version > l.version()-uint64(len(l.remembered())) {
		return statestore.DigestOp(l.writes[f.Version-1].op) == f.Op
	}
	known := l.changes()
	for i, c := range known {
		if c.Epoch == f.Epoch {
			return i == len(known)-1 || known[i+1].Version >= f.Version
		}
	}
	return f.Epoch < known[0].Epoch
}

// find is the version that a remembered op made.
func (l *life) find(op string) (uint64, *written) {
	for i := range l.remembered() {
		v := len(l.writes) - i
		if w := &l.writes[v-1]; w.op == op {
			return uint64(v), w
		}
	}
	return 0, nil
}

// copyAt is how many turns a copy of that floor has, and how many of its leading
// ones are still there. A copy of another history has none.
func (l *life) copyAt(f statestore.Floor) (turns, holding uint64) {
	if f.Epoch < l.over.Epoch || f.Version == 0 || f.Version > l.version() || statestore.DigestOp(l.writes[f.Version-1].op) != f.Op {
		return 0, 0
	}
	then := life{writes: l.writes[:f.Version]}
	old, _, _ := then.context()
	_, kept, _ := l.context()
	holding = uint64(len(old))
	for _, k := range kept[f.Version:] {
		holding = min(holding, k)
	}
	return uint64(len(old)), holding
}
