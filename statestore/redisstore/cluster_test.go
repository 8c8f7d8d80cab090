package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/integration/redistest"
	"berth/statestore"
)

// saver appends to a session of its own until it is told to stop, and remembers
// what was acknowledged.
type saver struct {
	w     *writer
	turns []string
	err   error
}

func (v *saver) run(ctx context.Context, stop <-chan struct{}) {
	for v.err == nil {
		size := []int{40, 5000, 70_000}[v.w.n%3]
		value := noise(size)
		v.w.n++
		var r statestore.Receipt
		r, v.err = v.w.s.Append(ctx, statestore.Append{
			Key: v.w.key, By: v.w.by, Handle: v.w.handle, Op: "op-" + strconv.Itoa(v.w.n), Lifetimes: lives,
			Turns: []statestore.Turn{{Type: statestore.TurnBytes, Value: value}},
		})
		if v.err == nil {
			v.w.handle.Floor = r.Floor
			v.turns = append(v.turns, string(value))
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}

// duringFaults runs savers and everything that visits all partitions, while fault
// is done to the servers again and again, and fails if any of it reached a caller.
func duringFaults(t *testing.T, s *Store, rounds int, fault func()) {
	t.Helper()
	stop := make(chan struct{})
	var running sync.WaitGroup
	savers := make([]*saver, 6)
	for i := range savers {
		savers[i] = &saver{w: newWriter(s, fmt.Sprint("saver ", i))}
		running.Go(func() { savers[i].run(t.Context(), stop) })
	}
	var visits int
	var visitErr error
	running.Go(func() {
		for visitErr == nil {
			if visitErr = visit(t.Context(), s); visitErr == nil {
				visits++
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for range rounds {
		fault()
	}
	close(stop)
	running.Wait()
	if visitErr != nil || visits == 0 {
		t.Errorf("%d visits of all partitions, then %v", visits, visitErr)
	}
	for _, v := range savers {
		if v.err != nil || len(v.turns) == 0 {
			t.Fatalf("after %d saves: %v", len(v.turns), v.err)
		}
		equalTexts(t, allTexts(t, s, v.w.key), v.turns...)
	}
}

// visit calls what reaches every partition, and the fleet.
func visit(ctx context.Context, s *Store) error {
	if _, err := s.Sweep(ctx, 10); err != nil {
		return err
	}
	if _, err := s.CountSessions(ctx); err != nil {
		return err
	}
	if err := s.Fence(ctx, statestore.Fence{Pool: "llama", Add: []statestore.Owner{{Instance: "i9", Incarnation: "x"}}}); err != nil {
		return err
	}
	for _, err := range s.SessionsOf(ctx, "llama", "i1") {
		if err != nil {
			return err
		}
	}
	if _, _, err := s.List(ctx, statestore.SessionQuery{Limit: 100}); err != nil {
		return err
	}
	_, err := s.AcquireLease(ctx, "health", "a", time.Minute)
	return err
}

func flushFunctions(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	eachPrimary(t, client, func(node *redis.Client) error {
		if err := node.ScriptFlush(t.Context()).Err(); err != nil {
			return err
		}
		return node.FunctionFlush(t.Context()).Err()
	})
}

// Case T37: a server that forgot what it was given is given it again, and no
// caller hears of it.
func TestFlushedFunctionsAreLoadedAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, client := open(t, server.URL), dial(t, server.URL)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	duringFaults(t, s, 30, func() {
		<-tick.C
		flushFunctions(t, client)
	})
}

// Case T37: slots move from one primary to another while their sessions are saved;
// MOVED, ASK and TRYAGAIN are answered whole. The functions are flushed meanwhile.
func TestReshardingDuringSaves(t *testing.T) {
	t.Parallel()
	url := redistest.Cluster(t).URL
	s := open(t, url, func(o *Options) { o.Patience = 20 * time.Second })
	client := dial(t, url).(*redis.ClusterClient)
	partition := 0
	duringFaults(t, s, testPartitions/2, func() {
		moveSlot(t, client, s.keys.due(partition))
		partition++
		if partition%4 == 0 {
			flushFunctions(t, client)
		}
	})
}

// moveSlot moves the slot of a key to the next primary, key by key, as redis-cli
// does.
func moveSlot(t *testing.T, client *redis.ClusterClient, key string) {
	t.Helper()
	ctx := t.Context()
	slot := int(client.ClusterKeySlot(ctx, key).Val())
	client.ReloadState(ctx)
	from, err := client.MasterForKey(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	var to *redis.Client
	eachPrimary(t, client, func(node *redis.Client) error {
		if node.Options().Addr != from.Options().Addr {
			to = node
		}
		return nil
	})
	id := func(node *redis.Client) string { return node.Do(ctx, "cluster", "myid").Val().(string) }
	do := func(node *redis.Client, args ...any) {
		if err := node.Do(ctx, args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	do(to, "cluster", "setslot", slot, "importing", id(from))
	do(from, "cluster", "setslot", slot, "migrating", id(to))
	for {
		keys, err := from.ClusterGetKeysInSlot(ctx, slot, 20).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		host, port := splitAddr(t, to.Options().Addr)
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, k := range keys {
			args = append(args, k)
		}
		do(from, args...)
	}
	for _, node := range []*redis.Client{to, from} {
		do(node, "cluster", "setslot", slot, "node", id(to))
	}
	eachPrimary(t, client, func(node *redis.Client) error {
		return node.Do(ctx, "cluster", "setslot", slot, "node", id(to)).Err()
	})
}
