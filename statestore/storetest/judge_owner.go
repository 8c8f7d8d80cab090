package storetest

import (
	"maps"

	"berth/statestore"
)

// claim judges a claim.
func (m *model) claim(c statestore.Claim, now statestore.Millis) (statestore.Claimed, error) {
	p := m.at(c.Key, now)
	err := p.ended(c.Handle, c.Have)
	if err == nil && p.life != nil {
		err = p.life.lineage(told(c.Handle, c.Have))
	}
	var lost *statestore.Loss
	if behind, ok := err.(*statestore.StoreBehindError); ok && c.AcceptLost { //nolint:errorlint // made above
		lost, err = &statestore.Loss{HaveVersion: behind.HaveVersion, HaveTurns: behind.HaveTurns, WantVersion: behind.WantVersion}, nil
	}
	if err != nil {
		return statestore.Claimed{}, err
	}
	l := p.life
	if l == nil {
		return statestore.Claimed{Lost: lost}, nil
	}
	owns := l.owner == c.By
	if owns && lost == nil {
		return statestore.Claimed{}, nil
	}
	if m.fenced[c.By] && !owns {
		e := l.notOwner(c.By)
		e.Why = statestore.WhyFenced
		return statestore.Claimed{}, e
	}
	named := c.Handle != nil && c.Handle.Named && c.Handle.Epoch == l.epoch()
	free := l.owner == statestore.Owner{} || l.owner == c.Gone
	if !owns && !named && !free {
		return statestore.Claimed{}, l.stale()
	}
	why := statestore.ChangeClaimed
	if l.owner.Instance == c.By.Instance {
		why = statestore.ChangeReplaced
	}
	if lost != nil {
		why = statestore.ChangeLost
	}
	l.bind(c.By, why, now)
	l.renew(c.Lifetimes, now)
	l.tail = nil
	if lost != nil {
		l.losses = append(l.losses, statestore.AcceptedLoss{Epoch: l.epoch(), Want: lost.WantVersion})
	}
	return statestore.Claimed{Changed: true, Lost: lost}, nil
}

// forJob is what a job may act on: a session that is there, by its last holder.
func (m *model) forJob(key statestore.SessionKey, ref statestore.JobRef, now statestore.Millis) (*life, error) {
	p := m.at(key, now)
	if p.life == nil {
		return nil, p.absent()
	}
	if seen := m.tokens[ref.ID]; ref.Token < seen {
		return nil, &statestore.LeaseHeldError{Name: ref.ID, Token: seen}
	}
	return p.life, nil
}

// move judges the commit of a move.
func (m *model) move(v statestore.Move, now statestore.Millis) (statestore.Moved, error) {
	l, err := m.forJob(v.Key, v.Job, now)
	if err != nil {
		return statestore.Moved{}, err
	}
	if m.fenced[v.To] {
		return statestore.Moved{}, &statestore.FencedTargetError{Target: v.To}
	}
	if l.epoch() != v.Epoch || l.owner != v.From {
		return statestore.Moved{}, l.stale()
	}
	if err := l.held(v.Job, v.Over, now); err != nil {
		return statestore.Moved{}, err
	}
	if l.tail == nil && l.owner != (statestore.Owner{}) {
		l.tail = &statestore.Tail{Owner: l.owner, Epoch: l.epoch()}
	}
	why := statestore.ChangeMoved
	if v.To == (statestore.Owner{}) {
		why = statestore.ChangeDetached
	}
	l.bind(v.To, why, now)
	return statestore.Moved{Epoch: l.epoch(), Version: l.version()}, nil
}

// held is the refusal of a job by the reservation of another.
func (l *life) held(job statestore.JobRef, over string, now statestore.Millis) error {
	if r := l.reserved; r != nil && r.Job.ID != job.ID && r.Job.ID != over && now < r.Until {
		return &statestore.LeaseHeldError{Name: "reservation", Holder: r.Job.ID, Token: r.Job.Token}
	}
	return nil
}

// reserve judges a reservation, or its end.
func (m *model) reserve(v statestore.Reserve, now statestore.Millis) error {
	l, err := m.forJob(v.Key, v.Job, now)
	if err != nil {
		return err
	}
	r := l.reserved
	if v.For <= 0 {
		if r != nil && r.Job.ID == v.Job.ID {
			l.reserved = nil
		}
		return nil
	}
	if m.fenced[v.Target] {
		return &statestore.FencedTargetError{Target: v.Target}
	}
	if l.epoch() != v.Epoch {
		return l.stale()
	}
	if err := l.held(v.Job, v.Over, now); err != nil {
		return err
	}
	l.reserved = &statestore.Reservation{Job: v.Job, Target: v.Target, Until: after(now, v.For)}
	return nil
}

// presentEpoch is the life whose epoch a handle may end.
func (p *place) presentEpoch(h *statestore.Presented) (*life, error) {
	if err := p.ended(h, nil); err != nil {
		return nil, err
	}
	if p.life == nil {
		return nil, p.absent()
	}
	if err := p.life.lineage(told(h, nil)); err != nil {
		return nil, err
	}
	if h.Epoch != p.life.epoch() {
		return nil, p.life.stale()
	}
	return p.life, nil
}

// finish judges a release.
func (m *model) finish(f statestore.Finish, now statestore.Millis) (statestore.Receipt, error) {
	l, err := m.at(f.Key, now).presentEpoch(&f.Handle)
	if err != nil {
		return statestore.Receipt{}, err
	}
	if l.owner != f.By {
		return statestore.Receipt{}, l.stale()
	}
	l.bind(statestore.Owner{}, statestore.ChangeFinished, now)
	l.tail, l.affinityUntil = nil, now
	return l.receipt(now), nil
}

// erase judges a delete.
func (m *model) erase(d statestore.Delete, now statestore.Millis) (statestore.Ended, error) {
	p := m.at(d.Key, now)
	if d.Handle == nil && p.life == nil {
		return statestore.Ended{Epoch: p.tomb.Epoch}, nil
	}
	if d.Handle != nil {
		if _, err := p.presentEpoch(d.Handle); err != nil {
			return statestore.Ended{}, err
		}
	}
	p.end(statestore.Deleted, now)
	return statestore.Ended{Existed: true, Epoch: p.tomb.Epoch}, nil
}

// report judges a report of who served.
func (m *model) report(b statestore.Bind, now statestore.Millis) bool {
	p := m.at(b.Key, now)
	if p.ended(&b.Handle, nil) != nil || b.Handle.Version > 0 || m.fenced[b.Owner] {
		return false
	}
	l := p.life
	if l == nil {
		if p.tomb.Reason == statestore.Deleted {
			return false
		}
		l = &life{key: b.Key, affinity: b.Handle.AffinityKey, over: p.tomb, created: now, placements: map[statestore.Owner]string{}}
	} else if l.version() > 0 || l.epoch() != b.Handle.Epoch {
		return false
	}
	l.bind(b.Owner, statestore.ChangeReported, now)
	l.affinityUntil = after(now, b.Affinity)
	l.expires = l.affinityUntil
	p.life, p.tomb = l, statestore.Tombstone{}
	return true
}

// put judges placements.
func (m *model) put(key statestore.SessionKey, by statestore.Owner, descriptors string, now statestore.Millis) error {
	l := m.at(key, now).life
	if l == nil {
		return statestore.ErrNotFound
	}
	l.placements = maps.Clone(l.placements)
	if descriptors == "" || descriptors == "[]" {
		delete(l.placements, by)
	} else {
		l.placements[by] = descriptors
	}
	return nil
}
