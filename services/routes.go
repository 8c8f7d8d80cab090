package services

import (
	"context"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
)

// Body limits, in bytes. Contexts may come as base64, a third longer than they are.
const (
	maxSmallBody   = 256 << 10
	maxContextBody = 96 << 20
)

// dispatch answers routes itself: they take every method, also those that a
// router does not know, and are the hot path.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	if p := r.URL.Path; p == "/route" || p == "/v1/route" || strings.HasPrefix(p, "/route/") {
		s.route(w, r)
		return
	}
	s.router.ServeHTTP(w, r)
}

// mount builds the API but for the routes.
func (s *Server) mount() {
	r := chi.NewRouter()
	s.router = r
	r.Group(func(r chi.Router) {
		r.Use(s.withRequest)
		get := func(path string, h http.HandlerFunc) {
			r.Get(path, h)
			r.Head(path, h) // what load balancers probe with
		}
		get("/livez", s.livez)
		get("/readyz", s.readyz)
		get("/openapi.json", s.openapi)
		get("/docs", s.docs)
		get("/problems/{code}", s.explainProblem)
		r.With(s.withToken).Get("/metrics", s.serveMetrics)
		r.NotFound(func(w http.ResponseWriter, r *http.Request) {
			s.refuse(w, r, newProblem("not_found", "no call has this path; see /docs"))
		})
		r.MethodNotAllowed(s.refuseMethod)
	})
	r.Group(func(r chi.Router) {
		r.Use(s.withRequest, s.timed, s.withToken, s.plainCalls)
		s.api = humachi.New(r, s.apiConfig())
		s.mountGateways()
		s.mountInstances()
		s.mountSessions()
		s.mountOperators()
	})
	s.describePlainCalls()
}

// refuseMethod names the methods that the path does answer.
func (s *Server) refuseMethod(w http.ResponseWriter, r *http.Request) {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	for _, m := range []string{"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"} {
		if s.router.Match(chi.NewRouteContext(), m, path) {
			w.Header().Add("Allow", m)
		}
	}
	s.refuse(w, r, newProblem("method_not_allowed", r.Method+" is not a call of this path; see /docs"))
}

func (s *Server) mountGateways() {
	call(s, huma.Operation{
		Method: http.MethodPost, Path: "/v1/outcomes", DefaultStatus: http.StatusAccepted, Tags: []string{"gateways"},
		OperationID: "report-outcomes", Summary: "Report how requests ended",
	}, s.reportOutcomes)
}

func (s *Server) mountInstances() {
	op := func(method, path, id, summary string) huma.Operation {
		return huma.Operation{
			Method: method, Path: "/v1/instances" + path, Tags: []string{"workers"},
			OperationID: id, Summary: summary,
		}
	}
	call(s, op(http.MethodPut, "/{id}", "register-instance", "Register an instance, or update it"), s.registerInstance)
	call(s, op(http.MethodPost, "/{id}/heartbeat", "heartbeat", "Tell that an instance lives, and its load"), s.heartbeat)
	call(s, op(http.MethodGet, "/{id}/tasks", "poll-tasks", "Wait for tasks"), s.pollTasks)
	call(s, op(http.MethodPost, "/{id}/tasks/{task}", "answer-task", "Answer a task"), s.answerTask)
	call(s, op(http.MethodDelete, "/{id}", "deregister-instance", "Remove an instance"), s.deregisterInstance)
	call(s, op(http.MethodGet, "", "list-instances", "List instances"), s.listInstances)
	call(s, op(http.MethodGet, "/{id}", "get-instance", "Read an instance, and whether it is safe to stop"), s.getInstance)
}

func (s *Server) mountSessions() {
	op := func(method, path, id, summary string) huma.Operation {
		return huma.Operation{
			Method: method, Path: path, Tags: []string{"workers"}, OperationID: id, Summary: summary,
		}
	}
	call(s, op(http.MethodPost, "/v1/recover", "recover-session", "Rebuild a session on an instance"), s.recoverSession)
	call(s, op(http.MethodGet, "/v1/sessions/{id}", "load-session", "Load a session"), s.loadSession)
	call(s, op(http.MethodPost, "/v1/sessions/{id}/turns", "append-turns", "Append turns"), s.appendTurns)
	call(s, op(http.MethodPut, "/v1/sessions/{id}", "replace-session", "Replace the whole context"), s.replaceSession)
	call(s, op(http.MethodPut, "/v1/sessions/{id}/kv", "put-placements", "Say where KV of the session lies"), s.putPlacements)
	call(s, op(http.MethodPost, "/v1/sessions/{id}/finish", "finish-session", "Release the session, keep its context"), s.finishSession)
	call(s, op(http.MethodDelete, "/v1/sessions/{id}", "delete-session", "End the session and remove its context"), s.deleteSession)
}

