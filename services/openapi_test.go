package services_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
)

// document is the served description, as far as the tests look into it.
type document struct {
	OpenAPI    string
	Info       struct{ Title, Version string }
	Paths      map[string]map[string]operation
	Components struct {
		Schemas         map[string]any
		SecuritySchemes map[string]any
	}
}

type operation struct {
	OperationID string
	Summary     string
	Tags        []string
	Parameters  []struct {
		Name, In string
		Required bool
		Schema   any
	}
	RequestBody *struct{ Content map[string]any }
	Responses   map[string]struct {
		Description string
		Headers     map[string]struct{ Schema any }
		Content     map[string]struct{ Schema any }
	}
}

func (b *bundle) document() (doc document, raw any) {
	b.t.Helper()
	a := b.call("GET", "/openapi.json", "").want(200)
	if ct := a.header.Get("Content-Type"); ct != "application/vnd.oai.openapi+json" {
		b.t.Errorf("content type %q", ct)
	}
	for _, into := range []any{&doc, &raw} {
		if err := json.Unmarshal(a.body, into); err != nil {
			b.t.Fatal(err)
		}
	}
	return doc, raw
}

// Whatever the router answers is described, and whatever is described answers.
func TestTheDocumentIsTheAPI(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	doc, _ := b.document()
	described := map[string]bool{}
	for path, item := range doc.Paths {
		for method := range item {
			described[strings.ToUpper(method)+" "+path] = true
		}
	}
	err := chi.Walk(b.server.Routes(), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method != http.MethodHead && !described[method+" "+route] {
			t.Errorf("%s %s is not described", method, route)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	placeholders := regexp.MustCompile(`\{[a-z]+\}`)
	for call := range described {
		method, path, _ := strings.Cut(call, " ")
		a := b.call(method, placeholders.ReplaceAllString(path, "none"), "")
		if a.status == 405 || a.status == 404 && strings.Contains(string(a.body), "no call has this path") || a.status >= 500 {
			t.Errorf("%s answers %d %s", call, a.status, a.body)
		}
	}
}

func TestTheDocumentIsOpenAPI31(t *testing.T) {
	t.Parallel()
	doc, raw := setup(t).document()
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") || doc.Info.Title == "" || doc.Info.Version == "" || len(doc.Components.SecuritySchemes) == 0 {
		t.Errorf("head: %q %+v", doc.OpenAPI, doc.Info)
	}
	ids := map[string]string{}
	for path, item := range doc.Paths {
		for method, op := range item {
			where := strings.ToUpper(method) + " " + path
			if other := ids[op.OperationID]; other != "" || op.OperationID == "" {
				t.Errorf("%s and %s have the id %q", where, other, op.OperationID)
			}
			ids[op.OperationID] = where
			checkOperation(t, where, path, op)
		}
	}
	checkRefs(t, raw, doc.Components.Schemas)
	for name, schema := range doc.Components.Schemas {
		checkSchema(t, name, schema)
	}
}

func checkOperation(t *testing.T, where, path string, op operation) {
	t.Helper()
	if op.Summary == "" || len(op.Tags) != 1 {
		t.Errorf("%s: summary %q, tags %v", where, op.Summary, op.Tags)
	}
	inPath := map[string]bool{}
	seen := map[string]bool{}
	for _, p := range op.Parameters {
		if key := p.In + " " + strings.ToLower(p.Name); seen[key] {
			t.Errorf("%s: parameter %s twice", where, key)
		} else {
			seen[key] = true
		}
		if p.Schema == nil || !slices.Contains([]string{"path", "query", "header"}, p.In) {
			t.Errorf("%s: parameter %+v", where, p)
		}
		if p.In == "header" && slices.Contains([]string{"accept", "content-type", "authorization"}, strings.ToLower(p.Name)) {
			t.Errorf("%s: parameter %s, which OpenAPI ignores", where, p.Name)
		}
		if p.In == "path" {
			inPath[p.Name] = p.Required
		}
	}
	want := map[string]bool{}
	for _, m := range regexp.MustCompile(`\{([a-z]+)\}`).FindAllStringSubmatch(path, -1) {
		want[m[1]] = true
	}
	if !maps.Equal(inPath, want) {
		t.Errorf("%s: path parameters %v, want %v", where, inPath, want)
	}
	good := false
	for status, r := range op.Responses {
		good = good || strings.HasPrefix(status, "2")
		if r.Description == "" {
			t.Errorf("%s: %s has no description", where, status)
		}
		for media, content := range r.Content {
			if content.Schema == nil && strings.Contains(media, "json") && !strings.Contains(media, "openapi") {
				t.Errorf("%s: %s of %s has no schema", where, media, status)
			}
		}
		refusal := !strings.HasPrefix(status, "2")
		if _, ok := r.Content["application/problem+json"]; refusal && !ok {
			t.Errorf("%s: %s is no problem+json: %v", where, status, slices.Collect(maps.Keys(r.Content)))
		}
		if status == "200" && len(r.Content) == 0 {
			t.Errorf("%s: nothing says what 200 answers", where)
		}
	}
	if !good {
		t.Errorf("%s: no answer but refusals: %v", where, op.Responses)
	}
}

// checkRefs follows every reference to a schema that is there.
func checkRefs(t *testing.T, v any, schemas map[string]any) {
	t.Helper()
	switch x := v.(type) {
	case map[string]any:
		if ref, ok := x["$ref"].(string); ok {
			name, local := strings.CutPrefix(ref, "#/components/schemas/")
			if _, there := schemas[name]; !local || !there {
				t.Errorf("%s leads nowhere", ref)
			}
		}
		for _, inner := range x {
			checkRefs(t, inner, schemas)
		}
	case []any:
		for _, inner := range x {
			checkRefs(t, inner, schemas)
		}
	}
}

// checkSchema holds a schema to what it says itself.
func checkSchema(t *testing.T, where string, v any) {
	t.Helper()
	schema, ok := v.(map[string]any)
	if !ok {
		if _, flag := v.(bool); !flag {
			t.Errorf("%s is no schema: %v", where, v)
		}
		return
	}
	types, listed := schema["type"].([]any)
	if one, ok := schema["type"].(string); ok {
		types, listed = []any{one}, true
	}
	for _, name := range types {
		if !slices.Contains([]any{"object", "array", "string", "number", "integer", "boolean", "null"}, name) {
			t.Errorf("%s has type %v", where, name)
		}
	}
	if _, is := schema["type"]; is && !listed {
		t.Errorf("%s has type %v", where, schema["type"])
	}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, there := properties[fmt.Sprint(name)]; !there {
			t.Errorf("%s requires %v, which it does not have", where, name)
		}
	}
	for name, inner := range properties {
		checkSchema(t, where+"."+name, inner)
	}
	for _, inner := range []string{"items", "additionalProperties"} {
		if s, there := schema[inner]; there {
			checkSchema(t, where+"."+inner, s)
		}
	}
}

