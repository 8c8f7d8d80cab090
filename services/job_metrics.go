package services

import (
	"github.com/prometheus/client_golang/prometheus"

	"berth/migrations"
)

// jobCollector shows what this process has done for jobs, and those it works on at
// the moment it is asked. Sums over all processes are the whole truth.
type jobCollector struct{ s *Server }

func jobDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("berth_job_"+name, help, append([]string{"kind"}, labels...), nil)
}

var (
	jobSessionsDesc = jobDesc("sessions_total", "Sessions that jobs have settled, by result.", "result")
	jobBytesDesc    = jobDesc("moved_bytes_total", "Bytes of the contexts of the sessions that jobs have moved.")
	jobTokensDesc   = jobDesc("prewarmed_tokens_total", "Tokens that targets have prewarmed for jobs.")
	jobPhaseDesc    = jobDesc("phase_seconds", "Seconds that jobs spent in their phases, and how many did.", "phase")
	jobEndedDesc    = jobDesc("ended_total", "Jobs that have ended, by state.", "state")
	jobHeldDesc     = jobDesc("held", "Jobs that this process works on, by state.", "state")
	jobLeftDesc     = jobDesc("left_sessions", "Sessions that the jobs held here have yet to settle.")
	jobBlockedDesc  = jobDesc("blocked_sessions", "Sessions of the jobs held here that are blocked, by reason.", "reason")
	jobOldestDesc   = jobDesc("oldest_waiting_seconds", "Seconds for which the session that has been blocked for longest has been, of the jobs held here.")
	jobLastDesc     = jobDesc("last_progress_seconds", "Seconds since a session was settled, of the job held here for which it is longest.")
)

// Describe is for prometheus.
func (c *jobCollector) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, jobSessionsDesc, jobBytesDesc, jobTokensDesc, jobPhaseDesc, jobEndedDesc,
		jobHeldDesc, jobLeftDesc, jobBlockedDesc, jobOldestDesc, jobLastDesc)
}

// Collect is for prometheus.
func (c *jobCollector) Collect(ch chan<- prometheus.Metric) {
	if c.s.jobs == nil {
		return
	}
	for kind, t := range c.s.jobs.Totals() {
		count := func(d *prometheus.Desc, n float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, n, append([]string{kind}, labels...)...)
		}
		for result, n := range t.Sessions {
			count(jobSessionsDesc, float64(n), result)
		}
		for state, n := range t.Ended {
			count(jobEndedDesc, float64(n), string(state))
		}
		count(jobBytesDesc, float64(t.Bytes))
		count(jobTokensDesc, float64(t.PrewarmedTokens))
		for phase, p := range t.Phases {
			ch <- prometheus.MustNewConstSummary(jobPhaseDesc, uint64(p.Count), p.Time.Seconds(), nil, kind, string(phase)) //nolint:gosec // a count
		}
	}
	byKind := map[string]*heldSum{}
	for _, h := range c.s.jobs.Held() {
		if byKind[h.Kind] == nil {
			byKind[h.Kind] = &heldSum{states: map[string]int{}, blocked: map[string]int{}}
		}
		byKind[h.Kind].add(&h)
	}
	for kind, sum := range byKind {
		sum.collect(kind, ch)
	}
}

// heldSum is the jobs of one kind that are held here.
type heldSum struct {
	states, blocked map[string]int
	left            int
	oldest, last    float64
}

func (s *heldSum) add(h *migrations.Held) {
	s.states[string(h.State)]++
	s.left += h.Progress.Open()
	for reason, n := range h.Progress.Blocked {
		s.blocked[reason] += n
	}
	s.oldest = max(s.oldest, h.OldestWait.Seconds())
	s.last = max(s.last, h.LastProgress.Seconds())
}

func (s *heldSum) collect(kind string, ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{kind}, labels...)...)
	}
	for state, n := range s.states {
		gauge(jobHeldDesc, float64(n), state)
	}
	for reason, n := range s.blocked {
		gauge(jobBlockedDesc, float64(n), reason)
	}
	gauge(jobLeftDesc, float64(s.left))
	gauge(jobOldestDesc, s.oldest)
	gauge(jobLastDesc, s.last)
}
