package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"berth/statestore"
)

// Backends, as [statestore.Description] names them.
const (
	backendSingle   = "redis"
	backendSentinel = "redis-sentinel"
	backendCluster  = "redis-cluster"
)

var schemes = map[string]struct {
	backend string
	tls     bool
}{
	"redis":           {backendSingle, false},
	"rediss":          {backendSingle, true},
	"redis+sentinel":  {backendSentinel, false},
	"rediss+sentinel": {backendSentinel, true},
	"redis+cluster":   {backendCluster, false},
	"rediss+cluster":  {backendCluster, true},
}

// target is a parsed store URL.
type target struct {
	backend string
	options redis.UniversalOptions
}

// What every client of ours has, unless its URL says otherwise.
const (
	poolSize     = 64
	readTimeout  = 3 * time.Second
	dialTimeout  = 2 * time.Second
	maxRedirects = 5
)

// parseTarget reads
//
//	redis://user:password@host:6379/0
//	redis+sentinel://user:password@host:26379,host2:26379/master?db=0&sentinel_password=…
//	redis+cluster://user:password@host:6379,host2:6379
//
// and the same with rediss for TLS. Its errors never hold the URL, which may hold
// a password.
func parseTarget(raw string) (target, error) {
	scheme, rest, _ := strings.Cut(raw, "://")
	kind, ok := schemes[scheme]
	if !ok {
		return target{}, fmt.Errorf("store URL must begin with redis, rediss, redis+sentinel or redis+cluster and \"://\": %w", statestore.ErrInvalid)
	}
	// A list of hosts is no URL: it is parsed by itself.
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndexByte(rest[:end], '@') + 1
	u, err := url.Parse("redis://" + rest[:at] + "host" + rest[end:])
	if err != nil {
		var detail *url.Error
		if errors.As(err, &detail) {
			err = detail.Err
		}
		return target{}, fmt.Errorf("parse the store URL: %w: %w", err, statestore.ErrInvalid)
	}
	t := target{backend: kind.backend, options: settings()}
	t.hosts(strings.Split(rest[at:end], ","))
	t.options.Username = u.User.Username()
	t.options.Password, _ = u.User.Password()
	if kind.tls {
		t.options.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if err := t.path(strings.Trim(u.Path, "/")); err != nil {
		return target{}, err
	}
	return t, t.parameters(u.Query())
}

// settings are those that no URL changes: a client honours the deadline of a
// call, sends nothing twice on its own account, reads from primaries, and speaks
// the protocol in which nothing arrives unasked.
func settings() redis.UniversalOptions {
	return redis.UniversalOptions{
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, MaxRedirects: maxRedirects,
		Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		PoolSize:                 poolSize, ReadTimeout: readTimeout, DialTimeout: dialTimeout,
	}
}

// hosts sets the addresses; a host without a port has the usual one.
func (t *target) hosts(list []string) {
	port := "6379"
	if t.backend == backendSentinel {
		port = "26379"
	}
	for _, host := range list {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		t.options.Addrs = append(t.options.Addrs, host)
	}
}

// path is the master of Sentinel, else the database.
func (t *target) path(path string) error {
	switch {
	case t.backend == backendSentinel && path == "":
		return fmt.Errorf("store URL names no master, as in redis+sentinel://host:26379/master: %w", statestore.ErrInvalid)
	case t.backend == backendSentinel:
		t.options.MasterName = path
		return nil
	case t.backend == backendCluster && path != "":
		return fmt.Errorf("a Redis Cluster has no databases: %w", statestore.ErrInvalid)
	case path == "":
		return nil
	}
	return setInt(&t.options.DB)("path", path)
}

// parameters reads the query. A parameter that nobody reads is a mistake.
func (t *target) parameters(query url.Values) error {
	o := &t.options
	known := map[string]func(name, value string) error{
		"db":                setInt(&o.DB),
		"pool_size":         setInt(&o.PoolSize),
		"dial_timeout":      setDuration(&o.DialTimeout),
		"read_timeout":      setDuration(&o.ReadTimeout),
		"write_timeout":     setDuration(&o.WriteTimeout),
		"pool_timeout":      setDuration(&o.PoolTimeout),
		"sentinel_username": setText(&o.SentinelUsername),
		"sentinel_password": setText(&o.SentinelPassword),
	}
	for name, values := range query {
		set, ok := known[name]
		if !ok {
			return fmt.Errorf("store URL has an unknown parameter %q: %w", name, statestore.ErrInvalid)
		}
		if err := set(name, values[len(values)-1]); err != nil {
			return err
		}
	}
	return nil
}

func setText(to *string) func(name, value string) error {
	return func(_, value string) error {
		*to = value
		return nil
	}
}

func setInt(to *int) func(name, value string) error {
	return func(name, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return fmt.Errorf("store URL: %s must be a number: %w", name, statestore.ErrInvalid)
		}
		*to = n
		return nil
	}
}

func setDuration(to *time.Duration) func(name, value string) error {
	return func(name, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return fmt.Errorf("store URL: %s must be a time such as 500ms: %w", name, statestore.ErrInvalid)
		}
		*to = d
		return nil
	}
}

// client makes the client for the target.
func (t target) client() redis.UniversalClient {
	switch t.backend {
	case backendSentinel:
		return redis.NewFailoverClient(t.options.Failover())
	case backendCluster:
		o := t.options.Cluster()
		o.DisableRoutingPolicies = true
		return redis.NewClusterClient(o)
	}
	return redis.NewClient(t.options.Simple())
}
