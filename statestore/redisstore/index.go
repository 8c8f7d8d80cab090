package redisstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"berth/statestore"
)

// indexPage is how many records one read of an index asks for.
const indexPage = 256

// SessionsOf yields the sessions that any boot of the instance owns.
func (s *Store) SessionsOf(ctx context.Context, pool, instance string) iter.Seq2[statestore.View, error] {
	name := pool + "\x00" + instance + "\x00"
	return func(yield func(statestore.View, error) bool) {
		for p := range s.keys.partitions {
			for at, more := "["+name, true; more; {
				views, next, err := s.ownedPage(ctx, p, name, at)
				if err != nil {
					yield(statestore.View{}, fmt.Errorf("sessions of %s: %w", instance, err))
					return
				}
				for _, v := range views {
					if v.Owner.Instance == instance && v.Key.Pool == pool && !yield(v, nil) {
						return
					}
				}
				at, more = next, next != ""
			}
		}
	}
}

// ownedPage reads sessions of a partition from its index, from a member on, and
// answers where to go on; "" at the end.
func (s *Store) ownedPage(ctx context.Context, partition int, name, from string) (views []statestore.View, next string, err error) {
	var members []string
	past := "(" + name[:len(name)-1] + "\x01"
	err = s.ask(ctx, func() (err error) {
		members, err = s.client.ZRangeByLex(ctx, s.keys.index(partition), lexRange(from, past, indexPage)).Result()
		return err
	})
	if err != nil || len(members) == 0 {
		return nil, "", err
	}
	if len(members) == indexPage {
		next = "(" + members[len(members)-1]
	}
	digests := make([]statestore.SessionDigest, 0, len(members))
	for _, m := range members {
		if len(m) != len(name)+len(statestore.SessionDigest{}) {
			return nil, "", fmt.Errorf("index: %w", ErrDamaged)
		}
		digests = append(digests, statestore.SessionDigest([]byte(m[len(name):])))
	}
	views, err = s.views(ctx, partition, digests)
	return views, next, err
}

// lexRange is up to n members of a sorted set between two names.
func lexRange(from, past string, n int64) *redis.ZRangeBy {
	return &redis.ZRangeBy{Min: from, Max: past, Count: n}
}

// views reads records of one partition; sessions that ended, or whose time is
// over, are left out.
func (s *Store) views(ctx context.Context, partition int, digests []statestore.SessionDigest) ([]statestore.View, error) {
	keys := make([]string, len(digests))
	for i, d := range digests {
		keys[i] = s.keys.record(partition, d)
	}
	reply, err := s.read(ctx, viewsFn, keys)
	if err != nil {
		return nil, err
	}
	a, err := answerOf(reply)
	if err != nil {
		return nil, err
	}
	var views []statestore.View
	for _, packed := range a.list(1) {
		text, ok := packed.(string)
		if !ok {
			continue
		}
		r, _, err := decodeRecord(text)
		if err != nil {
			return nil, err
		}
		if v := (statestore.View{Record: *r, Exists: true, Now: a.millis(0)}); !over(v) {
			views = append(views, v)
		}
	}
	return views, nil
}

// CountSessions counts the entries of the indexes. Sessions that belong to nobody
// are not counted; those that expired are, until they are swept.
func (s *Store) CountSessions(ctx context.Context) (map[statestore.InstanceName]int, error) {
	replies, err := s.fanout(ctx, countFn, s.everyPartition(func(p int) fnCall {
		return fnCall{keys: []string{s.keys.index(p)}}
	}))
	if err != nil {
		return nil, fmt.Errorf("count sessions: %w", err)
	}
	counts := map[statestore.InstanceName]int{}
	for _, reply := range replies {
		list, _ := reply.([]any)
		for i := 0; i+1 < len(list); i += 2 {
			names := strings.Split(answer(list).text(i), "\x00")
			if len(names) != 3 {
				return nil, fmt.Errorf("index: %w", ErrDamaged)
			}
			if names[1] != "" {
				counts[statestore.InstanceName{Pool: names[0], Instance: names[1]}] += int(answer(list).int(i + 1))
			}
		}
	}
	return counts, nil
}

// List yields sessions partition by partition, in each in the order of digests;
// the cursor is the last digest that was looked at. So a session that is there
// all the time is listed once, whoever owns it meanwhile.
func (s *Store) List(ctx context.Context, q statestore.SessionQuery) ([]statestore.View, string, error) {
	at, err := hex.DecodeString(q.Cursor)
	if err != nil || (len(at) != 0 && len(at) != len(statestore.SessionDigest{})) {
		return nil, "", fmt.Errorf("cursor: %w", statestore.ErrInvalid)
	}
	if q.Limit <= 0 {
		return nil, "", fmt.Errorf("limit %d: %w", q.Limit, statestore.ErrInvalid)
	}
	first := 0
	if len(at) > 0 {
		first = statestore.SessionDigest(at).Partition(s.keys.partitions)
	}
	var found []statestore.View
	for p := first; p < s.keys.partitions; p++ {
		digests, err := s.digestsAfter(ctx, p, at)
		if err != nil {
			return nil, "", fmt.Errorf("list sessions: %w", err)
		}
		for page := range slices.Chunk(digests, indexPage) {
			views, err := s.views(ctx, p, page)
			if err != nil {
				return nil, "", fmt.Errorf("list sessions: %w", err)
			}
			for _, v := range views {
				if !matches(q, &v.Record) {
					continue
				}
				if found = append(found, v); len(found) == q.Limit {
					return found, v.Key.Digest().String(), nil
				}
			}
		}
		at = nil
	}
	return found, "", nil
}

// digestsAfter reads all sessions of a partition, those after a digest, in order.
func (s *Store) digestsAfter(ctx context.Context, partition int, after []byte) ([]statestore.SessionDigest, error) {
	var members []string
	err := s.ask(ctx, func() (err error) {
		members, err = s.client.ZRange(ctx, s.keys.due(partition), 0, -1).Result()
		return err
	})
	if err != nil {
		return nil, err
	}
	var digests []statestore.SessionDigest
	for _, m := range members {
		if len(m) != len(statestore.SessionDigest{}) {
			return nil, fmt.Errorf("due list: %w", ErrDamaged)
		}
		if m > string(after) {
			digests = append(digests, statestore.SessionDigest([]byte(m)))
		}
	}
	slices.SortFunc(digests, func(a, b statestore.SessionDigest) int { return bytes.Compare(a[:], b[:]) })
	return digests, nil
}

func matches(q statestore.SessionQuery, r *statestore.Record) bool {
	return (q.Tenant == "" || q.Tenant == r.Key.Tenant) &&
		(q.Pool == "" || q.Pool == r.Key.Pool) &&
		(q.Instance == "" || q.Instance == r.Owner.Instance) &&
		(q.AffinityKey == statestore.AffinityKey{} || q.AffinityKey == r.AffinityKey)
}
