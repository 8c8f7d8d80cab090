package services

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"berth/migrations"
	"berth/statestore"
	"berth/statestore/handle"
)

// Problem is a refusal: application/problem+json of RFC 9457. Its code is
// stable; what the caller does about it stands at /problems/{code}.
type Problem struct {
	Type   string `json:"type" doc:"/problems/ and the code" example:"/problems/not_owner"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code" doc:"stable name of the refusal" example:"not_owner"`
	Detail string `json:"detail,omitempty"`
	// Instance is the id of the request, as RFC 9457 has it; the inference
	// instance is Owner.
	Instance string `json:"instance,omitempty" doc:"id of the request"`

	Why        string        `json:"why,omitempty"`
	Owner      *OwnerRef     `json:"owner,omitempty" doc:"who may do it instead"`
	Parked     *bool         `json:"parked,omitempty"`
	Version    *uint64       `json:"version,omitempty"`
	Turns      *uint64       `json:"turns,omitempty"`
	Have       *Have         `json:"have,omitempty"`
	Want       *Want         `json:"want,omitempty"`
	What       string        `json:"what,omitempty"`
	Limit      uint64        `json:"limit,omitempty"`
	Size       uint64        `json:"size,omitempty"`
	Op         string        `json:"op,omitempty"`
	Stored     bool          `json:"stored,omitempty"`
	Durability *Durability   `json:"durability,omitempty"`
	Candidates []string      `json:"candidates,omitempty" doc:"instances that were considered"`
	Sessions   *int          `json:"sessions,omitempty"`
	Errors     []FieldErrors `json:"errors,omitempty" doc:"what is wrong where, for invalid input"`

	retryAfter time.Duration
	cause      error
}

// OwnerRef names the inference instance that owns a session.
type OwnerRef struct {
	Instance string `json:"instance"`
	Address  string `json:"address,omitempty"`
	Epoch    uint64 `json:"epoch"`
}

// Have is what the store holds of a session that it should hold more of.
type Have struct {
	Version uint64 `json:"version"`
	Turns   uint64 `json:"turns"`
}

// Want is what the caller was promised.
type Want struct {
	Version uint64 `json:"version"`
}

// FieldErrors is one thing that is wrong with the input.
type FieldErrors struct {
	Location string `json:"location,omitempty"`
	Message  string `json:"message"`
}

// problemKind is what is fixed about a code.
type problemKind struct {
	status int
	title  string
	advice string // what the caller does
}

// problems is every refusal of the API.
var problems = map[string]problemKind{
	"malformed":          {400, "The request cannot be read", "Correct the syntax of the body, the query, a header or the id."},
	"unauthorized":       {401, "A token is needed", "Send the service's token in Authorization (Bearer) or X-Berth-Token."},
	"forbidden":          {403, "The token does not allow this", "Use a token with the role, tenant, pool or instance that this call needs."},
	"bad_handle":         {403, "The handle is not good for this", "Recover without it, or ask /route for a new one. `why` is forged, unknown_key, expired, purpose or other_session."},
	"not_found":          {404, "There is no such thing", "Check the id; sessions of other tenants look like this too."},
	"unknown_pool":       {404, "The pool was never seen, or was deleted", "A pool exists from its first instance or policy until it is deleted."},
	"unknown_instance":   {404, "The instance is not registered", "Register it again: PUT /v1/instances/{id}."},
	"method_not_allowed": {405, "The method is not allowed here", "See /docs for the calls of this path."},
	"timeout":            {408, "The body came too slowly", "Send it again."},
	"not_owner":          {409, "The caller does not own the session at the epoch of its handle", "Forward the request to the owner, or answer 503 with its address to the gateway. A parked append waits for the owner to adopt it. Where owner names the caller itself, the session has gone on to a later epoch of its own (another request began it, or it went away and came back): do not forward; repeat the same op with the newest handle, which the answer to the last write, recover or /route has, and what was parked under that op is adopted."},
	"version_conflict":   {409, "The append was made for another version", "Recover with mode read and have, then append with the same op and the new handle."},
	"op_forgotten":       {409, "The op is too old to tell whether it was stored", "Read the session and compare before writing again."},
	"stale_handle":       {409, "The session cannot be taken with this handle, or without one", "Ask /route again, and claim on the instance that its handle names; or act as for not_owner. Without a handle a claim takes only a session whose owner is none, gone or down."},
	"store_behind":       {409, "The store holds less than was promised, or another history", "Repeat the lost writes, oldest first, each with its own op and handle, if you hold them; else claim with accept_lost: true."},
	"changed":            {409, "The context was rewritten while it was read", "Load it again."},
	"stale_incarnation":  {409, "The instance has registered again since", "Stop: another boot of this instance has taken over."},
	"no_target":          {409, "No other instance could take the sessions", "Add an instance, or drain with mode detach."},
	"has_sessions":       {409, "Sessions still live there", "Drain the instance first, or delete it with force=true. For a pool without instances, wait until the sessions have been idle for affinity_idle_ms, or delete them."},
	"wrong_state":        {409, "The instance, job or pool is not in a state for this", "Read its state, and the job that drains it, and decide again. A pool is deleted after its instances and jobs."},
	"policy_enforced":    {409, "A file decides the policy", "Change the file, and restart the processes that enforce it. Calls may change the policy half a minute after the last of them ended, or was restarted without the pool."},
	"expired":            {410, "The session expired", "Start anew with the handle of a new /route."},
	"deleted":            {410, "The session was deleted", "Start anew with the handle of a new /route and recreate: true."},
	"too_large":          {413, "Too large", "Shorten the context with a replace or with base. Nothing was stored."},
	"unsupported_media":  {415, "The content type is not known here", "Send application/json, or application/octet-stream for raw turns."},
	"op_reused":          {422, "The op was used with other content", "Take a new op for new content."},
	"invalid":            {422, "The request is well-formed but cannot be right", "Correct the members named in errors."},
	"busy":               {429, "The pool sheds new sessions", "Wait as long as Retry-After says."},
	"headers_too_large":  {431, "The request line and the headers are too large", "Send fewer and shorter headers, and no cookies. Nothing was done."},
	"internal":           {500, "Berth failed", "Report the request id with the log of that moment."},
	"outcome_unknown":    {503, "The store did not say whether it stored the write", "Repeat the same op."},
	"not_durable":        {503, "Stored, but not as durably as the pool demands", "Repeat the same op: it waits again."},
	"store_unavailable":  {503, "The store is not reachable", "Repeat the same op after Retry-After."},
	"not_eligible":       {503, "No instance may serve this now", "Try again after Retry-After."},
	"shutting_down":      {503, "This process is stopping", "Ask another one."},
	"store_full":         {507, "The store is full", "Back off. Loads, routes, deletes and moves still work."},
}

