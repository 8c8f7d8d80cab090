package services

import (
	"net/http"
	"strconv"
	"strings"

	"berth/statestore"
	"berth/statestore/handle"
)

// routeQuery is what a gateway asks. Query parameters win over headers; empty
// means absent.
type routeQuery struct {
	tenant, pool string
	session      string // empty: stateless
	affinity     string // the caller's affinity key, if it gave one
	held         string // the newest handle the gateway holds
	exclude      []string
	reports      []failureReport
	subset       []string // nil: no restriction
	fallbacks    int
	always2xx    bool
}

// ringKey is what the ring hashes.
func (q *routeQuery) ringKey() string {
	if q.affinity != "" {
		return q.affinity
	}
	return q.session
}

func (q *routeQuery) key() statestore.SessionKey {
	return statestore.SessionKey{Tenant: q.tenant, Pool: q.pool, ID: q.session}
}

// failureReport is what a gateway says of an instance that it could not use.
type failureReport struct {
	instance string
	result   Result
}

// Header names in the form of http.Header's keys.
const (
	hdrInstance  = "X-Berth-Instance"
	hdrEndpoint  = "X-Gateway-Destination-Endpoint"
	hdrSubset    = "X-Gateway-Destination-Endpoint-Subset"
	hdrRank      = "X-Data-Parallel-Rank"
	hdrScheme    = "X-Berth-Scheme"
	hdrReason    = "X-Berth-Reason"
	hdrJump      = "X-Berth-Jump"
	hdrEpoch     = "X-Berth-Epoch"
	hdrVersion   = "X-Berth-Version"
	hdrNew       = "X-Berth-New"
	hdrHandle    = "X-Berth-Handle"
	hdrDegraded  = "X-Berth-Degraded"
	hdrExclude   = "X-Berth-Exclude"
	hdrKey       = "X-Berth-Key"
	hdrTenant    = "X-Berth-Tenant"
	hdrPool      = "X-Berth-Pool"
	hdrModel     = "X-Gateway-Model-Name"
	hdrStatus    = "X-Berth-Status"
	hdrRequestID = "X-Request-Id"

	hdrToken       = "X-Berth-Token"
	hdrIncarnation = "X-Berth-Incarnation"
	hdrOp          = "Idempotency-Key"
)

// always2xx is the word that asks for 200 with a refusal, for proxies that turn every
// other status into their own error.
const always2xx = "always2xx"

// asks2xx reports whether a query has that word, also where it cannot be taken.
func asks2xx(values parameters) bool {
	for word := range strings.SplitSeq(values.list("status"), ",") {
		if word == always2xx {
			return true
		}
	}
	return false
}

// maxAffinityKey bounds a caller's affinity key, in bytes.
const maxAffinityKey = 1024

// parseRoute reads a gateway's question.
func (s *Server) parseRoute(q *routeQuery, values parameters, h http.Header, p *principal) (err error) {
	if err := values.once(onceInRoute); err != nil {
		return err
	}
	if q.tenant, err = p.tenant(h.Get(hdrTenant)); err != nil {
		return err
	}
	if q.pool, err = s.poolName(values, h); err != nil {
		return err
	}
	if err := p.allowPool(q.pool); err != nil {
		return err
	}
	if q.session = values.Get("session"); q.session == "" {
		q.session = s.headers.find(h)
	}
	if q.session != "" {
		if err := statestore.ValidateSessionID(q.session); err != nil {
			return err
		}
	}
	if q.affinity = first(values, "key", h, hdrKey); len(q.affinity) > maxAffinityKey {
		return newProblem("malformed", "the affinity key is longer than 1024 bytes")
	}
	q.held = h.Get(hdrHandle)
	return q.parseChoices(values, h)
}

// parseChoices reads what narrows or widens the choice.
func (q *routeQuery) parseChoices(values parameters, h http.Header) error {
	for part := range strings.SplitSeq(listOf(values, "exclude", h, hdrExclude), ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		id, word, told := strings.Cut(part, ":")
		result := ResultConnect
		if told {
			result = Result(word)
		}
		if !result.excludes() {
			return newProblem("malformed", "exclude: after ':' comes connect, reset, 5xx, timeout or busy")
		}
		q.exclude = append(q.exclude, id)
		q.reports = append(q.reports, failureReport{instance: id, result: result})
	}
	if list := listOf(values, "subset", h, hdrSubset); list != "" {
		q.subset = []string{}
		for part := range strings.SplitSeq(list, ",") {
			if part = strings.TrimSpace(part); part != "" {
				q.subset = append(q.subset, part)
			}
		}
	}
	if word := values.Get("status"); word != "" && word != always2xx {
		return newProblem("malformed", "status: the one word is "+always2xx)
	}
	if n := values.Get("fallbacks"); n != "" {
		v, err := strconv.Atoi(n)
		if err != nil || v < 0 {
			return newProblem("malformed", "fallbacks: want a number, 0 or more")
		}
		// A handle names the hint and its fallbacks, and has room for these.
		q.fallbacks = min(v, handle.MaxNames-1)
	}
	return nil
}

// Result is how a request to an instance ended, as a gateway tells it.
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

// excludes reports whether the result may stand in exclude.
func (r Result) excludes() bool {
	switch r {
	case ResultConnect, ResultReset, Result5xx, ResultTimeout, ResultBusy:
		return true
	}
	return false
}
