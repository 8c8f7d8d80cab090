package services

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/cespare/xxhash/v2"

	"berth/statestore"
)

// defaultSessionHeaders carry the session id, first come first served. Case does
// not count, and '_' is as good as '-'.
var defaultSessionHeaders = []string{
	"X-Session-ID", "x-claude-code-session-id", "session-id", "x-dynamo-session-id", "x-smg-routing-key",
}

// maxSeparators bounds the spellings of one header name.
const maxSeparators = 6

// sessionHeaders finds the session id among a request's headers. Every spelling
// has a preference of its own, so that a request with two of them means the same
// session every time.
type sessionHeaders struct {
	rank map[string]int // canonical spelling → preference
}

func newSessionHeaders(names []string) (sessionHeaders, error) {
	h := sessionHeaders{rank: map[string]int{}}
	for i, name := range names {
		parts := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' })
		if len(parts) == 0 || len(parts) > maxSeparators {
			return h, fmt.Errorf("session header %q: want 1 to %d words", name, maxSeparators)
		}
		for j, spelling := range spellings(parts) {
			key := textproto.CanonicalMIMEHeaderKey(spelling)
			if _, taken := h.rank[key]; !taken {
				h.rank[key] = i<<maxSeparators + j
			}
		}
	}
	return h, nil
}

// spellings joins the words with every mix of '-' and '_'.
func spellings(words []string) []string {
	out := []string{words[0]}
	for _, w := range words[1:] {
		longer := make([]string, 0, 2*len(out))
		for _, o := range out {
			longer = append(longer, o+"-"+w, o+"_"+w)
		}
		out = longer
	}
	return out
}

// find returns the preferred non-empty value.
func (h sessionHeaders) find(header http.Header) string {
	best, value := math.MaxInt, ""
	for name, values := range header {
		rank, ok := h.rank[name]
		if ok && rank < best && len(values) > 0 && values[0] != "" {
			best, value = rank, values[0]
		}
	}
	return value
}

// parameters is a request's query. Most have nothing escaped, and are read where
// they stand.
type parameters struct {
	raw    string
	parsed url.Values // nil: nothing is escaped
}

// query reads a request's query.
func query(r *http.Request) (parameters, error) {
	raw := r.URL.RawQuery
	if !strings.ContainsAny(raw, "%+;") {
		return parameters{raw: raw}, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return parameters{parsed: values}, newProblem("malformed", "the query cannot be read") // with what can be
	}
	return parameters{parsed: values}, nil
}

// all yields the names and their values; those of one name are in order.
func (p parameters) all() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for name, values := range p.parsed {
			for _, value := range values {
				if !yield(name, value) {
					return
				}
			}
		}
		for rest := p.raw; rest != ""; {
			var pair string
			pair, rest, _ = strings.Cut(rest, "&")
			if name, value, _ := strings.Cut(pair, "="); pair != "" && !yield(name, value) {
				return
			}
		}
	}
}

// Get returns the first value of a name, empty if there is none.
func (p parameters) Get(name string) string {
	for key, value := range p.all() {
		if key == name {
			return value
		}
	}
	return ""
}

// first returns the query's value of a name, or else the header's; empty means
// absent in both.
func first(q parameters, param string, header http.Header, name string) string {
	if v := q.Get(param); v != "" {
		return v
	}
	return header.Get(name)
}

// sessionKey is the identity of the session that a call is about. pathID is the
// id in the path, "-" when it travels in a header.
func (s *Server) sessionKey(ctx context.Context, pathID string) (statestore.SessionKey, error) {
	r := request(ctx)
	if pathID == "-" {
		if pathID = s.headers.find(r.Header); pathID == "" {
			return statestore.SessionKey{}, invalid("header.X-Session-ID", "is needed where the path says '-'")
		}
	}
	return s.keyFor(ctx, pathID)
}

// keyFor completes a session id with the caller's tenant and the pool asked for.
func (s *Server) keyFor(ctx context.Context, id string) (statestore.SessionKey, error) {
	r := request(ctx)
	p := caller(ctx)
	tenant, err := p.tenant(r.Header.Get(hdrTenant))
	if err != nil {
		return statestore.SessionKey{}, err
	}
	pool, err := s.poolName(queryOf(ctx), r.Header)
	if err != nil {
		return statestore.SessionKey{}, err
	}
	if err := p.allowPool(pool); err != nil {
		return statestore.SessionKey{}, err
	}
	key := statestore.SessionKey{Tenant: tenant, Pool: pool, ID: id}
	return key, key.Validate()
}

// poolName is the pool that a request names, by itself or by a model that a
// pool's policy lists.
func (s *Server) poolName(q parameters, h http.Header) (string, error) {
	if pool := first(q, "pool", h, hdrPool); pool != "" {
		return pool, statestore.ValidateName("pool", pool)
	}
	if model := first(q, "model", h, hdrModel); model != "" {
		if pool, ok := s.fleet.now().models[model]; ok {
			return pool, nil
		}
	}
	return statestore.DefaultName, nil
}

// affinityKey is the stored form of a caller's affinity key; zero for none.
func affinityKey(key string) (a statestore.AffinityKey) {
	if key == "" {
		return a
	}
	binary.BigEndian.PutUint64(a[:8], xxhash.Sum64String(key))
	sum := sha256.Sum256([]byte(key))
	copy(a[8:], sum[:8])
	return a
}
