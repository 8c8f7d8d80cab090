package redistest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is a Redis that answers, with one database that belongs to the test.
type Server struct {
	URL  string // redis://host:port/database, as redis.ParseURL reads it
	Addr string // host:port
	Rung string // how it was found: url, docker or process
}

// Client is a plain client on the test's database; it is closed with the test.
func (s Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(s.URL)
	if err != nil {
		t.Fatalf("parse the Redis URL %s: %v", s.Addr, err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// server is a whole Redis, from which tests are lent databases.
type server struct {
	options *redis.Options // of database 0
	url     *url.URL
	rung    string
	stop    func(context.Context) error
}

func newServer(rawURL, rung string, stop func(context.Context) error) (*server, error) {
	opts, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("parse the URL of the Redis for tests: %w", err)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("parse the URL of the Redis for tests: %w", err)
	}
	opts.DB = 0
	return &server{options: opts, url: u, rung: rung, stop: stop}, nil
}

// database is s as a test sees it, on database n.
func (s *server) database(n int) Server {
	u := *s.url
	u.Path = "/" + strconv.Itoa(n)
	return Server{URL: u.String(), Addr: s.options.Addr, Rung: s.rung}
}

// client opens database n.
func (s *server) client(n int) *redis.Client {
	opts := *s.options
	opts.DB = n
	return redis.NewClient(&opts)
}

// openNamed is the first rung: the server a person named. It may be shared with
// other test binaries, so a test cannot have it as it likes.
func openNamed(ctx context.Context, rawURL string, c config) (*server, error) {
	if rawURL == "" {
		return nil, absent{"BERTH_TEST_REDIS is not set"}
	}
	if c.private {
		return nil, absent{"the test needs a server to itself, which BERTH_TEST_REDIS is not"}
	}
	s, err := newServer(rawURL, "url", func(context.Context) error { return nil })
	if err != nil {
		return nil, err
	}
	client := s.client(0)
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("ping the server that BERTH_TEST_REDIS names: %w", err)
	}
	if c.fsync == "" {
		return s, nil
	}
	set, err := client.ConfigGet(ctx, "append*").Result()
	if err != nil {
		return nil, absent{"BERTH_TEST_REDIS does not tell its appendfsync"}
	}
	if set["appendonly"] != "yes" || set["appendfsync"] != c.fsync {
		return nil, absent{fmt.Sprintf("BERTH_TEST_REDIS has appendonly %s and appendfsync %s, the test needs %s",
			set["appendonly"], set["appendfsync"], c.fsync)}
	}
	return s, nil
}

const (
	// leaseFor is how long a database stays lent when its test dies before giving
	// it back; longer than any test binary runs.
	leaseFor = time.Hour
	// cleanupTimeout bounds what a test's end may take.
	cleanupTimeout = 2 * time.Minute
)

var errNoDatabase = errors.New("every database is lent or holds keys of someone else")

// lend gives the test an empty database. The record of who has which lies in
// database 0, because several test binaries may share a named server; a database
// that holds keys is passed over and never emptied.
func (s *server) lend(ctx context.Context) (n int, giveBack func(context.Context) error, err error) {
	registry := s.client(0)
	defer registry.Close()
	count, err := databaseCount(ctx, registry)
	if err != nil {
		return 0, nil, err
	}
	for n := 1; n < count; n++ {
		ok, err := s.take(ctx, registry, n)
		if err != nil {
			return 0, nil, fmt.Errorf("lend database %d of the Redis for tests: %w", n, err)
		}
		if ok {
			return n, func(ctx context.Context) error { return s.giveBack(ctx, n) }, nil
		}
	}
	return 0, nil, fmt.Errorf("lend one of %d databases of the Redis for tests: %w", count-1, errNoDatabase)
}

func (s *server) take(ctx context.Context, registry *redis.Client, n int) (bool, error) {
	won, err := registry.SetNX(ctx, leaseKey(n), "lent", leaseFor).Result()
	if err != nil || !won {
		return false, err
	}
	client := s.client(n)
	defer client.Close()
	keys, err := client.DBSize(ctx).Result()
	if err == nil && keys == 0 {
		return true, nil
	}
	return false, errors.Join(err, registry.Del(ctx, leaseKey(n)).Err())
}

func (s *server) giveBack(ctx context.Context, n int) error {
	client, registry := s.client(n), s.client(0)
	defer client.Close()
	defer registry.Close()
	if err := client.FlushDB(ctx).Err(); err != nil {
		return fmt.Errorf("empty database %d of the Redis for tests: %w", n, err)
	}
	if err := registry.Del(ctx, leaseKey(n)).Err(); err != nil {
		return fmt.Errorf("give back database %d of the Redis for tests: %w", n, err)
	}
	return nil
}

func leaseKey(n int) string { return "berth-test:database:" + strconv.Itoa(n) }

// databaseCount asks the server; one that hides its configuration has the default 16.
func databaseCount(ctx context.Context, client *redis.Client) (int, error) {
	set, err := client.ConfigGet(ctx, "databases").Result()
	if err != nil {
		return 16, nil //nolint:nilerr // a managed server may forbid CONFIG
	}
	count, err := strconv.Atoi(set["databases"])
	if err != nil {
		return 0, fmt.Errorf("read the number of databases of the Redis for tests: %w", err)
	}
	return count, nil
}
