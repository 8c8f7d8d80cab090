package services_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// The bodies that most callers send, and the most read answers, say of each member
// what it means.
func TestMembersOfTheMostUsedBodiesAreDescribed(t *testing.T) {
	t.Parallel()
	doc, _ := setup(t).document()
	for path, methods := range map[string][]string{
		"/v1/instances/{id}":           {"put", "patch"},
		"/v1/instances/{id}/heartbeat": {"post"},
		"/v1/recover":                  {"post"},
		"/v1/sessions/{id}/turns":      {"post"},
		"/v1/sessions/{id}/finish":     {"post"},
		"/v1/drains":                   {"post"},
		"/v1/rebalances":               {"post"},
	} {
		for _, method := range methods {
			media, _ := doc.Paths[path][method].RequestBody.Content["application/json"].(map[string]any)
			described(t, method+" "+path, doc.Components.Schemas, media["schema"])
		}
	}
	for _, name := range []string{"RecoveryAnswer", "JobDocument"} {
		whole, _ := doc.Components.Schemas[name].(map[string]any)
		properties, _ := whole["properties"].(map[string]any)
		if len(properties) == 0 {
			t.Errorf("%s is not in %v", name, slices.Sorted(maps.Keys(doc.Components.Schemas)))
		}
		for member, schema := range properties {
			if s, _ := schema.(map[string]any); s["description"] == nil && s["$ref"] == nil && member != "meta" {
				t.Errorf("%s.%s is not described", name, member)
			}
		}
	}
}

// described follows a schema's members. Those that are schemas of their own are
// described there.
func described(t *testing.T, where string, schemas map[string]any, v any) {
	t.Helper()
	s, ok := v.(map[string]any)
	if !ok {
		t.Errorf("%s has no schema", where)
		return
	}
	if ref, ok := s["$ref"].(string); ok {
		described(t, where, schemas, schemas[strings.TrimPrefix(ref, "#/components/schemas/")])
		return
	}
	properties, _ := s["properties"].(map[string]any)
	for name, inner := range properties {
		member, _ := inner.(map[string]any)
		if name == "$schema" || name == "compat" {
			continue // the latter is kv/1's, and open
		}
		if member["$ref"] != nil {
			described(t, where+"."+name, schemas, inner)
		} else if member["description"] == nil {
			t.Errorf("%s.%s is not described", where, name)
		}
	}
}

func TestCallsClaimOnlyWhatTheyRead(t *testing.T) {
	t.Parallel()
	doc, _ := setup(t).document()
	for path, item := range doc.Paths {
		for method, op := range item {
			if op.RequestBody == nil || method != "get" && strings.HasPrefix(path, "/v1/sessions/{id}") {
				continue
			}
			if media := slices.Collect(maps.Keys(op.RequestBody.Content)); !slices.Equal(media, []string{"application/json"}) {
				t.Errorf("%s %s says that it reads %v", method, path, media)
			}
		}
	}
	ready := doc.Paths["/readyz"]["get"]
	if len(ready.Parameters) != 1 || ready.Parameters[0].Name != "store" || ready.Parameters[0].In != "query" {
		t.Errorf("/readyz takes %v", ready.Parameters)
	}
}
