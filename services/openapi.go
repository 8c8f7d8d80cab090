package services

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"berth/migrations"
	"berth/statestore"
)

// init makes huma's own refusals look like ours, and has names of members match
// as they stand; huma has one hook for all APIs of a program.
func init() {
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError { return humaProblem(status, msg, errs...) }
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		p := humaProblem(status, msg, errs...)
		c := contextOf(ctx.Context())
		p.Instance = c.id
		c.server.metrics.refused(p.Code)
		if p.Code == "too_large" {
			limit := ctx.Operation().MaxBodyBytes
			size := max(c.request.ContentLength, limit)
			large := &statestore.TooLargeError{What: "body", Limit: uint64(limit), Size: uint64(size)} //nolint:gosec // not negative
			p.What, p.Limit, p.Size, p.Detail = large.What, large.Limit, large.Size, large.Error()
		}
		return p
	}
}

// routeDocument is the body of a route's answer, for the description: the
// handler renders it by hand.
type routeDocument struct {
	Instance  string             `json:"instance"`
	Address   string             `json:"address" doc:"ip:port, IPv6 in brackets"`
	Scheme    string             `json:"scheme,omitempty"`
	Rank      int                `json:"rank,omitempty"`
	Reason    string             `json:"reason" enum:"bound,new,lapsed,failover,replaced,over_bound,breaker,stateless,panic,none"`
	Jump      bool               `json:"jump,omitempty" doc:"the session leaves its last server"`
	Previous  string             `json:"previous,omitempty" doc:"that server"`
	Epoch     uint64             `json:"epoch,omitempty"`
	Version   uint64             `json:"version,omitempty"`
	New       bool               `json:"new,omitempty" doc:"there is nothing to load"`
	Handle    string             `json:"handle,omitempty" doc:"recovery handle, naming the instance and its fallbacks"`
	Fallbacks []fallbackDocument `json:"fallbacks,omitempty"`
	Snapshot  uint64             `json:"snapshot_version"`
	ValidMS   int64              `json:"valid_ms" doc:"how long the hint may be used"`
	Degraded  string             `json:"degraded,omitempty" enum:"store_unavailable,miss_budget,panic"`
}

type fallbackDocument struct {
	Instance string `json:"instance"`
	Address  string `json:"address"`
}

// param describes a text that a handler reads by itself.
func param(in, name, description string) *huma.Param {
	return &huma.Param{Name: name, In: in, Description: description, Schema: &huma.Schema{Type: huma.TypeString}}
}

// routeHeaders describes the headers of a route's answer, for gateways that read
// nothing else.
func routeHeaders() map[string]*huma.Header {
	headers := map[string]*huma.Header{}
	for name, description := range map[string]string{
		hdrRequestID: "id of the request",
		hdrInstance:  "instance",
		hdrEndpoint:  "address; with fallbacks a comma list, in order",
		hdrRank:      "data-parallel rank, where the instance registered one",
		hdrScheme:    "scheme, where the instance registered one",
		hdrReason:    "the rule that decided; none with status=always2xx, where it was refused",
		hdrJump:      "true when the session leaves its last server",
		hdrEpoch:     "epoch",
		hdrVersion:   "version; with the epoch: a worker whose own copy has both needs no recover",
		hdrNew:       "true when there is nothing to load: a first append with the handle binds the session",
		hdrHandle:    "recovery handle, to be passed on to the worker",
		hdrDegraded:  "why the answer lacks what it should know: store_unavailable, miss_budget or panic",
		hdrStatus:    "with status=always2xx, where it was refused: the status that it would have been",
	} {
		headers[name] = &huma.Header{Description: description, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	return headers
}

// tooLargeHeaders is what every call refuses ahead of its handler.
const tooLargeHeaders = "the request line and the headers are too large"

// unclearCall is what every call refuses, as well ahead of its handler.
const unclearCall = "the query cannot be read, or what comes once is given twice"

// refusal describes an answer that is a problem.
func (s *Server) refusal(description string) *huma.Response {
	problem := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	return &huma.Response{
		Description: description,
		Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: problem}},
	}
}