// Every answer of a journey is what the document says: no member is missing, none
// is unknown.
func TestAnswersAreAsDescribed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w1, w2 := b.worker("i1"), b.worker("i2")
	doc, _ := b.document()
	owner, other := b.open("s", w1, w2)
	hint := b.route("s", "&fallbacks=1&exclude="+owner.id).want(200)
	check := func(method, path string, status string, a answer) {
		t.Helper()
		schema := doc.Paths[path][method].Responses[status].Content["application/json"].Schema
		var v any
		if err := json.Unmarshal(a.body, &v); err != nil {
			t.Fatal(err)
		}
		checkValue(t, method+" "+path, doc.Components.Schemas, schema, v)
	}
	check("get", "/route", "200", hint)
	owner.call("PUT", "/v1/sessions/s/kv", fmt.Sprintf(`{"instance":%q,"incarnation":%q,"placements":[{"tier":"gpu","tokens":1,"version":1,"ranks":{"have":1,"want":1}}]}`, owner.id, owner.incarnation)).want(204)
	check("post", "/v1/recover", "200", other.recover("s", hint.str("handle"), "claim").want(200))
	owner.append("s", "late", b.routeHandle("s", b.floor("s")), `1`).want(409)
	check("post", "/v1/recover", "200", other.recover("s", "", "claim").want(200))
	check("get", "/v1/sessions/{id}", "200", b.call("GET", "/v1/sessions/s", "").want(200))
	check("post", "/v1/sessions/{id}/turns", "200", other.append("s", "next", b.route("s").str("handle"), `1`).want(200))
	check("get", "/v1/sessions", "200", b.call("GET", "/v1/sessions", "").want(200))
	check("get", "/v1/sessions/{id}/history", "200", b.call("GET", "/v1/sessions/s/history", "").want(200))
	check("get", "/v1/instances", "200", b.call("GET", "/v1/instances", "").want(200))
	check("get", "/v1/instances/{id}", "200", b.call("GET", "/v1/instances/i1", "").want(200))
	check("post", "/v1/instances/{id}/heartbeat", "200", w1.beat(1))
	check("get", "/v1/ring", "200", b.call("GET", "/v1/ring", "").want(200))
	check("get", "/v1/snapshot", "200", b.call("GET", "/v1/snapshot?sessions=hash", "").want(200))
	check("get", "/v1/pools", "200", b.call("GET", "/v1/pools", "").want(200))
	plan := doc.Components.Schemas["Preview"]
	var foreseen any
	if err := json.Unmarshal(b.call("POST", "/v1/drains", `{"instances":["i1"],"dry_run":true}`).want(200).body, &foreseen); err != nil {
		t.Fatal(err)
	}
	checkValue(t, "a dry run", doc.Components.Schemas, plan, foreseen)
	check("post", "/v1/rebalances", "202", b.call("POST", "/v1/rebalances", `{"sessions":["s"]}`).want(202))
	check("post", "/v1/drains", "202", b.call("POST", "/v1/drains", `{"instances":["i1"]}`).want(202))
	check("get", "/v1/jobs", "200", b.call("GET", "/v1/jobs", "").want(200))
	check("delete", "/v1/sessions/{id}", "200", b.call("DELETE", "/v1/sessions/s", "").want(200))
}

