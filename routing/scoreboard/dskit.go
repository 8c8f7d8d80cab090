package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/go-kit/log"
	"github.com/grafana/dskit/ring"
	"github.com/grafana/dskit/services"
)

// ringKey is the name under which dskit would share its ring.
const ringKey = "scoreboard"

// feed stands for the key-value store that dskit's ring watches. It holds one
// value and hands changes over directly, so that nothing but the ring's own
// work is measured.
type feed struct {
	first *ring.Desc
	watch chan func(any) bool
}

func (f *feed) Get(context.Context, string) (any, error) { return f.first, nil }

func (f *feed) WatchKey(ctx context.Context, _ string, changed func(any) bool) {
	f.watch <- changed
	<-ctx.Done()
}

func (f *feed) List(context.Context, string) ([]string, error) { return []string{ringKey}, nil }
func (f *feed) Delete(context.Context, string) error           { return nil }

func (f *feed) CAS(context.Context, string, func(any) (any, bool, error)) error {
	return fmt.Errorf("the ring only reads")
}

func (f *feed) WatchPrefix(context.Context, string, func(string, any) bool) {}

// buildDskit hands the ring its members with random tokens, as an instance of
// dskit draws them; a token drawn twice harms nothing here. The key is a hash that the caller computes.
func buildDskit(members []string, tokens int, _ time.Time) (table, error) {
	present := make(map[string][]uint32, len(members))
	draw := ring.NewRandomTokenGeneratorWithSeed(1)
	for _, id := range members {
		present[id] = draw.GenerateTokens(tokens, nil)
	}
	f := &feed{first: describe(present), watch: make(chan func(any) bool, 1)}
	config := ring.Config{HeartbeatTimeout: time.Hour, ReplicationFactor: 1}
	r, err := ring.NewWithStoreClientAndStrategy(config, "scoreboard", ringKey, f, ring.NewDefaultReplicationStrategy(), nil, log.NewNopLogger())
	if err != nil {
		return table{}, err
	}
	if err := services.StartAndAwaitRunning(context.Background(), r); err != nil {
		return table{}, err
	}
	changed := <-f.watch
	descs, hosts, zones := ring.MakeBuffersForGet()
	return table{
		owner: func(key string) string {
			set, err := r.Get(uint32(xxhash.Sum64String(key)>>32), ring.Write, descs, hosts, zones)
			if err != nil {
				return ""
			}
			return set.Instances[0].Id
		},
		add: func(id string) error {
			present[id] = draw.GenerateTokens(tokens, nil)
			changed(describe(present))
			return nil
		},
		remove: func(id string) error {
			delete(present, id)
			changed(describe(present))
			return nil
		},
		close: r.StopAsync,
	}, nil
}

// describe is the shared value that says who is there.
func describe(present map[string][]uint32) *ring.Desc {
	d := ring.NewDesc()
	now := time.Now()
	for id, tokens := range present {
		d.AddIngester(id, id, "", tokens, ring.ACTIVE, now, false, time.Time{}, nil)
	}
	return d
}
