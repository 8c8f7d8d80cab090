package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/net/netutil"

	"berth/cmd/berth/internal/pause"
	"berth/services"
)

// serveCmd are the flags of `berth serve`.
type serveCmd struct {
	Listen    string `default:"127.0.0.1:7410" env:"BERTH_LISTEN" help:"Address to listen on; port 0 takes a free one."`
	StoreFlag `embed:""`

	Tokens   string `env:"BERTH_TOKENS" type:"path" help:"JSON file of tokens with their roles; without one everybody on loopback may do everything."`
	Insecure bool   `env:"BERTH_INSECURE" help:"Listen beyond loopback without tokens."`

	Policy        string `env:"BERTH_POLICY" type:"path" help:"YAML or JSON file of pool policies, for pools that have none yet."`
	PolicyEnforce bool   `env:"BERTH_POLICY_ENFORCE" help:"The file's policies replace what is stored, and nobody changes them by a call to any process, until half a minute after the last that enforces them ended."`

	TLSCert     string `env:"BERTH_TLS_CERT" name:"tls-cert" type:"path" help:"Certificate file (PEM)."`
	TLSKey      string `env:"BERTH_TLS_KEY" name:"tls-key" type:"path" help:"Key file (PEM)."`
	TLSClientCA string `env:"BERTH_TLS_CLIENT_CA" name:"tls-client-ca" type:"path" help:"CA file (PEM); callers must show a certificate that it signed."`

	SessionHeaders []string      `env:"BERTH_SESSION_HEADERS" placeholder:"NAME" help:"Headers that carry the session id, in order of preference (default: X-Session-ID and the usual ones)."`
	Process        string        `env:"BERTH_PROCESS" help:"Name of this process among those that share the store (default: host and pid)."`
	CacheEntries   int           `default:"200000" env:"BERTH_CACHE_ENTRIES" help:"Bindings cached in this process."`
	CacheTTL       time.Duration `default:"10s" env:"BERTH_CACHE_TTL" name:"cache-ttl" help:"Age at which a cached binding is read again."`
	MissRate       int           `default:"2000" env:"BERTH_MISS_RATE" help:"Store reads a second that routes may cause."`
	StoreTimeout   time.Duration `default:"100ms" env:"BERTH_STORE_TIMEOUT" help:"Wait for the store in a route; after it the answer is degraded."`
	Heartbeat      time.Duration `default:"2s" env:"BERTH_HEARTBEAT" help:"Heartbeat interval told to workers."`
	SuspectAfter   time.Duration `default:"6s" env:"BERTH_SUSPECT_AFTER" help:"Silence after which an instance takes no new sessions."`
	DownAfter      time.Duration `default:"15s" env:"BERTH_DOWN_AFTER" help:"Silence after which an instance's sessions fail over."`
	GoneAfter      time.Duration `default:"1h" env:"BERTH_GONE_AFTER" help:"Time an instance that is down is kept before it is removed."`
	MaxConnections int           `default:"16384" env:"BERTH_MAX_CONNECTIONS" help:"Connections accepted at once."`
	ShutdownDelay  time.Duration `default:"1s" env:"BERTH_SHUTDOWN_DELAY" help:"Time between failing readiness and closing the port at shutdown, for load balancers to notice."`
	ShutdownGrace  time.Duration `default:"10s" env:"BERTH_SHUTDOWN_GRACE" help:"Time for running calls to end at shutdown."`
	LogFormat      string        `default:"text" enum:"text,json" env:"BERTH_LOG_FORMAT" help:"text or json."`
	LogLevel       slog.Level    `default:"info" env:"BERTH_LOG_LEVEL" help:"debug, info, warn or error."`
}

// Run serves until ctx ends, then stops in order: readiness fails, running calls
// end, background work stops and releases its leases, the store closes.
func (c *serveCmd) Run(ctx context.Context, io *streams) (err error) {
	spendMemory()
	log := c.logger(io)
	logRedis(log)
	if err := c.checkTimes(); err != nil {
		return err
	}
	tokens, err := c.checkExposure()
	if err != nil {
		return err
	}
	store, err := openStore(ctx, c.StoreFlag)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	about, err := store.Describe(ctx)
	if err != nil {
		return fmt.Errorf("describe the store: %w", err)
	}
	for _, w := range about.Warnings {
		log.Warn("store", "warning", w)
	}
	options := c.options(store, tokens, log)
	if options.Policies, options.EnforcePolicies, err = c.policies(); err != nil {
		return err
	}
	server, err := services.New(ctx, options)
	if err != nil {
		return err
	}
	if err := server.Load(ctx); err != nil {
		return fmt.Errorf("load the fleet: %w", err)
	}
	listener, err := c.listen(ctx)
	if err != nil {
		return err
	}
	log.Info("serving", "url", c.url(listener.Addr()), "store", about.Backend, "durability", about.Durability.String(), "version", version())
	return c.serve(ctx, server, listener, log)
}

