package redistest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestClusterServesEverySlot(t *testing.T) {
	t.Parallel()
	c := Cluster(t)
	client := c.Client(t)
	shards, err := client.ClusterShards(t.Context()).Result()
	must(t, err)
	served := 0
	for _, shard := range shards {
		for _, r := range shard.Slots {
			served += int(r.End - r.Start + 1)
		}
	}
	if served != slots || len(shards) != primaries {
		t.Errorf("%d slots on %d shards, want %d on %d", served, len(shards), slots, primaries)
	}
	for i := range 100 {
		must(t, client.Set(t.Context(), fmt.Sprint("key", i), i, 0).Err())
	}
	must(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		if n := node.DBSize(ctx).Val(); n < 10 {
			return fmt.Errorf("%v holds %d of 100 keys", node, n)
		}
		return nil
	}))
}

// TestClusterIsLentEmptyToOneTest holds that tests take turns, that each begins
// empty, and that subtests see what their parent wrote.
func TestClusterIsLentEmptyToOneTest(t *testing.T) {
	t.Parallel()
	var inside atomic.Int32
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			client := Cluster(t).Client(t)
			if inside.Add(1) != 1 {
				t.Error("two tests at once")
			}
			t.Cleanup(func() { inside.Add(-1) })
			if n := client.DBSize(t.Context()).Val(); n != 0 {
				t.Errorf("begins with %d keys", n)
			}
			must(t, client.Set(t.Context(), "key", i, 0).Err())
			t.Run("sub", func(t *testing.T) {
				if got, err := Cluster(t).Client(t).Get(t.Context(), "key").Int(); err != nil || got != i {
					t.Errorf("a subtest reads %d (%v), want %d", got, err, i)
				}
			})
		})
	}
}
