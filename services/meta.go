package services

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
)

func (s *Server) livez(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "alive") }

// readyz is ready once the fleet was seen, and stays so without the store;
// ?store=1 asks for both. It fails first at shutdown.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.stopping.Load():
		s.refuse(w, r, newProblem("shutting_down", "this process is stopping"))
	case !s.fleet.now().loaded:
		s.refuse(w, r, newProblem("store_unavailable", "the fleet was not seen yet"))
	case queryOf(r.Context()).Get("store") == "1":
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if _, err := s.store.Describe(ctx); err != nil {
			s.refuse(w, r, fmt.Errorf("describe the store: %w", err))
			return
		}
		plain(w, http.StatusOK, "ready, and the store answers")
	default:
		plain(w, http.StatusOK, "ready")
	}
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, text) // the client is gone if this fails
}

// apiConfig is the OpenAPI document's head; the document and its page are served
// by this package, without scripts from elsewhere.
func (s *Server) apiConfig() huma.Config {
	config := huma.DefaultConfig("Berth", s.options.Version)
	config.Info.Description = "Remembers which instance holds each LLM session's KV cache, keeps the context outside it, and moves sessions before an instance goes away."
	config.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.CreateHooks = nil
	config.Formats = strictFormats
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer"},
		"token":  {Type: "apiKey", In: "header", Name: hdrToken},
	}
	config.Security = []map[string][]string{{"bearer": {}}, {"token": {}}, {}}
	return config
}