func (s *Server) mountOperators() {
	op := func(method, path, id, summary string) huma.Operation {
		return huma.Operation{
			Method: method, Path: path, Tags: []string{"operators"}, OperationID: id, Summary: summary,
		}
	}
	call(s, op(http.MethodGet, "/v1/pools", "list-pools", "List pools"), s.listPools)
	call(s, op(http.MethodDelete, "/v1/pools/{pool}", "delete-pool", "Delete a pool that has no instances, and its policy"), s.deletePool)
	call(s, op(http.MethodGet, "/v1/pools/{pool}/policy", "get-policy", "Read a pool's policy"), s.getPolicy)
	call(s, op(http.MethodPut, "/v1/pools/{pool}/policy", "put-policy", "Replace a pool's policy"), s.putPolicy)
	call(s, op(http.MethodGet, "/v1/ring", "get-ring", "Read the ring's shares"), s.getRing)
	call(s, op(http.MethodGet, "/v1/snapshot", "get-snapshot", "Read a pool as decisions see it, and its sessions with hashed ids"), s.getSnapshot)
	call(s, op(http.MethodGet, "/v1/sessions", "list-sessions", "List sessions"), s.listSessions)
	call(s, op(http.MethodDelete, "/v1/sessions", "erase-sessions", "End all sessions of an affinity key and remove their contexts"), s.eraseSessions)
	call(s, op(http.MethodGet, "/v1/sessions/{id}/parked", "session-parked", "Read the refused appends that wait for the owner"), s.sessionParked)
	call(s, op(http.MethodGet, "/v1/sessions/{id}/history", "session-history", "Read a session's changes of owner"), s.sessionHistory)
	call(s, op(http.MethodPost, "/v1/drains", "create-drain", "Move every session off instances"), s.createDrain)
	call(s, op(http.MethodPost, "/v1/rebalances", "create-rebalance", "Move sessions off instances that are over their bound"), s.createRebalance)
	call(s, op(http.MethodGet, "/v1/jobs", "list-jobs", "List jobs"), s.listJobs)
	call(s, op(http.MethodGet, "/v1/jobs/{id}", "get-job", "Read a job, or wait for its progress"), s.getJob)
	call(s, op(http.MethodGet, "/v1/jobs/{id}/events", "job-events", "Follow a job's progress as server-sent events"), s.jobEvents)
	call(s, op(http.MethodPost, "/v1/jobs/{id}/pause", "pause-job", "Let a job wait"), s.pauseJob)
	call(s, op(http.MethodPost, "/v1/jobs/{id}/resume", "resume-job", "Let a paused job go on"), s.resumeJob)
	call(s, op(http.MethodPost, "/v1/jobs/{id}/cancel", "cancel-job", "Cancel a job"), s.cancelJob)
	call(s, op(http.MethodPost, "/v1/instances/{id}/cordon", "cordon-instance", "Let no new session in"), s.cordon)
	call(s, op(http.MethodPost, "/v1/instances/{id}/uncordon", "uncordon-instance", "Let new sessions in again"), s.uncordon)
	call(s, op(http.MethodPatch, "/v1/instances/{id}", "override-instance", "Override what the worker says"), s.overrideInstance)
}

// call registers a typed handler whose errors become problems.
func call[I, O any](s *Server, op huma.Operation, h func(context.Context, *I) (*O, error)) {
	op.MaxBodyBytes, op.BodyReadTimeout = maxSmallBody, s.options.BodyTimeout
	if _, reads := reflect.TypeFor[I]().FieldByName("Body"); reads {
		op.Middlewares = append(op.Middlewares, s.checkSmallBody)
	}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := h(ctx, in)
		if err != nil {
			return nil, s.refused(ctx, err)
		}
		return out, nil
	})
}