func (s *Server) describeRoute() {
	oapi := s.api.OpenAPI()
	schema := oapi.Components.Schemas.Schema(reflect.TypeFor[routeDocument](), true, "RouteAnswer")
	operation := func(method, path, id string) *huma.Operation {
		return &huma.Operation{
			Method: method, Path: path, OperationID: id, Tags: []string{"gateways"},
			Summary:     "Where should this request go?",
			Description: "Answers every method, also below /route/ (the remaining path and the body are ignored), the same in body and headers.",
			Parameters: []*huma.Param{
				param("query", "session", "session id; absent: stateless, no handle"),
				param("header", "X-Session-ID", "session id"),
				param("header", hdrHandle, "the newest handle the gateway holds; never answered with a lower floor. One that does not hold is as none, since the answer brings a new one"),
				param("query", "pool", "pool"), param("header", hdrPool, "pool"),
				param("query", "model", "pool by a model its policy lists"), param("header", hdrModel, "the same"),
				param("query", "key", "affinity key for the ring, instead of the session id"), param("header", hdrKey, "the same"),
				param("query", "exclude", "i3:connect,i4: do not choose these; after ':' connect (default), reset, 5xx, timeout or busy. Given more than once, it is one list"),
				param("header", hdrExclude, "the same; several lines are one list"),
				param("query", "subset", "only these endpoints, ip:port, a comma between them. Given more than once, it is one list"), param("header", hdrSubset, "the same; several lines are one list"),
				param("query", "fallbacks", "also answer that many further endpoints; 3 where more are asked for"),
				param("query", "status", "always2xx: answer a refusal as 200 with X-Berth-Reason: none and X-Berth-Status. There is no other word"),
				param("header", hdrTenant, "tenant, for tokens that may"),
			},
			Responses: map[string]*huma.Response{
				"200": {Description: "the hint", Headers: routeHeaders(), Content: map[string]*huma.MediaType{mediaJSON: {Schema: schema}}},
				"400": s.refusal("malformed"), "401": s.refusal("the token is missing or unknown"),
				"403": s.refusal("the token is not for this pool, or for no route"), "404": s.refusal("a pool never seen"),
				"429": s.refusal("the pool sheds new sessions"), "431": s.refusal(tooLargeHeaders), "503": s.refusal("nobody eligible"),
			},
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		suffix := map[string]string{http.MethodGet: "", http.MethodPost: "-post"}[method]
		oapi.AddOperation(operation(method, "/route", "route"+suffix))
		oapi.AddOperation(operation(method, "/v1/route", "route-v1"+suffix))
	}
}

// describeWrites gives appends and replaces the schema of the body that they
// read by themselves, and takes back what no call reads.
func (s *Server) describeWrites() {
	oapi := s.api.OpenAPI()
	schema := oapi.Components.Schemas.Schema(reflect.TypeFor[writeBody](), true, "Write")
	body := &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		mediaJSON:  {Schema: schema},
		mediaBytes: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}
	oapi.Paths["/v1/sessions/{id}/turns"].Post.RequestBody = body
	oapi.Paths["/v1/sessions/{id}"].Put.RequestBody = body
	// huma adds it for handlers that look at the bytes too.
	delete(oapi.Paths["/v1/instances/{id}"].Patch.RequestBody.Content, mediaBytes)
}

// recoveryAnswer and sessionAnswer are what the streams render by hand.
type recoveryAnswer struct {
	RecoveryDocument
	Meta  json.RawMessage `json:"meta,omitempty"`
	Turns []turnAnswer    `json:"turns" doc:"from base on"`
}

type sessionAnswer struct {
	SessionDocument
	Meta  json.RawMessage `json:"meta,omitempty"`
	Turns []turnAnswer    `json:"turns"`
}

// turnAnswer is a turn on its way out: value or base64.
type turnAnswer struct {
	N      uint64          `json:"n" doc:"place in the session, from 0"`
	Type   string          `json:"type" enum:"application/json,application/octet-stream"`
	Tokens uint64          `json:"tokens,omitempty"`
	Value  json.RawMessage `json:"value,omitempty" doc:"as the bytes that came"`
	Base64 []byte          `json:"base64,omitempty"`
}

