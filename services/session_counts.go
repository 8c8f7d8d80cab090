package services

import (
	"context"
	"sync/atomic"
	"time"

	"berth/statestore"
)

// How many sessions instances have is a statistic, at most countsLife old. It is read
// from every partition, so only the process that holds the health lease does, and no
// more often than that asks for.
const (
	countsEvery   = 20 * time.Second
	countsTimeout = 5 * time.Second
	countsLife    = 30 * time.Second
)

// sessionCounts is how many sessions instances had at a moment.
type sessionCounts struct {
	by map[statestore.InstanceName]int
	at time.Time // when they began to be counted
}

// sessionStatistics are the newest counts of this process, nil before the first.
type sessionStatistics struct{ newest atomic.Pointer[sessionCounts] }

// counts are those that are not too old to be shown, nil if there are none.
func (s *sessionStatistics) counts() map[statestore.InstanceName]int {
	c := s.newest.Load()
	if c == nil || time.Since(c.at) > countsLife {
		return nil
	}
	return c.by
}

// due reports whether it is time to count again.
func (s *sessionStatistics) due() bool {
	c := s.newest.Load()
	return c == nil || time.Since(c.at) >= countsEvery
}

// countSessions keeps the counts young until ctx ends, while this process holds the
// health lease.
func (s *Server) countSessions(ctx context.Context) error {
	for pause(ctx, healthEvery) {
		if !s.holdsHealth.Load() || !s.sessions.due() {
			continue
		}
		if err := s.countOnce(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("sessions not counted", "error", err)
		}
	}
	return nil
}

func (s *Server) countOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, countsTimeout)
	defer cancel()
	began := time.Now()
	by, err := s.store.CountSessions(ctx)
	if err == nil {
		s.sessions.newest.Store(&sessionCounts{by: by, at: began})
	}
	return err
}
