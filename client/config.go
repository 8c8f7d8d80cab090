package client

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Defaults of a [Config].
const (
	DefaultAttemptTimeout = 30 * time.Second
	// MaxRepeat is how long a write may be repeated: its op and its handle are
	// good for longer, so that a copy that comes late is still recognised.
	MaxRepeat         = time.Hour
	DefaultKeepWrites = 64
	DefaultKeepBytes  = 16 << 20
)

// Config says how Berth is reached. Only BaseURLs is required.
type Config struct {
	// BaseURLs are berth processes that share one store, for example
	// "http://10.0.0.5:7410". The first that answers is used until it fails.
	BaseURLs []string
	// Token is sent as a bearer token when it is not empty.
	Token string
	// Tenant is sent with every call that names none, for tokens that may speak
	// for several.
	Tenant string
	// HTTPClient makes the calls; nil means one of its own. Redirects are never
	// followed: handles and tokens are for the named processes only. Its
	// Timeout is not used, since it would cut streams and long polls.
	HTTPClient *http.Client
	// AttemptTimeout bounds one attempt on one process, DefaultAttemptTimeout
	// when zero. Of an answer that streams, it bounds the wait for its head.
	AttemptTimeout time.Duration
	// RepeatFor bounds how long a call is repeated for want of an answer, at
	// most and by default MaxRepeat. The call's context may end it sooner.
	RepeatFor time.Duration
	// KeepWrites and KeepBytes bound, per session, the accepted writes that are
	// kept for repair while the store holds them in memory only. Zero means
	// the defaults.
	KeepWrites int
	KeepBytes  int
	// Logger hears of repeats, fail-overs and repairs; nil means silence.
	// Contents, handles, incarnations, tokens and session ids never reach it.
	Logger *slog.Logger
}

// withDefaults checks the configuration and fills in what is left out.
func (c Config) withDefaults() (Config, error) {
	if len(c.BaseURLs) == 0 {
		return c, errors.New("no base URL")
	}
	urls := make([]string, len(c.BaseURLs))
	for i, raw := range c.BaseURLs {
		u, err := url.Parse(raw)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return c, fmt.Errorf("base URL %d is not of the form http(s)://host:port", i+1)
		}
		urls[i] = strings.TrimRight(raw, "/")
	}
	c.BaseURLs = urls
	c.AttemptTimeout = positive(c.AttemptTimeout, DefaultAttemptTimeout)
	c.RepeatFor = min(positive(c.RepeatFor, MaxRepeat), MaxRepeat)
	c.KeepWrites = positive(c.KeepWrites, DefaultKeepWrites)
	c.KeepBytes = positive(c.KeepBytes, DefaultKeepBytes)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.HTTPClient = withoutRedirects(c.HTTPClient)
	return c, nil
}

func positive[N int | time.Duration](n, otherwise N) N {
	if n > 0 {
		return n
	}
	return otherwise
}

// withoutRedirects copies the client, so that the caller's stays as it is.
func withoutRedirects(c *http.Client) *http.Client {
	var own http.Client
	if c != nil {
		own = *c
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t = t.Clone()
		// A worker's sessions all talk to the same one or two processes.
		t.MaxIdleConnsPerHost = 64
		own.Transport = t
	}
	own.Timeout = 0
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}
