package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/statestore"
)

// defaultWait bounds the wait for a durability whose requirement names no time.
const defaultWait = time.Second

// waitSlice is how long one WAIT may block its connection, well below the time
// after which the client would take it for dead.
const waitSlice = 500 * time.Millisecond

// waitSpare is what the deadline of a call leaves for the answer of its last WAIT.
const waitSpare = 20 * time.Millisecond

// change calls a function that changes a session, until it is answered, and says
// what durability the answer has.
func (s *Store) change(ctx context.Context, need statestore.Requirement, fn string, keys []string, args []any) (a answer, d statestore.Durability, err error) {
	err = s.settle(ctx, func() error {
		var reply any
		if reply, d, err = s.send(ctx, need, fn, keys, args); err != nil {
			return err
		}
		a, err = answerOf(reply)
		return nil
	})
	return a, d, err
}

// send calls the function once.
func (s *Store) send(ctx context.Context, need statestore.Requirement, fn string, keys []string, args []any) (any, statestore.Durability, error) {
	d := statestore.Durability{Level: s.level()}
	if need.Level <= d.Level || (need.Level == statestore.LevelFsynced && !s.waitsAOF.Load()) {
		reply, err := s.fcall(ctx, s.lanes, fn, keys, args)
		d.Level = min(d.Level, s.level()) // a new connection may have taken the promise back
		return reply, d, err
	}
	// WAIT covers what was written on its own connection.
	conn, err := s.pin(ctx, keys[0])
	if err != nil {
		return nil, d, err
	}
	defer conn.Close()
	reply, err := s.fcall(ctx, conn, fn, keys, args)
	if redis.HasErrorPrefix(err, "MOVED") {
		s.reload(ctx)
	}
	if err != nil {
		return nil, d, err
	}
	d.Level = min(d.Level, s.level())
	if a, _ := answerOf(reply); a.text(0) == "ok" {
		d = await(ctx, conn, need, d)
	}
	return reply, d, nil
}

// pin takes one connection to the primary that serves the key.
func (s *Store) pin(ctx context.Context, key string) (*redis.Conn, error) {
	switch c := s.client.(type) {
	case *redis.Client:
		return c.Conn(), nil
	case *redis.ClusterClient:
		node, err := c.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		return node.Conn(), nil
	}
	return nil, fmt.Errorf("client %T: %w", s.client, statestore.ErrInvalid)
}

// reload learns of moved slots, for connections that follow no redirection.
func (s *Store) reload(ctx context.Context) {
	if c, ok := s.client.(*redis.ClusterClient); ok {
		c.ReloadState(ctx)
	}
}

// await waits until what was written on conn is as durable as needed, or the
// time for it is over, and says what was reached. have is what it is anyway. A
// failure while waiting is a durability that was not reached: the write stands.
func await(ctx context.Context, conn *redis.Conn, need statestore.Requirement, have statestore.Durability) statestore.Durability {
	wait := need.Wait
	if wait <= 0 {
		wait = defaultWait
	}
	end := time.Now().Add(wait)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-waitSpare).Before(end) {
		end = deadline.Add(-waitSpare)
	}
	if need.Level == statestore.LevelFsynced {
		return awaitFsync(ctx, conn, end, have)
	}
	return awaitReplicas(ctx, conn, end, have)
}

func awaitReplicas(ctx context.Context, conn *redis.Conn, end time.Time, have statestore.Durability) statestore.Durability {
	info, err := conn.Info(ctx, "replication").Result()
	of := connectedReplicas(info)
	if err != nil || of == 0 {
		return have
	}
	for reached := have; ; {
		left := time.Until(end)
		n, err := conn.Wait(ctx, of, slice(left)).Result()
		if err != nil {
			return reached
		}
		if n > 0 {
			reached = statestore.Durability{Level: statestore.LevelReplicated, Replicas: int(n), Of: of}
		}
		if int(n) >= of || left <= waitSlice {
			return reached
		}
	}
}

// awaitFsync waits until the server has synced its append-only file, whatever its
// policy.
func awaitFsync(ctx context.Context, conn *redis.Conn, end time.Time, have statestore.Durability) statestore.Durability {
	for {
		left := time.Until(end)
		done, err := conn.WaitAOF(ctx, 1, 0, slice(left)).Result()
		switch {
		case err == nil && len(done) > 0 && done[0] >= 1:
			return statestore.Durability{Level: statestore.LevelFsynced}
		case err != nil || left <= waitSlice:
			return have
		}
	}
}

// slice is the time for one WAIT; never 0, which would be for ever.
func slice(left time.Duration) time.Duration {
	return max(min(left, waitSlice), time.Millisecond)
}

// connectedReplicas counts the replicas that the primary knows, also those that
// are still synchronising.
func connectedReplicas(info string) int {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "connected_slaves:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}

// met reports a durability that was asked for and not reached.
func met(need statestore.Requirement, receipt statestore.Receipt) error {
	if need.MetBy(receipt.Durability) {
		return nil
	}
	return &statestore.NotDurableError{Reached: receipt.Durability, Receipt: receipt}
}
