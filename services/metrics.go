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
	refusals  *prometheus.CounterVec
	handles   *prometheus.CounterVec
	reports   *prometheus.CounterVec
	outcomes  *prometheus.CounterVec
	appends   *prometheus.CounterVec
	recovers  *prometheus.CounterVec
	claims    *prometheus.CounterVec
	lost      prometheus.Counter
	removed   prometheus.Counter
	stalls    prometheus.Counter
	prompted  prometheus.Counter
	cached    prometheus.Counter
	unknown   prometheus.Counter
	calls     *prometheus.HistogramVec
}

func newMetrics(s *Server) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_" + name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	decisions := counter("route_decisions_total", "Routes by the rule that decided them.", "reason")
	for r := range m.routes {
		m.routes[r] = decisions.WithLabelValues(routing.Reason(r).String()) //nolint:gosec // an index of a small array
	}
	m.routeTime = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "berth_route_duration_seconds", Help: "Time to answer a route.", Buckets: prometheus.ExponentialBuckets(5e-6, 2, 16),
	})
	m.calls = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "berth_call_duration_seconds", Help: "Time to answer a call, by its path.", Buckets: prometheus.ExponentialBuckets(1e-4, 4, 9),
	}, []string{"method", "path"})
	m.jumps = counter("route_jumps_total", "Hints that leave the last server of a session.").WithLabelValues()
	m.degraded = counter("route_degraded_total", "Routes answered without all they should know.", "why")
	m.refusals = counter("refusals_total", "Refused calls by code.", "code")
	m.handles = counter("handles_refused_total", "Handles that were not good.", "why")
	m.reports = counter("excludes_total", "Failure reports in exclude.", "result")
	m.outcomes = counter("outcomes_total", "Reported outcomes of requests.", "result")
	m.appends = counter("appends_total", "Accepted writes to a context; duplicate ones were known already.", "duplicate")
	m.recovers = counter("recoveries_total", "Recoveries by mode and plan.", "mode", "plan")
	m.claims = counter("cross_instance_jumps_total", "Sessions taken over, by cause.", "cause")
	m.lost = counter("lost_versions_accepted_total", "Versions whose loss a claimant accepted.").WithLabelValues()
	m.removed = counter("instances_removed_total", "Instances that this process removed since they were gone for long.").WithLabelValues()
	m.stalls = counter("self_stalls_total", "Times that this process found itself or the store stalled, or suspected itself because most leases lapsed at once.").WithLabelValues()
	m.prompted = counter("kv_tokens_prompted_total", "Prompt tokens of requests that told what was cached.").WithLabelValues()
	m.cached = counter("kv_tokens_cached_total", "Prompt tokens found in a KV cache.").WithLabelValues()
	m.unknown = counter("kv_requests_unknown_total", "Requests whose usage did not tell what was cached.").WithLabelValues()
	m.registry.MustRegister(
		m.routeTime, m.calls, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&fleetCollector{s: s}, &jobCollector{s: s},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "berth_build_info", Help: "Version of this process.",
			ConstLabels: prometheus.Labels{"version": s.options.Version, "go": runtime.Version()},
		}, func() float64 { return 1 }),
	)
	return m
}