// describeStreams gives the answers that are written turn by turn their schemas.
func (s *Server) describeStreams() {
	oapi := s.api.OpenAPI()
	describe := func(op *huma.Operation, body reflect.Type, name string) {
		schema := oapi.Components.Schemas.Schema(body, true, name)
		op.Responses["200"] = &huma.Response{
			Description: "the record and its turns; as lines, the record first, then a turn a line, and at the end {\"changed\": true} if the context was rewritten meanwhile",
			Content: map[string]*huma.MediaType{
				mediaJSON:  {Schema: schema},
				mediaLines: {Schema: &huma.Schema{Type: huma.TypeString}},
			},
		}
	}
	describe(oapi.Paths["/v1/recover"].Post, reflect.TypeFor[recoveryAnswer](), "Recovery")
	describe(oapi.Paths["/v1/sessions/{id}"].Get, reflect.TypeFor[sessionAnswer](), "Session")
}

// describeIdentity names what every call about a session reads beside its path and
// body; see sessionKey.
func (s *Server) describeIdentity() {
	for path, item := range s.api.OpenAPI().Paths {
		inPath := strings.HasPrefix(path, "/v1/sessions/{id}")
		if !inPath && path != "/v1/recover" && path != "/v1/outcomes" && path != "/v1/rebalances" {
			continue
		}
		for _, op := range operations(item) {
			if inPath {
				op.Parameters = append(op.Parameters, param("header", "X-Session-ID", "the session id, where the path says -"))
			}
			op.Parameters = append(op.Parameters,
				param("header", hdrTenant, "tenant, for tokens that may"),
				param("query", "pool", "pool"), param("header", hdrPool, "pool"),
				param("query", "model", "pool by a model its policy lists"), param("header", hdrModel, "the same"))
		}
	}
}

// describeTenants names the header that tells whose sessions a call about all of them
// means; see listedTenant and eraseSessions.
func (s *Server) describeTenants() {
	sessions := s.api.OpenAPI().Paths["/v1/sessions"]
	sessions.Get.Parameters = append(sessions.Get.Parameters, param("header", hdrTenant, "tenant, for tokens that may; absent: all that the token sees"))
	sessions.Delete.Parameters = append(sessions.Delete.Parameters, param("header", hdrTenant, "tenant, for tokens that may"))
}

// describeStatuses names statuses that one call answers besides its usual one.
func (s *Server) describeStatuses() {
	paths := s.api.OpenAPI().Paths
	for _, action := range []string{"pause", "resume", "cancel"} {
		op := paths["/v1/jobs/{id}/"+action].Post
		op.Responses["202"] = op.Responses["200"]
	}
	s.describeJobs(paths["/v1/drains"].Post, paths["/v1/rebalances"].Post)
	paths["/v1/jobs/{id}/events"].Get.Responses["200"] = &huma.Response{
		Description: "events named progress, and a last one named end; the data of each is the job",
		Content:     map[string]*huma.MediaType{mediaEvents: {Schema: &huma.Schema{Type: huma.TypeString}}},
	}
}

// describeJobs gives the calls that begin a job, or only tell what it would do, the
// schemas of both.
func (s *Server) describeJobs(ops ...*huma.Operation) {
	schemas := s.api.OpenAPI().Components.Schemas
	job := schemas.Schema(reflect.TypeFor[jobDocument](), true, "JobDocument")
	plan := schemas.Schema(reflect.TypeFor[migrations.Preview](), true, "Preview")
	for _, op := range ops {
		answer := func(description string, schema *huma.Schema) *huma.Response {
			return &huma.Response{
				Description: description, Headers: op.Responses["200"].Headers,
				Content: map[string]*huma.MediaType{mediaJSON: {Schema: schema}},
			}
		}
		op.Responses["202"] = answer("the job that was created", job)
		op.Responses["200"] = answer("the job, if it existed; with dry_run, what it would do", &huma.Schema{OneOf: []*huma.Schema{job, plan}})
	}
}
