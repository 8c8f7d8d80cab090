package routing

// WalkHash begins the walk of a key that is known by its 64-bit xxhash alone.
func (r *Ring) WalkHash(hash uint64) Walk { return r.walk(hash) }

// PlaceHash is [Tally.Place] for a key that is known by its 64-bit xxhash alone,
// which is how a stored record keeps the affinity key that its caller gave.
func (t *Tally) PlaceHash(hash uint64, load int, avoid func(*Instance) bool) (Target, bool) {
	var shunned, crowded, last *Instance
	w := t.s.roster.ring.WalkHash(hash)
	for i, ok := w.Next(); ok; i, ok = w.Next() {
		if !t.targets.has(i) {
			continue
		}
		in, roomy := &t.s.instances[i], !t.over(i, load)
		avoided := avoid != nil && avoid(in)
		switch {
		case roomy && !avoided:
			return Target{in, true}, true
		case roomy && shunned == nil:
			shunned = in
		case !avoided:
			crowded = t.lighter(in, crowded)
		default:
			last = t.lighter(in, last)
		}
	}
	switch {
	case shunned != nil:
		return Target{shunned, true}, true
	case crowded != nil:
		return Target{crowded, false}, true
	}
	return Target{last, false}, last != nil
}
