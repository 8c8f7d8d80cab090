package services

import (
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"berth/routing"
	"berth/statestore"
	"berth/statestore/handle"
)

// metrics are what /metrics shows. No session, tenant or key is a label.
type metrics struct {
	registry  *prometheus.Registry
	routes    [routing.Reasons]prometheus.Counter
	routeTime prometheus.Histogram
	jumps     prometheus.Counter
	degraded  *prometheus.CounterVec
	knewLess  *degraded
	refusals  *prometheus.CounterVec
	handles   *prometheus.CounterVec
	reports   *prometheus.CounterVec
	outcomes  *prometheus.CounterVec
	appends   *prometheus.CounterVec
	turns     prometheus.Counter
	loads     *prometheus.CounterVec
	recovers  *prometheus.CounterVec
	served    *prometheus.CounterVec
	lost      prometheus.Counter
	losses    *losses
	removed   prometheus.Counter
	stalls    prometheus.Counter
	prompted  prometheus.Counter
	cached    prometheus.Counter
	unknown   prometheus.Counter
	calls     *prometheus.HistogramVec
}

func newMetrics(s *Server) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), knewLess: newDegraded()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return newCounter(m.registry, name, help, labels...)
	}
	decisions := counter("route_decisions_total", "Routes by the rule that decided them; none is a refusal.", "reason")
	for r := range m.routes {
		m.routes[r] = decisions.WithLabelValues(routing.Reason(r).String()) //nolint:gosec // an index of a small array
	}
	m.routeTime = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "berth_route_duration_seconds", Help: "Seconds to answer a route; refused ones are not in it.", Buckets: prometheus.ExponentialBuckets(5e-6, 2, 16),
	})
	m.calls = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "berth_call_duration_seconds", Help: "Seconds to answer a call below /v1, by its method and the pattern of its path; routes are not in it.", Buckets: prometheus.ExponentialBuckets(1e-4, 4, 9),
	}, []string{"method", "path"})
	m.jumps = counter("route_jumps_total", "Routes that named another instance than the one that served the session last. These are hints: berth_cross_instance_jumps_total counts who served.").WithLabelValues()
	m.degraded = counter("route_degraded_total", "Routes answered without all they should know, by reason: store_unavailable (the store did not answer in time), miss_budget (more sessions than may be looked up were not cached) or panic (nobody was eligible, and the policy asks for one that may be alive).", "why")
	m.refusals = counter("refusals_total", "Refused calls and routes by the code of the refusal; /problems/{code} explains each.", "code")
	m.handles = counter("handles_refused_total", "Handles that routes and reports of outcomes came with and that were not good, by reason; they were answered as if there were none.", "why")
	m.reports = counter("excludes_total", "Failure reports in the exclude of routes, by what was seen.", "result")
	m.outcomes = counter("outcomes_total", "Outcomes of requests that gateways and workers reported, by result.", "result")
	m.appends = counter("appends_total", "Accepted writes to a context, appends and replaces; duplicate ones were known already.", "duplicate")
	m.recovers = counter("recoveries_total", "Recoveries by mode and by what of the KV cache the caller can use (plan).", "mode", "plan")
	m.turns = counter("turns_total", "Turns that accepted appends added; a repeated op and a replace add none.").WithLabelValues()
	m.loads = counter("loads_total", "Loads of a session that began to be answered, by how they ended: whole, changed (the context was rewritten meanwhile) or failed (the store did, or the reader went away).", "end")
	m.served = counter("cross_instance_jumps_total", "Sessions served by another instance than the one that served them last, by cause: moved (the first write of the target of a drain or a rebalance), or what let it take the session over: failover (the owner was gone, down or another boot), released (it had none), rerouted (it was there, and a route named another) or lost (with an accepted loss).", "cause")
	m.lost = counter("lost_versions_accepted_total", "Versions (accepted writes) whose loss a claimant accepted.").WithLabelValues()
	m.losses = newLosses(
		counter("lost_versions_detected_total", "Versions (accepted writes) that the store was found to have lost: from the newest it holds of a session to the newest that a caller was promised, when the caller is told store_behind. What is told of one loss again counts once in a process.").WithLabelValues(),
		counter("lost_versions_repaired_total", "Those of the versions detected by this process that are back: the write that made the newest of them was accepted again, or is what a later accepted write stands on.").WithLabelValues(),
	)
	m.removed = counter("instances_removed_total", "Instances that this process removed since they were gone for long.").WithLabelValues()
	m.stalls = counter("self_stalls_total", "Times that this process found itself or the store stalled, or suspected itself because most leases lapsed at once.").WithLabelValues()
	m.prompted = counter("kv_tokens_prompted_total", "Prompt tokens of requests whose usage told what was cached, but for those of instances whose heartbeats tell (berth_instance_kv_tokens_prompted_total).").WithLabelValues()
	m.cached = counter("kv_tokens_cached_total", "Those of the prompted tokens that were found in a KV cache.").WithLabelValues()
	m.unknown = counter("kv_requests_unknown_total", "Requests with prompt tokens whose usage did not tell how many were cached.").WithLabelValues()
	m.registry.MustRegister(
		m.routeTime, m.calls, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.knewLess, &fleetCollector{s: s}, &jobCollector{s: s},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "berth_build_info", Help: "Always 1; the labels are the version of this process and of Go.",
			ConstLabels: prometheus.Labels{"version": s.options.Version, "go": runtime.Version()},
		}, func() float64 { return 1 }),
	)
	return m
}

