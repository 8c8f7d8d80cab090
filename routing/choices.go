package routing

// space holds the sets of one request on its stack, for pools of up to 1,024
// instances; larger ones spill to the heap when a request narrows the choice.
type space [3][16]uint64

// choices are the instances a request may choose from: all that are eligible
// for it, and those of them under their bound. Without restrictions these are
// the snapshot's own sets.
func (s *Snapshot) choices(req *Request, room *space) (eligible, roomy bitset) {
	if len(req.Exclude) == 0 && len(req.Trials) == 0 && req.Subset == nil {
		return s.takes, s.roomy
	}
	eligible = append(bitset(room[0][:0]), s.takes...)
	for _, id := range req.Trials {
		if i := s.find(id); i >= 0 && s.instances[i].Breaker == BreakerTrial && s.mayTake(i) {
			eligible.add(i)
		}
	}
	for _, id := range req.Exclude {
		if i := s.find(id); i >= 0 {
			eligible.remove(i)
		}
	}
	if req.Subset != nil {
		within := s.within(req.Subset, append(bitset(room[1][:0]), eligible...))
		for w := range eligible {
			eligible[w] &= within[w]
		}
	}
	roomy = append(bitset(room[2][:0]), eligible...)
	for w := range roomy {
		roomy[w] &^= s.over[w]
	}
	return eligible, roomy
}

// within turns a scratch set into the set of instances at the given addresses.
func (s *Snapshot) within(addresses []string, scratch bitset) bitset {
	clear(scratch)
	for _, addr := range addresses {
		if _, known := s.roster.address[addr]; !known {
			addr = canonicalOr(addr)
		}
		for i := range s.roster.at(addr) {
			scratch.add(i)
		}
	}
	return scratch
}
