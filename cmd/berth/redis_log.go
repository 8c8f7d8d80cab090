package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

// redisLog takes what the Redis client says by itself, which would go to stderr as
// it stands. While Redis is away it says the same at every dial: what is more than
// a line a second is only counted.
type redisLog struct {
	log   *slog.Logger
	limit *rate.Limiter
	more  atomic.Int64
}

// logRedis directs the client's lines, of the whole program, into a log.
func logRedis(log *slog.Logger) {
	redis.SetLogger(&redisLog{log: log, limit: rate.NewLimiter(1, 5)})
}

// Printf is for the client.
func (l *redisLog) Printf(ctx context.Context, format string, v ...any) {
	if !l.limit.Allow() {
		l.more.Add(1)
		return
	}
	l.log.WarnContext(ctx, "redis client", "says", fmt.Sprintf(format, v...), "left_out", l.more.Swap(0))
}
