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
