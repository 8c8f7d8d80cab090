package redisstore

import (
	"context"
	"fmt"

	"berth/statestore"
)

// sweepPage is how many sessions of one partition a round of a sweep ends.
const sweepPage = 64

// due is what a sweep found to end in one partition.
type due struct {
	partition int
	sessions  []any // digests
	staged    []any // members of the list of staged writes
}

// Sweep ends sessions, staged writes and tasks whose time is over, and reports the
// sessions and staged writes that it ended. Each sweep begins with another
// partition, so that a limit starves none. It also asks the servers what they give,
// which may have changed without a new connection.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	if err := s.checkPartitions(ctx); err != nil {
		return 0, fmt.Errorf("sweep: %w", err)
	}
	if _, err := s.survey(ctx); err != nil {
		return 0, fmt.Errorf("sweep: %w", err)
	}
	first := int(s.sweeps.Add(1)) % s.keys.partitions
	sessions, writes := 0, 0
	for sessions < limit || writes < limit {
		found, err := s.findDue(ctx, first, min(limit, sweepPage))
		if err != nil {
			return sessions + writes, fmt.Errorf("sweep: %w", err)
		}
		looked := 0
		for _, d := range found {
			d.sessions = d.sessions[:min(len(d.sessions), limit-sessions)]
			d.staged = d.staged[:min(len(d.staged), limit-writes)]
			looked += len(d.sessions) + len(d.staged)
			n, err := s.endSessions(ctx, d)
			if sessions += n; err != nil {
				return sessions + writes, fmt.Errorf("sweep: %w", err)
			}
			n, err = s.endStaged(ctx, d)
			if writes += n; err != nil {
				return sessions + writes, fmt.Errorf("sweep: %w", err)
			}
		}
		if looked == 0 {
			break
		}
	}
	return sessions + writes, s.sweepTasks(ctx, limit)
}

// findDue asks every partition for up to n of each kind, from the first on.
func (s *Store) findDue(ctx context.Context, first, n int) ([]due, error) {
	total := s.keys.partitions
	replies, err := s.fanout(ctx, dueFn, s.everyPartition(func(i int) fnCall {
		p := (first + i) % total
		return fnCall{keys: []string{s.keys.due(p), s.keys.staged(p)}, args: []any{n}}
	}))
	if err != nil {
		return nil, err
	}
	var found []due
	for i, reply := range replies {
		a, err := answerOf(reply)
		if err != nil {
			return nil, err
		}
		d := due{partition: (first + i) % total, sessions: a.list(0), staged: a.list(1)}
		if len(d.sessions)+len(d.staged) > 0 {
			found = append(found, d)
		}
	}
	return found, nil
}

// endSessions ends the sessions whose time is over, and files the others where
// they belong.
func (s *Store) endSessions(ctx context.Context, d due) (ended int, err error) {
	calls := make([]fnCall, 0, len(d.sessions))
	for _, member := range d.sessions {
		digest, _ := member.(string)
		if len(digest) != len(statestore.SessionDigest{}) {
			return 0, fmt.Errorf("due list: %w", ErrDamaged)
		}
		c := s.callOn(statestore.SessionDigest([]byte(digest)), "")
		calls = append(calls, fnCall{keys: c.keys, args: c.args()})
	}
	replies, err := s.fanout(ctx, expireFn, calls)
	if err != nil {
		return 0, err
	}
	for _, reply := range replies {
		a, err := answerOf(reply)
		if err != nil {
			return ended, err
		}
		if a.flag(4) {
			ended++
		}
	}
	return ended, nil
}

// endStaged removes staged writes that nobody linked in time.
func (s *Store) endStaged(ctx context.Context, d due) (ended int, err error) {
	for _, m := range d.staged {
		member, _ := m.(string)
		digest, ok := stagedDigest(member)
		if !ok {
			return ended, fmt.Errorf("list of staged writes: %w", ErrDamaged)
		}
		dropped, err := s.dropStaged(ctx, s.keys.session(digest), member)
		if err != nil {
			return ended, err
		}
		if dropped {
			ended++
		}
	}
	return ended, nil
}
