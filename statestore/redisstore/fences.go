package redisstore

import (
	"context"

	"berth/statestore"
)

// Fence writes the change to all partitions. The fleet's own slot, which judges
// changes of instances, is told first.
func (s *Store) Fence(ctx context.Context, f statestore.Fence) error {
	for _, o := range append(f.Add[:len(f.Add):len(f.Add)], f.Drop...) {
		if err := checkOwner(o); err != nil {
			return err
		}
	}
	args := []any{f.Job.ID, f.Job.Token, len(f.Add)}
	for _, o := range append(f.Add[:len(f.Add):len(f.Add)], f.Drop...) {
		args = append(args, fenceField(f.Pool, o))
	}
	return s.fenceEverywhere(ctx, args)
}

// fenceField is the field of a boot that is fenced.
func fenceField(pool string, o statestore.Owner) string { return "i" + pool + "\x00" + packOwner(o) }

// fenceEverywhere runs fence.lua on every hash of fences.
func (s *Store) fenceEverywhere(ctx context.Context, args []any) error {
	if _, err := s.fanout(ctx, fenceFn, []fnCall{{keys: []string{s.keys.fleet("fences")}, args: args}}); err != nil {
		return err
	}
	_, err := s.fanout(ctx, fenceFn, s.everyPartition(func(p int) fnCall {
		return fnCall{keys: []string{s.keys.fences(p)}, args: args}
	}))
	return err
}
