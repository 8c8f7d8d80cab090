package services

import "github.com/go-chi/chi/v5"

// Routes is what the router answers, for the test that holds the document to it.
func (s *Server) Routes() chi.Routes { return s.router }
