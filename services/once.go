package services

import (
	"errors"
	"net/http"
	"slices"
	"strings"
)

// The choices of a route are lists, and come in as many parameters or lines as the
// caller likes. All else that says what a call is about comes once: of two values each
// reader takes another one, and a call would be about what its caller did not mean.

// onceHeaders say what a call is about. The headers that carry a session id are of
// the same kind, each in each spelling; see [sessionHeaders].
var onceHeaders = map[string]bool{
	hdrTenant: true, hdrPool: true, hdrModel: true, hdrKey: true, hdrHandle: true,
	hdrInstance: true, hdrIncarnation: true, hdrOp: true, hdrToken: true,
}

// comesOnce reports whether a header, in canonical form, is one of them.
func (s *Server) comesOnce(name string) bool {
	_, session := s.headers.rank[name]
	return session || onceHeaders[name]
}

// onceInRoute reports whether a parameter is one that a route reads once. Below /route/
// the query may be that of the client's own request: names that a route does not read
// it passes over, however often they come.
func onceInRoute(name string) bool {
	switch name {
	case "session", "pool", "model", "key", "fallbacks", "status":
		return true
	}
	return false
}

// onceInCall is onceInRoute of all other calls, which have no lists.
func onceInCall(string) bool { return true }

// once refuses a query that has a parameter twice, of those that come once, also with
// equal values.
func (p parameters) once(comesOnce func(name string) bool) error {
	if name, ok := p.twice(comesOnce); ok {
		return badID("query."+name[:min(len(name), maxQuoted)], errors.New("is given twice"))
	}
	return nil
}

func (p parameters) twice(comesOnce func(name string) bool) (first string, found bool) {
	if p.parsed == nil && !strings.Contains(p.raw, "&") {
		return "", false
	}
	seen := map[string]bool{}
	for name := range p.all() {
		if comesOnce(name) && seen[name] && (!found || name < first) {
			first, found = name, true
		}
		seen[name] = true
	}
	return first, found
}

// list returns all values of a name as one list; empty ones are absent.
func (p parameters) list(name string) string {
	values := make([]string, 0, 4)
	for key, value := range p.all() {
		if key == name {
			values = append(values, value)
		}
	}
	return joined(values)
}

// joined is several values of a list as one.
func joined(values []string) string {
	switch len(values) {
	case 0:
		return ""
	case 1:
		return values[0]
	}
	empty := func(v string) bool { return v == "" }
	return strings.Join(slices.DeleteFunc(slices.Clone(values), empty), ",")
}

// listOf returns the query's list of a name, or else that of the header's lines.
func listOf(q parameters, param string, header http.Header, name string) string {
	if list := q.list(param); list != "" {
		return list
	}
	return joined(header[name])
}

// differ reports whether the values are not all the same.
func differ(values []string) bool {
	return slices.ContainsFunc(values[1:], func(v string) bool { return v != values[0] })
}
