package services_test

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"berth/services"
)

// probes are headers that some call reads, with values that no call takes without a word.
var probes = map[string]string{
	"X-Berth-Tenant": "no name", "X-Berth-Pool": "no name", "X-Session-ID": strings.Repeat("x", 257),
	"X-Berth-Handle": "none", "X-Berth-Instance": "no id", "X-Berth-Incarnation": "other",
	"X-Berth-Key": strings.Repeat("k", 1025), "X-Berth-Exclude": "i1:none", "X-Gateway-Destination-Endpoint-Subset": "10.9.9.9:1",
}

// probeBodies let calls that want a body come as far as their headers.
var probeBodies = map[string]string{
	"report-outcomes":  `{"outcomes":[{"session":"none","instance":"i1","result":"ok"}]}`,
	"heartbeat":        `{"incarnation":"other","running":0,"waiting":0}`,
	"answer-task":      `{"incarnation":"other","result":"done"}`,
	"recover-session":  `{"session":"none","mode":"read"}`,
	"put-placements":   `{"instance":"i1","incarnation":"other","placements":[]}`,
	"finish-session":   `{"instance":"i1","incarnation":"other","handle":"none"}`,
	"create-drain":     `{"instances":["none"],"dry_run":true}`,
	"create-rebalance": `{"dry_run":true}`,
}

// Whatever header changes an answer is a parameter of the call.
func TestEveryHeaderThatIsReadIsDescribed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	doc, _ := b.document()
	read := map[string]bool{}
	for path, item := range doc.Paths {
		for method, op := range item {
			described := map[string]bool{}
			for _, p := range op.Parameters {
				if p.In == "header" {
					described[http.CanonicalHeaderKey(p.Name)] = true
				}
			}
			for _, id := range []string{"none", "-"} {
				where := strings.NewReplacer("{id}", id, "{pool}", "default", "{task}", "none", "{code}", "invalid").Replace(path)
				if op.OperationID == "erase-sessions" {
					where += "?key=k"
				}
				said := func(headers ...string) string {
					headers = append(headers, "Content-Type: application/json")
					if method == "post" && strings.HasSuffix(path, "/turns") || op.OperationID == "replace-session" {
						headers[len(headers)-1] = "Content-Type: application/octet-stream"
					}
					a := b.call(strings.ToUpper(method), where, probeBodies[op.OperationID], headers...)
					if a.header.Get("Content-Type") != "application/problem+json" {
						return a.header.Get("X-Berth-Instance")
					}
					return a.str("code") + ": " + a.str("detail")
				}
				before := said()
				for name, value := range probes {
					if after := said(name + ": " + value); after != before {
						read[name] = true
						if !described[http.CanonicalHeaderKey(name)] {
							t.Errorf("%s %s with %s answers %q, not %q, and does not list it", method, where, name, after, before)
						}
					}
				}
			}
		}
	}
	for name := range probes {
		if !read[name] {
			t.Errorf("no call reads %s, as far as this test sees", name)
		}
	}
}

// Every call lists, by status or as default, what may refuse it ahead of its handler:
// headers that are too large, and the token.
func TestRefusalsAheadOfTheHandlerAreDescribed(t *testing.T) {
	t.Parallel()
	b := setupTokens(t, gateway, workers, operator, services.Token{Name: "elsewhere", Roles: []services.Role{services.RoleWorker}, Pools: []string{"other"}})
	doc, _ := b.document()
	for path, item := range doc.Paths {
		for method, op := range item {
			where := strings.NewReplacer("{id}", "none", "{pool}", "default", "{task}", "none", "{code}", "invalid").Replace(path)
			for _, by := range []*bundle{b, b.as("worker"), b.as("operator"), b.as("elsewhere")} {
				for _, header := range []string{"X-None: none", "Cookie: " + strings.Repeat("x", services.MaxHeaderBytes)} {
					a := by.call(strings.ToUpper(method), where, "", header)
					_, otherwise := op.Responses["default"]
					if _, listed := op.Responses[strconv.Itoa(a.status)]; a.status >= 400 && !listed && !otherwise {
						t.Errorf("%s %s answers %d, and lists %v", method, where, a.status, slices.Sorted(maps.Keys(op.Responses)))
					}
				}
			}
		}
	}
}