// Every header of a route's answers is described, and each that is described comes.
func TestHeadersOfARouteAreAsDescribed(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t)
	w1, w2 := b.worker("i1", `"rank":0`, `"scheme":"http"`), b.worker("i2", `"rank":0`, `"scheme":"http"`)
	described := map[string]bool{}
	doc, _ := b.document()
	for name := range doc.Paths["/route"]["get"].Responses["200"].Headers {
		described[name] = false
	}
	look := func(a answer) {
		for name := range a.want(200).header {
			if _, known := described[name]; !known && strings.HasPrefix(name, "X-") {
				t.Errorf("%s is not described", name)
			}
			described[name] = true
		}
	}
	owner, _ := b.open("s", w1, w2)
	look(b.route("s", "&exclude="+owner.id))
	look(b.route("new"))
	look(b.route("s", "&exclude=i1,i2&status=always2xx"))
	store.fail(away)
	look(b.route("another"))
	for name, came := range described {
		if !came {
			t.Errorf("%s did not come", name)
		}
	}
}

// checkValue holds a JSON value to a schema: its members, and the types of all.
func checkValue(t *testing.T, where string, schemas map[string]any, schema, v any) {
	t.Helper()
	s, _ := schema.(map[string]any)
	if ref, ok := s["$ref"].(string); ok {
		checkValue(t, where, schemas, schemas[strings.TrimPrefix(ref, "#/components/schemas/")], v)
		return
	}
	properties, closed := s["properties"].(map[string]any)
	switch x := v.(type) {
	case map[string]any:
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, there := x[fmt.Sprint(name)]; !there {
				t.Errorf("%s lacks %v", where, name)
			}
		}
		for name, inner := range x {
			if p, known := properties[name]; known {
				checkValue(t, where+"."+name, schemas, p, inner)
			} else if closed {
				t.Errorf("%s has %s, which is not described", where, name)
			}
		}
	case []any:
		for i, inner := range x {
			checkValue(t, fmt.Sprintf("%s[%d]", where, i), schemas, s["items"], inner)
		}
	}
	if want, ok := s["type"]; ok && !slices.Contains(typesOf(v), fmt.Sprint(want)) && !strings.Contains(fmt.Sprint(want), typesOf(v)[0]) {
		t.Errorf("%s is %v, described as %v", where, v, want)
	}
}

func typesOf(v any) []string {
	switch x := v.(type) {
	case nil:
		return []string{"null"}
	case bool:
		return []string{"boolean"}
	case string:
		return []string{"string"}
	case []any:
		return []string{"array"}
	case float64:
		if x == float64(int64(x)) {
			return []string{"integer", "number"}
		}
		return []string{"number"}
	}
	return []string{"object"}
}
