package client

// copied is what the worker's own copy of a context covers. Two things are kept
// apart: how far it is complete, and how many of its leading turns surely stand
// in the store's order.
type copied struct {
	// Complete up to this place.
	epoch, version uint64

	// The leading turns, and a handle of the place that they were stored at.
	handle        Handle
	turns         int
	handleVersion uint64
	handleEpoch   uint64
}

// covers reports whether the copy has this epoch and at least this version.
func (c *copied) covers(epoch, version uint64) bool {
	return c.version > 0 && c.epoch == epoch && c.version >= version
}

// recovered is a copy that was brought up to date.
func recovered(m mark, turns int) copied {
	return copied{
		epoch: m.epoch, version: m.version,
		handle: m.handle, turns: turns, handleEpoch: m.epoch, handleVersion: m.version,
	}
}

// wrote takes in an own write that was stored at m, turns counting all of the
// session's then, or more.
func (c *copied) wrote(w *write, presented, m mark, turns int) {
	first := presented.version == 0 && m.version == 1
	if w.replaces || first {
		c.turns = 0
		if turns == len(w.Turns) {
			*c = recovered(m, turns)
		}
		return
	}
	if m.epoch == c.epoch && m.version == c.version+1 {
		c.version = m.version
	}
	if w.Base != nil {
		c.turns = min(c.turns, *w.Base)
	}
	next := m.epoch == c.handleEpoch && presented.version == c.handleVersion && m.version == c.handleVersion+1
	if next && w.At != AtEnd && turns == c.turns+len(w.Turns) {
		c.handle, c.turns, c.handleVersion = m.handle, turns, m.version
	}
}