func (s *Server) openapi(w http.ResponseWriter, r *http.Request) {
	doc, err := s.api.OpenAPI().MarshalJSON()
	if err != nil {
		s.refuse(w, r, fmt.Errorf("render the API's description: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/vnd.oai.openapi+json")
	_, _ = w.Write(doc) // the client is gone if this fails
}

var pages = template.Must(template.New("pages").Parse(`
{{define "head"}}<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.}}</title><style>
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
code,td.m{font-family:ui-monospace,monospace;font-size:.9em}table{border-collapse:collapse;width:100%}
td,th{padding:.35rem .6rem;border-bottom:1px solid #d8dee4;text-align:left;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}td,th{border-color:#30363d}a{color:#58a6ff}}
</style>{{end}}
{{define "docs"}}{{template "head" "Berth API"}}<h1>Berth API</h1>
<p>The machine-readable form is <a href="/openapi.json">/openapi.json</a> (OpenAPI 3.1). What a refusal means is told at
<code>/problems/&lt;code&gt;</code>.</p>
{{range .Groups}}<h2>{{.Name}}</h2><table>{{range .Calls}}<tr><td class="m">{{.Method}}</td><td class="m">{{.Path}}</td><td>{{.Summary}}</td></tr>{{end}}</table>{{end}}
<h2>Refusals</h2><table>{{range .Problems}}<tr><td class="m">{{.Status}}</td><td class="m"><a href="/problems/{{.Code}}">{{.Code}}</a></td><td>{{.Title}}</td></tr>{{end}}</table>
{{end}}
{{define "problem"}}{{template "head" .Code}}<h1><code>{{.Code}}</code></h1><p>Status {{.Status}}. {{.Title}}.</p>
<h2>What the caller does</h2><p>{{.Advice}}</p><p><a href="/docs">All calls and refusals</a></p>{{end}}
`))

type docCall struct{ Method, Path, Summary string }

type docGroup struct {
	Name  string
	Calls []docCall
}

type docProblem struct {
	Code, Title, Advice string
	Status              int
}

// docs is the API's page, made from the same document that /openapi.json serves.
func (s *Server) docs(w http.ResponseWriter, _ *http.Request) {
	groups := map[string]*docGroup{}
	for path, item := range s.api.OpenAPI().Paths {
		for method, op := range operations(item) {
			name := op.Tags[0]
			if groups[name] == nil {
				groups[name] = &docGroup{Name: name}
			}
			groups[name].Calls = append(groups[name].Calls, docCall{method, path, op.Summary})
		}
	}
	page := struct {
		Groups   []docGroup
		Problems []docProblem
	}{}
	for _, name := range []string{"gateways", "workers", "operators", "process"} {
		if g := groups[name]; g != nil {
			slices.SortFunc(g.Calls, func(a, b docCall) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
			page.Groups = append(page.Groups, *g)
		}
	}
	page.Problems = allProblems()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = pages.ExecuteTemplate(w, "docs", page) // the client is gone if this fails
}

// allProblems lists every refusal by status and code.
func allProblems() []docProblem {
	list := make([]docProblem, 0, len(problems))
	for code, k := range problems {
		list = append(list, docProblem{Code: code, Title: k.title, Advice: k.advice, Status: k.status})
	}
	slices.SortFunc(list, func(a, b docProblem) int {
		if a.Status != b.Status {
			return a.Status - b.Status
		}
		return strings.Compare(a.Code, b.Code)
	})
	return list
}

// operations lists the calls of a path by method.
func operations(item *huma.PathItem) map[string]*huma.Operation {
	all := map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post,
		http.MethodDelete: item.Delete, http.MethodPatch: item.Patch,
	}
	for method, op := range all {
		if op == nil {
			delete(all, method)
		}
	}
	return all
}

func (s *Server) explainProblem(w http.ResponseWriter, r *http.Request) {
	code := chi.URLParam(r, "code")
	kind, ok := problems[code]
	if !ok {
		s.refuse(w, r, newProblem("not_found", "no refusal has this code"))
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	page := docProblem{Code: code, Title: kind.title, Advice: kind.advice, Status: kind.status}
	_ = pages.ExecuteTemplate(w, "problem", page) // the client is gone if this fails
}

// describePlainCalls adds to the document what plain handlers answer.
func (s *Server) describePlainCalls() {
	text := func(description string) *huma.Response {
		return &huma.Response{Description: description, Content: map[string]*huma.MediaType{"text/plain": {}}}
	}
	add := func(path, id, summary string, tags string, ok *huma.Response) *huma.Operation {
		op := &huma.Operation{
			Method: http.MethodGet, Path: path, OperationID: id, Summary: summary, Tags: []string{tags},
			Responses: map[string]*huma.Response{"200": ok, "400": s.refusal(unclearCall), "431": s.refusal(tooLargeHeaders)},
		}
		s.api.OpenAPI().AddOperation(op)
		return op
	}
	add("/livez", "livez", "The process lives", "process", text("it does"))
	ready := add("/readyz", "readyz", "The process can answer", "process", text("it can"))
	ready.Responses["503"] = s.refusal("it has not seen the fleet yet, or is stopping, or with store=1 the store does not answer")
	ready.Parameters = []*huma.Param{
		param("query", "store", "1: also ask whether the store answers; without it the process stays ready while the store is away"),
	}
	measured := add("/metrics", "metrics", "Metrics for Prometheus", "process", text("text format"))
	measured.Responses["401"] = s.refusal("the token is missing or unknown")
	add("/openapi.json", "openapi", "This document", "process", &huma.Response{
		Description: "OpenAPI 3.1", Content: map[string]*huma.MediaType{"application/vnd.oai.openapi+json": {}},
	})
	add("/docs", "docs", "This document as a page", "process", &huma.Response{
		Description: "a page", Content: map[string]*huma.MediaType{"text/html": {}},
	})
	explained := add("/problems/{code}", "problem", "What a refusal means", "process", &huma.Response{
		Description: "a page", Content: map[string]*huma.MediaType{"text/html": {}},
	})
	explained.Responses["404"] = s.refusal("no refusal has this code")
	explained.Parameters = []*huma.Param{{Name: "code", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}}}
	s.describeRoute()
	s.describeWrites()
	s.describeStreams()
	s.describeIdentity()
	s.describeTenants()
	s.describeStatuses()
}
