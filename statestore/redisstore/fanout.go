package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// fanBatch is how many calls share a round trip.
const fanBatch = 128

// scriptCall is one of many calls of a script.
type scriptCall struct {
	keys []string
	args []any
}

// fanout runs a script on many keys, in few round trips, and answers in order.
// A batch that is not answered is sent again: the script must bear that.
func (s *Store) fanout(ctx context.Context, sc *script, calls []scriptCall) ([]any, error) {
	replies := make([]any, 0, len(calls))
	for batch := range slices.Chunk(calls, fanBatch) {
		var got []any
		err := s.settle(ctx, func() (err error) {
			got, err = s.fanOnce(ctx, sc, batch)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sc.name, err)
		}
		replies = append(replies, got...)
	}
	return replies, nil
}

func (s *Store) fanOnce(ctx context.Context, sc *script, batch []scriptCall) ([]any, error) {
	pipe := s.client.Pipeline()
	cmds := make([]*redis.Cmd, len(batch))
	for i, c := range batch {
		cmds[i] = pipe.EvalSha(ctx, sc.sha, c.keys, c.args...)
	}
	_, _ = pipe.Exec(ctx) // each command tells its own error
	replies := make([]any, len(batch))
	for i, cmd := range cmds {
		reply, err := cmd.Result()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			// The first of a node loads it for the rest.
			reply, err = eval(ctx, s.client, sc, batch[i].keys, batch[i].args)
		}
		if err != nil {
			return nil, err
		}
		replies[i] = reply
	}
	return replies, nil
}

// everyPartition makes a call for each partition.
func (s *Store) everyPartition(call func(partition int) scriptCall) []scriptCall {
	calls := make([]scriptCall, s.keys.partitions)
	for i := range calls {
		calls[i] = call(i)
	}
	return calls
}
