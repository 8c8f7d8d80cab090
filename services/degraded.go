package services

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// degradedStore and its neighbours in route.go say why a route was degraded; this
// says that the registry of instances, which is read twice a second whether routes
// come or not, could not be read.
const storeAway = "store_away"

// degradedHold is how long a route that was degraded stands for: one second of
// degraded routes is one second, however many they are.
const degradedHold = time.Second

// degraded measures for how long this process knew less than it should.
type degraded struct {
	routes map[string]*stretches // by the word of the answer
	store  outages
}

func newDegraded() *degraded {
	return &degraded{routes: map[string]*stretches{
		degradedStore: new(stretches), degradedBudget: new(stretches), degradedPanic: new(stretches),
	}}
}

// stretches is the time within a second after one of many events, without gaps counted
// or overlaps counted twice. It is safe for use by several goroutines.
type stretches struct {
	mu    sync.Mutex
	total time.Duration // with the present one up to its end
	until time.Time     // when that is
}

// add takes in an event that began then and ends now.
func (s *stretches) add(began, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.Before(s.until) {
		began = s.until
	}
	if end := now.Add(degradedHold); end.After(began) {
		s.total, s.until = s.total+end.Sub(began), end
	}
}

// passed is the time until now.
func (s *stretches) passed(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total - max(0, s.until.Sub(now))
}

// outages is the time in which a thing that is asked again and again did not answer:
// from the first call in vain until one is answered. It is safe for use by several
// goroutines.
type outages struct {
	mu    sync.Mutex
	total time.Duration
	since time.Time // zero: it answers
}

// took takes in a call that began then and ends now. One that its caller gave up
// says nothing.
func (o *outages) took(began, now time.Time, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err != nil && o.since.IsZero():
		o.since = began
	case err == nil && !o.since.IsZero():
		o.total, o.since = o.total+now.Sub(o.since), time.Time{}
	}
}

// passed is the time until now.
func (o *outages) passed(now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return o.total
	}
	return o.total + now.Sub(o.since)
}

var degradedDesc = prometheus.NewDesc("berth_degraded_seconds_total",
	"Seconds in which this process knew less than it should, by reason: routes were answered degraded, each standing for the second after it (store_unavailable, miss_budget, panic); "+
		"or the registry of instances, which is read twice a second, could not be read (store_away, from the first read in vain to the next good one).",
	[]string{"why"}, nil)

// Describe is for prometheus.
func (d *degraded) Describe(ch chan<- *prometheus.Desc) { describe(ch, degradedDesc) }

// Collect is for prometheus.
func (d *degraded) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	show := func(why string, passed time.Duration) {
		ch <- prometheus.MustNewConstMetric(degradedDesc, prometheus.CounterValue, passed.Seconds(), why)
	}
	for why, s := range d.routes {
		show(why, s.passed(now))
	}
	show(storeAway, d.store.passed(now))
}
