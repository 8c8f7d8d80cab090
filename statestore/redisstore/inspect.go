package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

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
	sentinel    bool // it holds no data
}

// inspect asks every primary what it is and refuses those that cannot keep what
// is promised. It answers warnings for people.
func (s *Store) inspect(ctx context.Context) ([]string, error) {
	servers, err := s.survey(ctx)
	if err != nil {
		return nil, err
	}
	var warnings []string
	for _, one := range servers {
		w, err := s.judgeServer(one)
		if err != nil {
			return nil, err
		}
		warnings = append(warnings, w...)
	}
	return warnings, nil
}

// survey asks every primary for its settings, and promises what all of them
// confirm.
func (s *Store) survey(ctx context.Context) ([]server, error) {
	doubts := s.promise.doubts()
	var servers []server
	err := s.ask(ctx, func() (err error) {
		servers, err = s.primaries(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	fsynced, waitsAOF := len(servers) > 0, len(servers) > 0
	for _, one := range servers {
		fsynced = fsynced && one.fsyncAlways
		waitsAOF = waitsAOF && one.aof && atLeast(one.version, 7, 2)
	}
	s.promise.settle(fsynced, doubts)
	s.waitsAOF.Store(waitsAOF)
	return servers, nil
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

// askServer asks one server in one round trip. Managed servers often forbid CONFIG:
// then nothing is confirmed. A question without an answer is an error.
func askServer(ctx context.Context, on redis.Cmdable) (server, error) {
	pipe := on.Pipeline()
	info := pipe.InfoMap(ctx, "server")
	eviction := pipe.ConfigGet(ctx, "maxmemory-policy")
	aof := pipe.ConfigGet(ctx, "append*")
	_, _ = pipe.Exec(ctx) // each command has its own error
	if err := info.Err(); err != nil {
		return server{}, err
	}
	for _, cmd := range [...]*redis.MapStringStringCmd{eviction, aof} {
		if err := cmd.Err(); err != nil && classify(err) != refused {
			return server{}, err
		}
	}
	one := server{eviction: eviction.Val()["maxmemory-policy"]}
	for _, section := range info.Val() {
		if v := section["redis_version"]; v != "" {
			one.version, one.sentinel = v, section["redis_mode"] == "sentinel"
		}
	}
	settings := aof.Val()
	one.confirmed, one.aof = settings["appendonly"] != "", settings["appendonly"] == "yes"
	one.fsyncAlways = one.aof && settings["appendfsync"] == "always"
	return one, nil
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
// promised any more. A connection on which it does not answer is not used: the next
// one asks again.
func (s *Store) connected(ctx context.Context, conn *redis.Conn) error {
	one, err := askServer(ctx, conn)
	if err != nil {
		// go-redis takes one wrapping off.
		return fmt.Errorf("ask a new connection: %w", errNotSent{err})
	}
	if !one.sentinel && !one.fsyncAlways {
		s.promise.doubt()
	}
	return nil
}

// promise is what every acknowledged write has reached.
type promise struct {
	fsynced atomic.Bool // every server that was asked said `appendfsync always`

	mu      sync.Mutex
	doubted uint64 // how often a connection did not confirm it
}

func (p *promise) doubts() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.doubted
}

// doubt takes the promise back.
func (p *promise) doubt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doubted++
	p.fsynced.Store(false)
}

// settle gives the promise, or takes it back. It was asked for when so many doubts
// were known; one that came since is newer than the answers.
func (p *promise) settle(fsynced bool, doubts uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fsynced.Store(fsynced && p.doubted == doubts)
}
