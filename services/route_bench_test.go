package services_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"berth/services"
)

// discard is a response that costs nothing but its headers.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// BenchmarkRouteWarm is the handler alone; `berth bench route` measures it behind
// a socket, beside a bare one.
func BenchmarkRouteWarm(b *testing.B) {
	s := setup(b, func(o *services.Options) { o.CacheTTL = time.Hour })
	w := s.worker("i1")
	hint := s.route("chat").want(200)
	w.append("chat", "op", hint.str("handle"), `1`).want(200)
	s.route("chat").want(200)
	req := httptest.NewRequest(http.MethodGet, "/route?session=chat", nil)
	out := &discard{header: http.Header{}}
	h := s.server.Handler()
	b.ReportAllocs()
	for b.Loop() {
		clear(out.header)
		h.ServeHTTP(out, req)
	}
}
