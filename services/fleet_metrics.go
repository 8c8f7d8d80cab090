package services

import (
	"github.com/prometheus/client_golang/prometheus"

	"berth/statestore"
)

// fleetCollector shows the image of the fleet at the moment it is asked.
type fleetCollector struct{ s *Server }

var (
	instancesDesc = prometheus.NewDesc("berth_instances", "Instances of a pool by the state that the API shows; a state that nobody is in is not there.", []string{"pool", "state"}, nil)
	loadDesc      = prometheus.NewDesc("berth_instance_load", "Requests running and waiting on an instance, as its last heartbeat told.", []string{"pool", "instance"}, nil)
	beatDesc      = prometheus.NewDesc("berth_instance_heartbeat_age_seconds", "Seconds since the last heartbeat of an instance, by the store's clock; not there for one that never sent any.", []string{"pool", "instance"}, nil)
	breakerDesc   = prometheus.NewDesc("berth_instance_breaker", "Always 1, for an instance whose breaker is not closed, by its state.", []string{"pool", "instance", "state"}, nil)
	rampDesc      = prometheus.NewDesc("berth_instance_ramp", "Part of its weight that an instance has in force while it is let in, 0 to 1.", []string{"pool", "instance"}, nil)
	movedDesc     = prometheus.NewDesc("berth_ring_moved", "Part of the key space whose new sessions go elsewhere since the last change of a pool's ring or of who takes new sessions, 0 to 1.", []string{"pool"}, nil)
	rebuildsDesc  = prometheus.NewDesc("berth_ring_rebuilds_total", "Times that this process built another ring of a pool.", []string{"pool"}, nil)
	promptedDesc  = prometheus.NewDesc("berth_instance_kv_tokens_prompted_total", "Tokens that the engine of an instance looked up in its KV cache since it started, as its heartbeats tell (prefix_queries). Every process shows the same.", []string{"pool", "instance"}, nil)
	cachedDesc    = prometheus.NewDesc("berth_instance_kv_tokens_cached_total", "Those of the tokens looked up that the engine found in its KV cache (prefix_hits). Every process shows the same.", []string{"pool", "instance"}, nil)
	pointsDesc    = prometheus.NewDesc("berth_ring_points", "Points of a pool's ring, of all its members together.", []string{"pool"}, nil)
	sessionsDesc  = prometheus.NewDesc("berth_instance_sessions", "Sessions bound to an instance, lapsed ones included, as counted at most 30 s ago. Only the process that holds the health lease shows them.", []string{"pool", "instance"}, nil)
	ringDesc      = prometheus.NewDesc("berth_ring_members", "Members of a pool's ring, those without points included.", []string{"pool"}, nil)
)

// Describe is for prometheus.
func (c *fleetCollector) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, instancesDesc, loadDesc, beatDesc, breakerDesc, rampDesc, sessionsDesc, promptedDesc, cachedDesc, movedDesc, rebuildsDesc, ringDesc, pointsDesc)
}

// Collect is for prometheus.
func (c *fleetCollector) Collect(ch chan<- prometheus.Metric) {
	image, sessions := c.s.fleet.now(), c.s.sessions.counts()
	states := map[[2]string]int{}
	for i := range image.view.Instances {
		in := &image.view.Instances[i]
		states[[2]string{in.Pool, stateName(in)}]++
		load := float64(in.LastBeat.Running + in.LastBeat.Waiting)
		ch <- prometheus.MustNewConstMetric(loadDesc, prometheus.GaugeValue, load, in.Pool, in.ID)
		if sessions != nil {
			n := sessions[statestore.InstanceName{Pool: in.Pool, Instance: in.ID}]
			ch <- prometheus.MustNewConstMetric(sessionsDesc, prometheus.GaugeValue, float64(n), in.Pool, in.ID)
		}
		if tellsPrefixes(in) {
			ch <- prometheus.MustNewConstMetric(promptedDesc, prometheus.CounterValue, float64(in.LastBeat.PrefixQueries), in.Pool, in.ID)
			ch <- prometheus.MustNewConstMetric(cachedDesc, prometheus.CounterValue, float64(in.LastBeat.PrefixHits), in.Pool, in.ID)
		}
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
		ring, points := p.snapshot.Ring(), 0
		for m := range ring.Len() {
			points += ring.Points(ring.ID(m))
		}
		ch <- prometheus.MustNewConstMetric(ringDesc, prometheus.GaugeValue, float64(ring.Len()), name)
		ch <- prometheus.MustNewConstMetric(pointsDesc, prometheus.GaugeValue, float64(points), name)
		ch <- prometheus.MustNewConstMetric(rebuildsDesc, prometheus.CounterValue, float64(p.rebuilds), name)
		if n := len(p.changes); n > 0 {
			ch <- prometheus.MustNewConstMetric(movedDesc, prometheus.GaugeValue, p.changes[n-1].Moved, name)
		}
	}
}
