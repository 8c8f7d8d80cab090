package client

import (
	"fmt"
	"net/http"
	"strconv"
)

// Hint is what a route told a worker of a session: directly, or through the
// headers that a gateway passes on.
type Hint struct {
	Handle  Handle
	Epoch   uint64
	Version uint64
	// New says that there is nothing to load, and that a first append binds the
	// session. A version of 0 alone does not: it also comes from a Berth that
	// could not look.
	New bool
}

// Request is what a gateway passes on with a request.
type Request struct {
	Session  SessionKey
	Instance string // that was hinted
	Rank     *int   // data-parallel rank, where the instance has several
	Hint     Hint
}

// FromHeader reads what a gateway passed on. A request without a session has an
// empty Session.ID.
func FromHeader(h http.Header) (Request, error) {
	r := Request{
		Session:  SessionKey{ID: h.Get(headerSession), Tenant: h.Get(headerTenant), Pool: h.Get(headerPool)},
		Instance: h.Get(headerInstance),
		Hint:     Hint{Handle: Handle(h.Get(headerHandle)), New: h.Get(headerNew) == "true"},
	}
	for _, n := range []struct {
		name string
		to   *uint64
	}{{headerEpoch, &r.Hint.Epoch}, {headerVersion, &r.Hint.Version}} {
		v := h.Get(n.name)
		if v == "" {
			continue
		}
		var err error
		if *n.to, err = strconv.ParseUint(v, 10, 64); err != nil {
			return r, fmt.Errorf("header %s is no number", n.name)
		}
	}
	if v := h.Get(headerRank); v != "" {
		rank, err := strconv.Atoi(v)
		if err != nil {
			return r, fmt.Errorf("header %s is no number", headerRank)
		}
		r.Rank = &rank
	}
	return r, nil
}

// passedOn are the headers that a gateway sets for the worker. From a client
// they are deleted: they would be forged.
var passedOn = []string{headerHandle, headerTenant, headerPool, headerEpoch, headerVersion, headerNew, headerInstance, headerRank, headerForwarded, headerEndpoint}

// Strip deletes from a client's request what only a gateway may say. A gateway
// calls it before it asks for a route.
func Strip(h http.Header) {
	for _, name := range passedOn {
		h.Del(name)
	}
}
