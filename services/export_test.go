package services

import (
	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// Routes is what the router answers, for the test that holds the document to it.
func (s *Server) Routes() chi.Routes { return s.router }

// Described is every metric that the server can show, as prometheus writes it.
func (s *Server) Described() []string {
	ch, list := make(chan *prometheus.Desc), []string(nil)
	go func() {
		s.metrics.registry.Describe(ch)
		close(ch)
	}()
	for d := range ch {
		list = append(list, d.String())
	}
	return list
}
