package redisstore

import (
	"context"
	"fmt"
	"slices"
)

// fanBatch is how many calls share a round trip.
const fanBatch = 128

// fnCall is one of many calls of a function.
type fnCall struct {
	keys []string
	args []any
}

// fanout calls a function on many keys, in few round trips, and answers in order.
// A batch that is not answered is sent again: the function must bear that.
func (s *Store) fanout(ctx context.Context, fn string, calls []fnCall) ([]any, error) {
	replies := make([]any, 0, len(calls))
	for batch := range slices.Chunk(calls, fanBatch) {
		var got []any
		err := s.settle(ctx, func() (err error) {
			got, err = s.fanOnce(ctx, fn, batch)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fn, err)
		}
		replies = append(replies, got...)
	}
	return replies, nil
}

func (s *Store) fanOnce(ctx context.Context, fn string, batch []fnCall) ([]any, error) {
	pipe := s.client.Pipeline()
	cmds := make([]once, len(batch))
	for i, c := range batch {
		cmds[i] = s.newCommand(ctx, fn, c.keys, c.args)
		_ = pipe.Process(ctx, cmds[i])
	}
	_, _ = pipe.Exec(ctx) // each command tells its own error
	replies := make([]any, len(batch))
	for i, cmd := range cmds {
		reply, err := cmd.Result()
		if notLoaded(err) {
			reply, err = s.fcall(ctx, s.client, fn, batch[i].keys, batch[i].args)
		}
		if err != nil {
			return nil, err
		}
		replies[i] = reply
	}
	return replies, nil
}

// everyPartition makes a call for each partition.
func (s *Store) everyPartition(call func(partition int) fnCall) []fnCall {
	calls := make([]fnCall, s.keys.partitions)
	for i := range calls {
		calls[i] = call(i)
	}
	return calls
}