func newCounter(registry prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_" + name, Help: help}, labels)
	registry.MustRegister(c)
	return c
}

// describe tells prometheus of metrics that a collector makes when it is asked.
func describe(ch chan<- *prometheus.Desc, list ...*prometheus.Desc) {
	for _, d := range list {
		ch <- d
	}
}

func (m *metrics) routed(out routed, took time.Duration) {
	m.routes[out.decision.Reason].Inc()
	m.routeTime.Observe(took.Seconds())
	if out.decision.Jump {
		m.jumps.Inc()
	}
	if out.degraded != "" {
		m.degraded.WithLabelValues(out.degraded).Inc()
		now := time.Now()
		m.knewLess.routes[out.degraded].add(now.Add(-took), now)
	}
}

func (m *metrics) refusedRoute(p *Problem) {
	m.routes[routing.ReasonNone].Inc()
	m.refusals.WithLabelValues(p.Code).Inc()
}

func (m *metrics) refused(code string) { m.refusals.WithLabelValues(code).Inc() }

func (m *metrics) refusedHandle(err error) {
	var bad *handle.Error
	if errors.As(err, &bad) {
		m.handles.WithLabelValues(string(bad.Why)).Inc()
	}
}

func (m *metrics) reported(reports []failureReport) {
	for _, r := range reports {
		m.reports.WithLabelValues(string(r.result)).Inc()
	}
}

func (m *metrics) outcome(r Result) { m.outcomes.WithLabelValues(string(r)).Inc() }

// appended counts an accepted write that added turns, if it was not known before.
func (m *metrics) appended(r statestore.Receipt, turns int) {
	duplicate := "false"
	if r.Duplicate {
		duplicate, turns = "true", 0
	}
	if r.Arrived {
		m.served.WithLabelValues("moved").Inc()
	}
	m.turns.Add(float64(turns))
	m.appends.WithLabelValues(duplicate).Inc()
}

func (m *metrics) recovered(mode, plan string) { m.recovers.WithLabelValues(mode, plan).Inc() }

// loaded counts how the answer to a load ended.
func (m *metrics) loaded(err error) {
	end := "whole"
	switch {
	case errors.Is(err, statestore.ErrChanged):
		end = "changed"
	case err != nil:
		end = "failed"
	}
	m.loads.WithLabelValues(end).Inc()
}

// claimed counts a claim that took a session over.
func (m *metrics) claimed(c *statestore.Claimed, image *fleetImage) {
	if last := c.LastServer(); last != c.Owner.Instance {
		m.served.WithLabelValues(jumpCause(c.Changes, image)).Inc()
	}
	if c.Lost != nil && c.Lost.WantVersion > c.Lost.HaveVersion {
		m.lost.Add(float64(c.Lost.WantVersion - c.Lost.HaveVersion))
	}
}

// jumpCause says why the last of the changes of owner, a claim, was made.
func jumpCause(changes []statestore.OwnerChange, image *fleetImage) string {
	n := len(changes)
	switch {
	case n > 0 && changes[n-1].Reason == statestore.ChangeLost:
		return "lost"
	case n < 2 || changes[n-2].Instance == "":
		return "released"
	}
	before := image.instances[changes[n-2].Instance]
	if before == nil || before.Health == statestore.Down || before.Registered > changes[n-2].At {
		return "failover"
	}
	return "rerouted"
}

// usage counts what a request's usage object says, unless the heartbeats of the
// instance that served it say the same; nil for one that is not known.
func (m *metrics) usage(by *statestore.Instance, object map[string]any) {
	if by != nil && tellsPrefixes(by) {
		return
	}
	switch t := parseUsage(object, by != nil && by.ReportsCached); {
	case t.prompt == 0:
	case !t.known:
		m.unknown.Inc()
	default:
		m.prompted.Add(float64(t.prompt))
		m.cached.Add(float64(t.cached))
	}
}

// tellsPrefixes reports whether the heartbeats of an instance tell what its engine
// looked up in its KV cache: the engine's own count wins over requests' usage.
func tellsPrefixes(in *statestore.Instance) bool { return in.LastBeat.PrefixQueries > 0 }

func (m *metrics) answered(r *http.Request, took time.Duration) {
	path := "other"
	if rc := chi.RouteContext(r.Context()); rc != nil && rc.RoutePattern() != "" {
		path = rc.RoutePattern()
	}
	m.calls.WithLabelValues(r.Method, path).Observe(took.Seconds())
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}
