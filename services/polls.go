package services

import (
	"context"
	"time"

	"berth/statestore"
)

// Jobs need not wait for workers that poll for no tasks. Any process may be the one
// that a worker polls, so that each tells in its tallies when it last heard a boot
// poll or answer a task, by the store's clock.
const (
	tallyPolled = "polled_ms"
	// polledSoon is the age of what was told at which news of it are told soon.
	polledSoon = 10 * time.Second
)

// polled notes that a boot polls, or answered a task.
func (t *tallies) polled(boot statestore.Owner, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.byBoot[boot]
	if mine == nil {
		mine = tally{}
		t.byBoot[boot] = mine
	}
	now := uint64(max(0, at.UnixMilli()))
	if now >= mine[tallyPolled]+uint64(polledSoon.Milliseconds()) {
		t.changed = true
	}
	mine[tallyPolled] = max(now, mine[tallyPolled])
}

// heard notes that a boot works on tasks.
func (s *Server) heard(boot statestore.Owner) { s.tallies.polled(boot, s.fleet.storeWall()) }

// silence is how long a boot must not have been heard of to be silent: the longest
// poll, and the time that a worker has for what a poll gave it.
func (s *Server) silence() time.Duration { return maxTaskWait + s.options.TaskLease }

// firstPoll is how long after it registered a boot of which nobody has ever heard is
// silent: no poll of it is under way and it has no task, so that only one of the two
// times is left to it to begin in.
func (s *Server) firstPoll() time.Duration { return max(maxTaskWait, s.options.TaskLease) }

// silent reads which boots polled for nothing lately; nil when that is not known, as
// while this process is too young to have heard anybody. Of boots that are older than
// this process it may have missed what was heard before. A boot that registered lately
// may be about to poll.
func (s *Server) silent(ctx context.Context) func(statestore.Owner) bool {
	within, first, lived := s.silence(), s.firstPoll(), time.Since(s.looks.began)
	if lived < first {
		return nil
	}
	notes, err := s.store.Notes(ctx)
	if err != nil {
		return nil
	}
	last := lastPolls(notes)
	image, now := s.fleet.now(), s.fleet.storeWall()
	return func(boot statestore.Owner) bool {
		in := image.instances[boot.Instance]
		if in == nil || in.Incarnation != boot.Incarnation {
			return false // nothing is known of it
		}
		age := now.Sub(time.UnixMilli(int64(in.Registered)))
		if last[boot] == 0 && age < lived {
			return age > first
		}
		return lived >= within && age > within && now.Sub(time.UnixMilli(last[boot])) > within
	}
}

// lastPolls is when each boot was last heard of by any process.
func lastPolls(notes map[string][]byte) map[statestore.Owner]int64 {
	last := map[statestore.Owner]int64{}
	for _, text := range notes {
		for boot, said := range readNote(text) {
			last[boot] = max(last[boot], int64(min(said[tallyPolled], 1<<62))) //nolint:gosec // bounded
		}
	}
	return last
}