func (m *metrics) routed(out routed, took time.Duration) {
	m.routes[out.decision.Reason].Inc()
	m.routeTime.Observe(took.Seconds())
	if out.decision.Jump {
		m.jumps.Inc()
	}
	if out.degraded != "" {
		m.degraded.WithLabelValues(out.degraded).Inc()
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

func (m *metrics) appended(r statestore.Receipt) {
	duplicate := "false"
	if r.Duplicate {
		duplicate = "true"
	}
	m.appends.WithLabelValues(duplicate).Inc()
}

func (m *metrics) recovered(mode, plan string) { m.recovers.WithLabelValues(mode, plan).Inc() }

func (m *metrics) claimed(c statestore.Claimed) {
	cause := string(statestore.ChangeClaimed)
	if n := len(c.Changes); n > 0 {
		cause = string(c.Changes[n-1].Reason)
	}
	m.claims.WithLabelValues(cause).Inc()
	if c.Lost != nil && c.Lost.WantVersion > c.Lost.HaveVersion {
		m.lost.Add(float64(c.Lost.WantVersion - c.Lost.HaveVersion))
	}
}

func (m *metrics) usage(t usageTokens) {
	switch {
	case t.prompt == 0:
	case !t.known:
		m.unknown.Inc()
	default:
		m.prompted.Add(float64(t.prompt))
		m.cached.Add(float64(t.cached))
	}
}

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

// fleetCollector shows the image of the fleet at the moment it is asked.
type fleetCollector struct{ s *Server }

var (
	instancesDesc = prometheus.NewDesc("berth_instances", "Instances by state.", []string{"pool", "state"}, nil)
	loadDesc      = prometheus.NewDesc("berth_instance_load", "Requests running and waiting.", []string{"pool", "instance"}, nil)
	beatDesc      = prometheus.NewDesc("berth_instance_heartbeat_age_seconds", "Time since the last heartbeat.", []string{"pool", "instance"}, nil)
	breakerDesc   = prometheus.NewDesc("berth_instance_breaker", "1 for an instance whose breaker is not closed, by state.", []string{"pool", "instance", "state"}, nil)
	rampDesc      = prometheus.NewDesc("berth_instance_ramp", "Part of its weight that an instance has in force, 0 to 1.", []string{"pool", "instance"}, nil)
	movedDesc     = prometheus.NewDesc("berth_ring_moved", "Part of the key space that the last change of the ring moved.", []string{"pool"}, nil)
	rebuildsDesc  = prometheus.NewDesc("berth_ring_rebuilds_total", "Times that this process built another ring of the pool.", []string{"pool"}, nil)
	ringDesc      = prometheus.NewDesc("berth_ring_members", "Members of a pool's ring.", []string{"pool"}, nil)
)

// Describe is for prometheus.
func (c *fleetCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect is for prometheus.
func (c *fleetCollector) Collect(ch chan<- prometheus.Metric) {
	image := c.s.fleet.now()
	states := map[[2]string]int{}
	for i := range image.view.Instances {
		in := &image.view.Instances[i]
		states[[2]string{in.Pool, stateName(in)}]++
		load := float64(in.LastBeat.Running + in.LastBeat.Waiting)
		ch <- prometheus.MustNewConstMetric(loadDesc, prometheus.GaugeValue, load, in.Pool, in.ID)
		r := routingInstance(in)
		ch <- prometheus.MustNewConstMetric(rampDesc, prometheus.GaugeValue, float64(percentInForce(&r))/100, in.Pool, in.ID)
		if in.Breaker != statestore.BreakerClosed {
			ch <- prometheus.MustNewConstMetric(breakerDesc, prometheus.GaugeValue, 1, in.Pool, in.ID, r.Breaker.String())
		}
		if age := image.millisSince(in.BeatAt); age != nil {
			ch <- prometheus.MustNewConstMetric(beatDesc, prometheus.GaugeValue, float64(*age)/1000, in.Pool, in.ID)
		}
	}
	for k, n := range states {
		ch <- prometheus.MustNewConstMetric(instancesDesc, prometheus.GaugeValue, float64(n), k[0], k[1])
	}
	for name, p := range image.pools {
		ch <- prometheus.MustNewConstMetric(ringDesc, prometheus.GaugeValue, float64(p.snapshot.Ring().Len()), name)
		ch <- prometheus.MustNewConstMetric(rebuildsDesc, prometheus.CounterValue, float64(p.rebuilds), name)
		if n := len(p.changes); n > 0 {
			ch <- prometheus.MustNewConstMetric(movedDesc, prometheus.GaugeValue, p.changes[n-1].Moved, name)
		}
	}
}
