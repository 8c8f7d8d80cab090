package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	primaries = 3
	slots     = 16384
	// gossipTimeout bounds how long the nodes may take to agree that every slot is served.
	gossipTimeout = 2 * time.Minute
)

// ClusterServer is a Redis Cluster of three primaries without replicas.
type ClusterServer struct {
	URL   string   // redis+cluster://host:port,host:port,host:port
	Addrs []string // host:port of each primary
}

// Client is a plain cluster client; it is closed with the test.
func (c ClusterServer) Client(t testing.TB) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Cluster returns a real Redis Cluster, empty, with all of its slots served. It
// belongs to the test and its subtests until the test ends; others wait. The nodes
// are processes, since a container behind a published port would gossip an address
// that the test cannot reach: without a redis-server program the test is skipped,
// or fails where redis is required.
func Cluster(t testing.TB, opts ...Option) ClusterServer {
	t.Helper()
	c, err := shared.cluster(t, newConfig(opts))
	if errors.As(err, new(absent)) {
		missing(t, needRedis, fmt.Errorf("a Redis Cluster: %w", err))
	}
	if err != nil {
		t.Fatal(err)
	}
	first := c.turn.enter(t.Name())
	t.Cleanup(c.turn.leave)
	if !first {
		return c.ClusterServer
	}
	if err := c.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c.ClusterServer
}

type cluster struct {
	ClusterServer
	nodes []*Process
	buses []int // the port each node gossips on
	turn  *turnstile
}

func (p *pool) cluster(t testing.TB, c config) (*cluster, error) {
	open := func(ctx context.Context) (*cluster, error) { return startCluster(ctx, c) }
	return lookup(t, p, p.clusters, c, open, func(c *cluster) func(context.Context) error { return c.stop })
}

func startCluster(ctx context.Context, cfg config) (*cluster, error) {
	c := &cluster{turn: newTurnstile()}
	for range primaries {
		if err := c.addNode(ctx, cfg); err != nil {
			return nil, errors.Join(err, c.stop(ctx))
		}
	}
	c.URL = "redis+cluster://" + strings.Join(c.Addrs, ",")
	if err := c.form(ctx); err != nil {
		return nil, errors.Join(err, c.stop(ctx))
	}
	return c, nil
}

func (c *cluster) addNode(ctx context.Context, cfg config) error {
	// By default the bus listens 10,000 above the port, which need not be free.
	bus, err := freePort()
	if err != nil {
		return err
	}
	node, err := startProcess(ctx, append(cfg.args(), "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(bus)))
	if err != nil {
		return err
	}
	c.nodes, c.buses, c.Addrs = append(c.nodes, node), append(c.buses, bus), append(c.Addrs, node.Addr)
	return nil
}

// form gives each node its share of the slots and introduces them to the first.
func (c *cluster) form(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, gossipTimeout)
	defer cancel()
	for i, node := range c.nodes {
		client := redis.NewClient(&redis.Options{Addr: node.Addr})
		defer client.Close()
		if err := c.introduce(ctx, client, i); err != nil {
			return fmt.Errorf("form a Redis Cluster with %s: %w", node.Addr, err)
		}
	}
	for _, node := range c.nodes {
		if err := awaitCluster(ctx, node.Addr); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) introduce(ctx context.Context, client *redis.Client, i int) error {
	first, last := i*slots/primaries, (i+1)*slots/primaries-1
	if err := client.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
		return fmt.Errorf("add slots %d to %d: %w", first, last, err)
	}
	// Different epochs from the start spare the nodes a round of settling them.
	if err := client.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
		return fmt.Errorf("set the epoch: %w", err)
	}
	if i == 0 {
		return nil
	}
	host, port, err := net.SplitHostPort(c.Addrs[0])
	if err != nil {
		return err
	}
	if err := client.Do(ctx, "cluster", "meet", host, port, c.buses[0]).Err(); err != nil {
		return fmt.Errorf("meet %s: %w", c.Addrs[0], err)
	}
	return nil
}

// awaitCluster returns when the node sees all primaries and a server for every slot.
func awaitCluster(ctx context.Context, addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	want := []string{"cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d", primaries), fmt.Sprintf("cluster_slots_ok:%d", slots)}
	for {
		info, err := client.ClusterInfo(ctx).Result()
		if err == nil && containsAll(info, want) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the Redis Cluster at %s: %w; it says:\n%s", addr, errors.Join(ctx.Err(), err), info)
		}
	}
}

func containsAll(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// flush empties every node.
func (c *cluster) flush(ctx context.Context) error {
	for _, node := range c.nodes {
		client := redis.NewClient(&redis.Options{Addr: node.Addr})
		err := client.FlushAll(ctx).Err()
		_ = client.Close()
		if err != nil {
			return fmt.Errorf("empty the Redis Cluster node %s: %w", node.Addr, err)
		}
	}
	return nil
}

func (c *cluster) stop(context.Context) error {
	var errs []error
	for _, node := range c.nodes {
		errs = append(errs, node.remove())
	}
	return errors.Join(errs...)
}

// turnstile admits one test, together with its subtests, at a time.
type turnstile struct {
	mu     sync.Mutex
	free   *sync.Cond
	holder string
	inside int
}

func newTurnstile() *turnstile {
	g := &turnstile{}
	g.free = sync.NewCond(&g.mu)
	return g
}

// enter waits for its turn and reports whether the test is the first inside.
func (g *turnstile) enter(test string) (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.inside > 0 && test != g.holder && !strings.HasPrefix(test, g.holder+"/") {
		g.free.Wait()
	}
	g.inside++
	if g.inside > 1 {
		return false
	}
	g.holder = test
	return true
}

func (g *turnstile) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 {
		g.free.Broadcast()
	}
}
