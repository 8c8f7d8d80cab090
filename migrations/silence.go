package migrations

import (
	"context"
	"time"

	"berth/statestore"
)

// learn takes over what is known at the begin of a turn of who polls for nothing, nil
// for nothing. Who is heard of by then is asked again.
func (b *board) learn(silent func(statestore.Owner) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silent = silent
	for w := range b.presumed {
		if silent == nil || !silent(w) {
			delete(b.presumed, w)
		}
	}
}

// presume reports whether the worker is silent and need not be waited for, and whether
// this is the first question that says so. Who took a task of this job is not silent,
// whatever is known.
func (b *board) presume(w statestore.Owner) (first, silent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.polls[w] || b.silent == nil || !b.silent(w) {
		return false, false
	}
	first = !b.presumed[w]
	b.presumed[w] = true
	return first, true
}

// invite puts one task up for a silent worker all the same: one that polls only when
// its heartbeat names tasks takes it, and is heard of by that. Nobody waits for the
// answer, and that it could not be put up is as good as that nobody took it.
func (b *board) invite(ctx context.Context, t statestore.Task, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_ = b.put(ctx, t, within)
}
