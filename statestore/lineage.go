package statestore

// Holds reports whether the record continues the history that f was told of.
// Within the remembered ops the op of f's version decides; for an older version
// its epoch does.
func (r *Record) Holds(f Floor) bool {
	switch {
	case f.Version > r.Version:
		return false
	case f.Version == 0:
		return true
	}
	// One op a version, the newest last.
	if back := r.Version - f.Version; back < uint64(len(r.Ops)) {
		return r.Ops[uint64(len(r.Ops))-1-back].Op == f.Op
	}
	return r.reached(f)
}

// reached judges a floor older than the remembered ops: its epoch must not have
// ended below its version, and one that is unknown must be older than all that
// are remembered.
func (r *Record) reached(f Floor) bool {
	for i, c := range r.Changes {
		if c.Epoch != f.Epoch {
			continue
		}
		return i+1 == len(r.Changes) || f.Version <= r.Changes[i+1].Version
	}
	return len(r.Changes) == 0 || f.Epoch < r.Changes[0].Epoch
}

// Forgiven reports whether f, which left the lineage, belongs to a loss that a
// claimant accepted.
func (r *Record) Forgiven(f Floor) bool {
	return r.Lost != nil && f.Epoch < r.Lost.Epoch && f.Version <= r.Lost.Want
}

// Base is how many leading turns of a copy still hold: a copy of the given
// number of turns, made at floor f. The copy may end with turns that were never
// stored, so each write since f bounds it by what that write found; of a copy
// that is older than the remembered ops, or of an ended life, nothing is known to
// hold.
func (r *Record) Base(f Floor, turns uint64) uint64 {
	if f.Epoch < r.Before.Epoch || !r.Holds(f) || r.Version-f.Version > uint64(len(r.Ops)) {
		return 0
	}
	base := min(turns, r.Turns)
	for _, o := range r.Ops {
		if o.Version > f.Version {
			base = min(base, o.Kept)
		}
	}
	return base
}

// LastServer is the instance that made the last accepted write, as far as the
// remembered changes tell: an owner that has not written yet served nothing.
func (r *Record) LastServer() string {
	end := r.Version
	for i := len(r.Changes) - 1; i >= 0; i-- {
		if c := r.Changes[i]; c.Version < end && c.Instance != "" {
			return c.Instance
		}
		end = r.Changes[i].Version
	}
	return r.Owner.Instance
}

// CheckLineage holds every floor that was presented against the record; nil ones
// are left out. A floor off its lineage is a loss ([StoreBehindError]), unless a
// claimant accepted that loss before ([StaleHandleError]) or it belongs to a life
// that ended: that was told when it ended.
func (r *Record) CheckLineage(floors ...*Floor) error {
	var want uint64
	forgiven := false
	for _, f := range floors {
		switch {
		case f == nil || f.Epoch < r.Before.Epoch || r.Holds(*f):
		case r.Forgiven(*f):
			forgiven = true
		default:
			want = max(want, f.Version)
		}
	}
	switch {
	case want > 0:
		return &StoreBehindError{HaveVersion: r.Version, HaveTurns: r.Turns, WantVersion: want}
	case forgiven:
		return &StaleHandleError{Owner: r.Owner, Epoch: r.Epoch}
	}
	return nil
}

// CheckEnded refuses what was told of a life before this one, and, where there
// is no record (r nil), everything but what may begin a session. It is nil for a
// record in its own life, and for no record with floors that may begin one. have
// is the floor of the caller's copy, if it told one.
func CheckEnded(r *Record, end Tombstone, p *Presented, have *Floor) error {
	if r != nil {
		end = r.Before
	}
	if p != nil && p.Epoch < end.Epoch {
		return &EndedError{Reason: end.Reason, Epoch: end.Epoch}
	}
	if r != nil {
		return nil
	}
	if want := promised(end, p, have); want > 0 {
		return &StoreBehindError{WantVersion: want}
	}
	if p != nil && p.Epoch > end.Epoch {
		// A life without turns: nothing was promised, and a new route begins anew.
		return &EndedError{Reason: Expired, Epoch: end.Epoch}
	}
	return nil
}

// promised is the highest version of a life after the tombstone, which is not
// here, that a caller was told of.
func promised(end Tombstone, p *Presented, have *Floor) uint64 {
	floors := []*Floor{have}
	if p != nil {
		floors = append(floors, &p.Floor, p.Second)
	}
	var want uint64
	for _, f := range floors {
		if f != nil && f.Epoch >= end.Epoch {
			want = max(want, f.Version)
		}
	}
	return want
}

// Check judges a reader that presents a handle and the floor of its own copy, as
// a write is judged before owners are looked at. Both may be nil.
func (v *View) Check(p *Presented, have *Floor) error {
	if !v.Exists {
		return CheckEnded(nil, v.Tombstone, p, have)
	}
	if err := CheckEnded(&v.Record, v.Tombstone, p, have); err != nil {
		return err
	}
	if p == nil {
		return v.CheckLineage(have)
	}
	return v.CheckLineage(have, &p.Floor, p.Second)
}
