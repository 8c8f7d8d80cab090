package services

import (
	"net/http"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// failureLogs bound what is logged of calls that failed, each code by itself. While
// the store is away every call of every worker fails alike: what is more than a line
// a second is only counted. An internal failure is always logged, for its request id.
type failureLogs map[string]*failureLog

type failureLog struct {
	limit *rate.Limiter
	more  atomic.Int64
}

// unreadFleet stands for the fleet's image, which is read twice a second and by
// operators' calls.
const unreadFleet = "fleet"

func newFailureLogs() failureLogs {
	logs := failureLogs{unreadFleet: {limit: rate.NewLimiter(1, 5)}}
	for code, kind := range problems {
		if kind.status >= http.StatusInternalServerError && code != "internal" {
			logs[code] = &failureLog{limit: rate.NewLimiter(1, 5)}
		}
	}
	return logs
}

// say reports whether a failure is logged, and how many were left out before it.
func (l failureLogs) say(code string) (left int64, ok bool) {
	f := l[code]
	if f == nil {
		return 0, true
	}
	if !f.limit.Allow() {
		f.more.Add(1)
		return 0, false
	}
	return f.more.Swap(0), true
}

// fleetNotRead logs that the image of the fleet is as old as it was.
func (s *Server) fleetNotRead(err error) {
	if left, ok := s.failures.say(unreadFleet); ok {
		s.log.Warn("fleet not read", "error", err, "left_out", left)
	}
}
