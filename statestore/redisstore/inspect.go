package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"berth/statestore"
)

// oldest is the first version whose functions have flags, without which an append
// could be refused half way when memory is full.
const oldestMajor = 7

// server is what one primary says of itself.
type server struct {
	addr        string
	version     string
	eviction    string // maxmemory-policy; "" when it may not be read
	fsyncAlways bool
	confirmed   bool // the settings of the append-only file could be read
	aof         bool
}

// inspect asks every primary what it is and refuses those that cannot keep what
// is promised. It answers warnings for people.
func (s *Store) inspect(ctx context.Context) ([]string, error) {
	var servers []server
	err := s.ask(ctx, func() (err error) {
		servers, err = s.primaries(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	fsynced, waitsAOF := len(servers) > 0, len(servers) > 0
	var warnings []string
	for _, one := range servers {
		w, err := s.judgeServer(one)
		if err != nil {
			return nil, err
		}
		warnings = append(warnings, w...)
		fsynced = fsynced && one.fsyncAlways
		waitsAOF = waitsAOF && one.aof && atLeast(one.version, 7, 2)
	}
	s.fsynced.Store(fsynced)
	s.waitsAOF.Store(waitsAOF)
	return warnings, nil
}

// primaries asks all primaries.
func (s *Store) primaries(ctx context.Context) (servers []server, err error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		one, err := askServer(ctx, s.client)
		return []server{one}, err
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		one, err := askServer(ctx, node)
		one.addr = node.Options().Addr
		mu.Lock()
		defer mu.Unlock()
		servers = append(servers, one)
		return err
	})
	return servers, err
}

func askServer(ctx context.Context, on redis.Cmdable) (server, error) {
	info, err := on.InfoMap(ctx, "server").Result()
	if err != nil {
		return server{}, err
	}
	one := server{version: info["Server"]["redis_version"]}
	for name := range info {
		if v := info[name]["redis_version"]; v != "" {
			one.version = v
		}
	}
	one.read(ctx, on)
	return one, nil
}

// read reads the settings that matter. Managed servers often forbid it: then
// nothing is confirmed.
func (o *server) read(ctx context.Context, on redis.Cmdable) {
	if policy, err := on.ConfigGet(ctx, "maxmemory-policy").Result(); err == nil {
		o.eviction = policy["maxmemory-policy"]
	}
	aof, err := on.ConfigGet(ctx, "append*").Result()
	if err != nil || aof["appendonly"] == "" {
		return
	}
	o.confirmed, o.aof = true, aof["appendonly"] == "yes"
	o.fsyncAlways = o.aof && aof["appendfsync"] == "always"
}

// judgeServer refuses a server, or warns of it.
func (s *Store) judgeServer(o server) (warnings []string, err error) {
	if !atLeast(o.version, oldestMajor, 0) {
		return nil, fmt.Errorf("server version %s%s is older than Redis 7.0: %w", o.version, at(o.addr), statestore.ErrInvalid)
	}
	switch {
	case o.eviction == "" || o.eviction == "noeviction":
	case !s.opts.AllowEviction:
		return nil, fmt.Errorf("maxmemory-policy is %s%s: Redis would drop sessions when memory is short; set noeviction: %w",
			o.eviction, at(o.addr), statestore.ErrInvalid)
	default:
		warnings = append(warnings, fmt.Sprintf("maxmemory-policy is %s%s: sessions may vanish when memory is short", o.eviction, at(o.addr)))
	}
	if o.eviction == "" {
		warnings = append(warnings, "CONFIG may not be read"+at(o.addr)+": whether Redis evicts keys is unknown")
	}
	switch {
	case !o.confirmed:
		warnings = append(warnings, "CONFIG may not be read"+at(o.addr)+": writes are promised in memory only")
	case !o.aof:
		warnings = append(warnings, "appendonly is off"+at(o.addr)+": a restart of Redis loses every session")
	case !o.fsyncAlways:
		warnings = append(warnings, "appendfsync is not always"+at(o.addr)+": a crash of Redis loses the last writes, which were promised in memory only")
	}
	return warnings, nil
}

func at(addr string) string {
	if addr == "" {
		return ""
	}
	return " at " + addr
}

// atLeast compares versions such as 7.0.15.
func atLeast(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(first)
	b, _ := strconv.Atoi(second)
	return a > major || a == major && b >= minor
}

// connected looks at the server behind every new connection: it may be another
// than the one that was asked, after a failover. What it does not confirm is not
// promised any more.
func (s *Store) connected(ctx context.Context, conn *redis.Conn) error {
	if !s.fsynced.Load() {
		return nil
	}
	var one server
	one.read(ctx, conn)
	if !one.fsyncAlways {
		s.fsynced.Store(false)
	}
	return nil
}