// newProblem begins a refusal; a code outside the table is a programmer's mistake
// and shows as internal.
func newProblem(code, detail string) *Problem {
	kind, ok := problems[code]
	if !ok {
		code, kind = "internal", problems["internal"]
	}
	p := &Problem{Type: "/problems/" + code, Title: kind.title, Status: kind.status, Code: code, Detail: detail}
	if kind.status == http.StatusServiceUnavailable || kind.status == http.StatusTooManyRequests {
		p.retryAfter = time.Second
	}
	return p
}

// Error makes a problem an error.
func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// Unwrap is the error that was refused.
func (p *Problem) Unwrap() error { return p.cause }

// GetStatus is for huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is for huma.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders is for huma: what a client must wait for, and what it lacks.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer") // RFC 9110, 11.6.1
	}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
	}
	return h
}

// invalid is a refusal of one member of the input.
func invalid(location, message string) *Problem {
	p := newProblem("invalid", location+": "+message)
	p.Errors = []FieldErrors{{Location: location, Message: message}}
	return p
}

// badID is the refusal of an id that cannot be one: malformed wherever it stands, as
// the id of a path is.
func badID(location string, err error) *Problem {
	why := reason(err, statestore.ErrInvalid)
	p := newProblem("malformed", location+": "+why)
	p.Errors = []FieldErrors{{Location: location, Message: why}}
	return p
}

// problem turns any error into the refusal that the API documents.
func (s *Server) problem(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	p = s.storeProblem(err)
	p.cause = err
	if p.Code == "internal" {
		p.Detail = "" // an unexpected error may quote anything
	}
	return p
}

// storeProblem maps the errors of the store and the handle codec.
func (s *Server) storeProblem(err error) *Problem {
	if p := s.ownershipProblem(err); p != nil {
		return p
	}
	if p := writeProblem(err); p != nil {
		return p
	}
	var bad *handle.Error
	if errors.As(err, &bad) {
		p := newProblem("bad_handle", bad.Error())
		p.Why = string(bad.Why)
		return p
	}
	for _, m := range [...]struct {
		err  error
		code string
	}{
		{statestore.ErrInvalid, "malformed"}, // an id; what stands in a body is refused where it is read
		{statestore.ErrNotFound, "not_found"},
		{statestore.ErrChanged, "changed"},
		{statestore.ErrFull, "store_full"},
		{statestore.ErrUnavailable, "store_unavailable"},
		{statestore.ErrUnknownInstance, "unknown_instance"},
		{statestore.ErrStaleIncarnation, "stale_incarnation"},
		{context.DeadlineExceeded, "store_unavailable"},
		{context.Canceled, "store_unavailable"},
	} {
		if !errors.Is(err, m.err) {
			continue
		}
		if problems[m.code].status >= http.StatusInternalServerError {
			// What failed inside is for the log: it may name hosts and keys.
			return newProblem(m.code, m.err.Error())
		}
		return newProblem(m.code, reason(err, m.err))
	}
	return newProblem("internal", err.Error())
}

