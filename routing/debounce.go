package routing

import "time"

// Debounce plans when to rebuild what changes often: at once after a quiet time, at
// most once in a window, and never later than a window after a change. Rings are
// worth it: with many instances that come and go, rebuilding after each of them
// would take longer than the time between them.
type Debounce struct {
	Window time.Duration

	last  time.Duration
	built bool
	dirty bool
}

// Due reports whether to rebuild now; changed says that something did since the
// last call. If not now but later, wait is how long to wait until it is asked
// again, else 0.
func (d *Debounce) Due(now time.Duration, changed bool) (rebuild bool, wait time.Duration) {
	d.dirty = d.dirty || changed
	switch since := now - d.last; {
	case !d.dirty:
		return false, 0
	case d.built && since < d.Window:
		return false, d.Window - since
	}
	d.last, d.built, d.dirty = now, true, false
	return true, 0
}