func (c *serveCmd) options(store serverStore, tokens *services.Tokens, log *slog.Logger) services.Options {
	process := c.Process
	if process == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "berth"
		}
		process = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	return services.Options{
		Store: store, Logger: log, Process: process, Version: version(), Tokens: tokens, SessionHeaders: c.SessionHeaders,
		CacheEntries: c.CacheEntries, CacheTTL: c.CacheTTL, MissRate: c.MissRate, StoreTimeout: c.StoreTimeout,
		HeartbeatEvery: c.Heartbeat, SuspectAfter: c.SuspectAfter, DownAfter: c.DownAfter, GoneAfter: c.GoneAfter,
	}
}

func (c *serveCmd) policies() (map[string]services.PoolPolicy, bool, error) {
	if c.Policy == "" {
		if c.PolicyEnforce {
			return nil, false, errors.New("--policy-enforce needs --policy")
		}
		return nil, false, nil
	}
	policies, err := services.LoadPolicies(c.Policy)
	return policies, c.PolicyEnforce, err
}

func (c *serveCmd) logger(io *streams) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(io.err, options))
	}
	return slog.New(slog.NewTextHandler(io.err, options))
}

// checkTimes refuses times by which instances that are well would be taken for silent,
// or be given up before they are suspected.
func (c *serveCmd) checkTimes() error {
	if 0 < c.Heartbeat && c.Heartbeat < c.SuspectAfter && c.SuspectAfter < c.DownAfter {
		return nil
	}
	return fmt.Errorf("--heartbeat %s, --suspect-after %s, --down-after %s: each must be longer than the one before, and the first more than 0",
		c.Heartbeat, c.SuspectAfter, c.DownAfter)
}

// checkExposure refuses to let strangers in: beyond loopback it takes tokens, or
// the word of who starts it.
func (c *serveCmd) checkExposure() (*services.Tokens, error) {
	if c.Tokens != "" {
		return services.LoadTokens(c.Tokens)
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen address: %w", err)
	}
	ip := net.ParseIP(host)
	if host != "localhost" && (ip == nil || !ip.IsLoopback()) && !c.Insecure {
		return nil, fmt.Errorf("listening on %s would let everybody read and write conversations: give --tokens, or --insecure if the network keeps strangers out", c.Listen)
	}
	return nil, nil
}

// listen opens the port before anybody is told that it is ready.
func (c *serveCmd) listen(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	listener = netutil.LimitListener(listener, c.MaxConnections)
	if c.TLSCert == "" && c.TLSKey == "" {
		if c.TLSClientCA != "" {
			return nil, errors.Join(errors.New("--tls-client-ca needs --tls-cert and --tls-key"), listener.Close())
		}
		return listener, nil
	}
	secure, err := c.tlsConfig()
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return tls.NewListener(listener, secure), nil
}

func (c *serveCmd) tlsConfig() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("load the certificate: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if c.TLSClientCA == "" {
		return config, nil
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if config.ClientCAs, err = readCAs(c.TLSClientCA); err != nil {
		return nil, fmt.Errorf("read the client CA: %w", err)
	}
	return config, nil
}

// idleTime is how long a connection may wait for a request. The first one is waited for
// as long as the next: clients dial in reserve, and use what they dialled when the
// server may be about to end it. It is longer than the 90 s after which most clients
// let go of a connection themselves.
const idleTime = 2 * time.Minute

func (c *serveCmd) url(addr net.Addr) string {
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	return scheme + "://" + addr.String()
}

func (c *serveCmd) serve(ctx context.Context, server *services.Server, listener net.Listener, log *slog.Logger) error {
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	done := make(chan error, 2)
	go func() { done <- server.Run(background) }()

	listener = server.Listener(ctx, listener)
	web := &http.Server{
		Handler: server.Handler(), ReadHeaderTimeout: idleTime, IdleTimeout: idleTime,
		MaxHeaderBytes: 2 * services.MaxHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() { done <- web.Serve(listener) }()

	var failed error
	select {
	case <-ctx.Done():
	case failed = <-done:
	}
	server.Stop()
	log.Info("stopping")
	if failed == nil {
		_ = pause.For(context.WithoutCancel(ctx), c.ShutdownDelay)
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.ShutdownGrace)
	defer cancel()
	if err := web.Shutdown(grace); err != nil {
		log.Warn("calls cut off", "error", err)
		failed = errors.Join(failed, web.Close())
	}
	stopBackground()
	for err := range done {
		if err != nil && !errors.Is(err, http.ErrServerClosed) {
			failed = errors.Join(failed, err)
		}
		if len(done) == 0 {
			break
		}
	}
	return failed
}