// reason is what an error says of the refused thing itself, without the acts around
// it, which the caller knows. That it is invalid, its code says.
func reason(err, sentinel error) string {
	for inner := errors.Unwrap(err); inner != nil && !sameError(inner, sentinel); inner = errors.Unwrap(err) {
		err = inner
	}
	if sameError(sentinel, statestore.ErrInvalid) {
		return strings.TrimSuffix(err.Error(), ": "+sentinel.Error())
	}
	return err.Error()
}

// sameError compares errors themselves, not what they wrap.
func sameError(a, b error) bool { return a == b } //nolint:errorlint // see above

// inBody is the refusal of a member of the body whose value the store's rules never
// accept; other errors stay as they are.
func inBody(member string, err error) error {
	if !errors.Is(err, statestore.ErrInvalid) {
		return err
	}
	return invalid("body."+member, reason(err, statestore.ErrInvalid))
}

// ownershipProblem maps refusals that name who may act instead, and those of jobs.
func (s *Server) ownershipProblem(err error) *Problem {
	var notOwner *statestore.NotOwnerError
	var stale *statestore.StaleHandleError
	var state *statestore.InstanceChangedError
	var used *statestore.PoolInUseError
	var busy *migrations.BusyError
	var draining *migrations.DrainedError
	var over *migrations.EndedJobError
	var none *migrations.NoTargetError
	var wrong *migrations.InvalidError
	switch {
	case errors.As(err, &notOwner):
		p := newProblem("not_owner", notOwner.Error())
		p.Why, p.Parked = string(notOwner.Why), &notOwner.Parked
		p.Owner = s.ownerRef(notOwner.Owner, notOwner.Epoch)
		return p
	case errors.As(err, &stale):
		p := newProblem("stale_handle", stale.Error())
		p.Owner = s.ownerRef(stale.Owner, stale.Epoch)
		return p
	case errors.As(err, &state):
		return newProblem("wrong_state", state.Error())
	case errors.As(err, &used):
		return newProblem("wrong_state", used.Error())
	case errors.As(err, &busy):
		return newProblem("wrong_state", busy.Error())
	case errors.As(err, &draining):
		return newProblem("wrong_state", draining.Error())
	case errors.As(err, &over):
		return newProblem("wrong_state", over.Error())
	case errors.As(err, &none):
		p := newProblem("no_target", none.Error())
		p.Candidates, p.Sessions = none.Candidates, &none.Sessions
		return p
	case errors.As(err, &wrong):
		return invalid("body."+wrong.Member, wrong.Reason)
	}
	return nil
}

// writeProblem maps refusals of a write's content or outcome.
func writeProblem(err error) *Problem {
	var ended *statestore.EndedError
	var conflict *statestore.VersionConflictError
	var forgotten *statestore.OpForgottenError
	var reused *statestore.OpReusedError
	var behind *statestore.StoreBehindError
	var large *statestore.TooLargeError
	var unknown *statestore.OutcomeUnknownError
	var weak *statestore.NotDurableError
	switch {
	case errors.As(err, &ended):
		return newProblem(string(ended.Reason), ended.Error())
	case errors.As(err, &conflict):
		p := newProblem("version_conflict", conflict.Error())
		p.Version, p.Turns = &conflict.Version, &conflict.Turns
		return p
	case errors.As(err, &forgotten):
		p := newProblem("op_forgotten", forgotten.Error())
		p.Version = &forgotten.Version
		return p
	case errors.As(err, &reused):
		p := newProblem("op_reused", reused.Error())
		p.Version = &reused.Version
		return p
	case errors.As(err, &behind):
		p := newProblem("store_behind", behind.Error())
		p.Have = &Have{Version: behind.HaveVersion, Turns: behind.HaveTurns}
		p.Want = &Want{Version: behind.WantVersion}
		return p
	case errors.As(err, &large):
		p := newProblem("too_large", large.Error())
		p.What, p.Limit, p.Size = large.What, large.Limit, large.Size
		return p
	case errors.As(err, &unknown):
		return newProblem("outcome_unknown", "no answer came from the store, also not to a repetition")
	case errors.As(err, &weak):
		p := newProblem("not_durable", weak.Error())
		p.Stored, p.Version = true, &weak.Receipt.Version
		d := durability(weak.Reached)
		p.Durability = &d
		return p
	}
	return nil
}

// sendProblem answers with a refusal.
func sendProblem(w http.ResponseWriter, p *Problem) {
	h := w.Header()
	for k, v := range p.GetHeaders() {
		h[k] = v
	}
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client is gone if this fails
}
