package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// routeTimeout bounds one attempt of a route, which is in the way of a request.
const routeTimeout = 2 * time.Second

// Gateway asks where sessions belong and reports how requests ended. It is safe
// for concurrent use.
type Gateway struct{ conn *conn }

// NewGateway makes no call. AttemptTimeout is 2 s when the configuration says
// nothing else.
func NewGateway(cfg Config) (*Gateway, error) {
	cfg.AttemptTimeout = positive(cfg.AttemptTimeout, routeTimeout)
	c, err := dial(cfg)
	if err != nil {
		return nil, err
	}
	return &Gateway{conn: c}, nil
}

// String says nothing secret.
func (g *Gateway) String() string { return "gateway" }

// GoString is for %#v.
func (g *Gateway) GoString() string { return g.String() }

// Result is how a request to an instance ended.
type Result string

// Results. Timeout and busy are load, client is nobody's fault, the others are
// failures.
const (
	ResultOK      Result = "ok"
	ResultConnect Result = "connect"
	ResultReset   Result = "reset"
	Result5xx     Result = "5xx"
	ResultTimeout Result = "timeout"
	ResultBusy    Result = "busy"
	ResultClient  Result = "client"
)

// Exclusion is an instance that must not be chosen, and why.
type Exclusion struct {
	Instance string
	Result   Result // ResultConnect when empty
}

// RouteRequest asks for an instance.
type RouteRequest struct {
	// Session names the session. Without an ID the request is stateless: the
	// answer has no handle. Without a Pool, Model names it.
	Session   SessionKey
	Model     string
	Key       string // what the ring hashes, instead of the session id
	Exclude   []Exclusion
	Subset    []string // only these endpoints, ip:port; nil: no restriction
	Fallbacks int      // how many further endpoints to answer
	// Handle is the newest one that the gateway holds, if it holds one.
	Handle Handle
}

// Endpoint is an instance and where it listens.
type Endpoint struct {
	Instance string `json:"instance"`
	Address  string `json:"address"` // ip:port
}

// Route is where a request should go, and why.
type Route struct {
	Endpoint
	Rank   *int   `json:"rank"`
	Scheme string `json:"scheme"`
	// Reason is bound, new, lapsed, failover, replaced, over_bound, breaker,
	// stateless or panic.
	Reason   string `json:"reason"`
	Jump     bool   `json:"jump"`     // the session leaves Previous
	Previous string `json:"previous"` // the last instance that served it
	Epoch    uint64 `json:"epoch"`
	Version  uint64 `json:"version"`
	New      bool   `json:"new"` // there is nothing to load
	Handle   Handle `json:"handle"`

	SnapshotVersion uint64 `json:"snapshot_version"`
	ValidMS         int64  `json:"valid_ms"` // how long the answer may be used again
	// Degraded is empty, or store_unavailable, miss_budget or panic.
	Degraded  string     `json:"degraded"`
	Fallbacks []Endpoint `json:"fallbacks"`
}

// Hint is what the worker is told.
func (r *Route) Hint() Hint {
	return Hint{Handle: r.Handle, Epoch: r.Epoch, Version: r.Version, New: r.New}
}

// Pass sets on a request to the worker what it must know. Call [Strip] on the
// client's headers before.
func (r *Route) Pass(h http.Header, key SessionKey) {
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	set(headerInstance, r.Instance)
	if r.Rank != nil {
		set(headerRank, strconv.Itoa(*r.Rank))
	}
	set(headerTenant, key.Tenant)
	set(headerPool, key.Pool)
	if r.Handle == "" {
		return
	}
	set(headerSession, key.ID)
	set(headerHandle, string(r.Handle))
	set(headerEpoch, strconv.FormatUint(r.Epoch, 10))
	set(headerVersion, strconv.FormatUint(r.Version, 10))
	if r.New {
		set(headerNew, "true")
	}
}

// Route asks each process at most once, without waiting. A refusal is a
// *Problem; with ErrNotEligible nobody may serve it now, and RetryAfter says
// when to ask again.
func (g *Gateway) Route(ctx context.Context, req RouteRequest) (*Route, error) {
	if req.Session.ID != "" {
		if err := req.Session.validate(); err != nil {
			return nil, fmt.Errorf("route: %w", err)
		}
	}
	k := call{act: "route", method: http.MethodGet, path: "/route", query: req.query()}
	k.set(headerTenant, req.Session.Tenant)
	k.set(headerHandle, string(req.Handle))
	r := new(Route)
	if err := g.conn.once(ctx, k.into(r)); err != nil {
		return nil, err
	}
	return r, nil
}

func (req *RouteRequest) query() url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("session", req.Session.ID)
	set("pool", req.Session.Pool)
	set("model", req.Model)
	set("key", req.Key)
	var exclude []string
	for _, e := range req.Exclude {
		if e.Result != "" {
			e.Instance += ":" + string(e.Result)
		}
		exclude = append(exclude, e.Instance)
	}
	set("exclude", strings.Join(exclude, ","))
	set("subset", strings.Join(req.Subset, ","))
	if req.Fallbacks > 0 {
		q.Set("fallbacks", strconv.Itoa(req.Fallbacks))
	}
	return q
}
