package client

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A process that does not answer is left for the next one at once, with the same
// op, and that one is stayed with.
func TestFailsOverBetweenProcesses(t *testing.T) {
	t.Parallel()
	for name, dying := range map[string]http.Handler{
		"refused":       nil,
		"torn":          step(tear),
		"shutting down": refuse(503, "shutting_down", ""),
		"a proxy's 502": reply(502, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hosts := map[string]http.Handler{"b": newScript(t, accept(7, 4, 4, "fsynced"), accept(7, 5, 5, "fsynced"))}
				var first *script
				if dying != nil {
					first = newScript(t, dying.ServeHTTP)
					hosts["a"] = first
				}
				began := time.Now()
				s := sessionOf(t, config(hosts, "a", "b"), 7, 3)
				if err := ops(t, s, "x", "y"); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(began); d != 0 {
					t.Errorf("waited %v although another process was there", d)
				}
				wantSent(t, hosts["b"].(*script).requests(2), "x h7.3", "y h7.4")
				if first != nil {
					wantSent(t, first.requests(1), "x h7.3")
				}
			})
		})
	}
}

func (s step) ServeHTTP(w http.ResponseWriter, r *http.Request) { s(w, r) }

// What the shared store cannot do, no other process can: it is waited for.
func TestStaysWhenTheStoreIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newScript(t, refuse(503, ErrStoreUnavailable, ""), accept(7, 4, 4, "fsynced"))
		s := sessionOf(t, config(map[string]http.Handler{"a": a, "b": newScript(t)}, "a", "b"), 7, 3)
		if err := ops(t, s, "x"); err != nil {
			t.Fatal(err)
		}
	})
}

// When all processes are away, each round tries every one and then waits.
func TestAllProcessesAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newScript(t, tear, tear, accept(7, 4, 4, "fsynced")), newScript(t, tear, tear)
		began := time.Now()
		if err := ops(t, sessionOf(t, config(map[string]http.Handler{"a": a, "b": b}, "a", "b"), 7, 3), "x"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d < 150*time.Millisecond || d > 300*time.Millisecond {
			t.Errorf("two rounds took %v", d)
		}
	})
}

// A call on a hot path asks each process once and does not wait.
func TestOnceDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newScript(t, tear), newScript(t, tear)
		g, err := NewGateway(config(map[string]http.Handler{"a": a, "b": b}, "a", "b"))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := g.Route(t.Context(), RouteRequest{}); err == nil || time.Since(began) != 0 {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}

// Calls share connections, whatever follows the JSON of an answer and however it
// is framed.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`{"instance":"i1"}`))
			w.(http.Flusher).Flush()
			_, _ = w.Write([]byte(strings.Repeat("\n", 1000)))
			return
		}
		refuse(409, ErrNotOwner, "")(w, r)
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	g, err := NewGateway(Config{BaseURLs: []string{srv.URL}})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := g.Route(t.Context(), RouteRequest{}); err != nil {
			t.Fatal(err)
		}
		if err := g.Outcomes(t.Context(), []Outcome{{Instance: "i1", Result: ResultOK}}); !errors.Is(err, ErrNotOwner) {
			t.Fatal(err)
		}
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections for 40 calls", n)
	}
}

// Redirects are not followed: the handle would go to whoever they name.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed") }))
	defer elsewhere.Close()
	srv := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer srv.Close()
	for name, c := range map[string]*http.Client{"its own client": nil, "the caller's": {}} {
		s := sessionOf(t, Config{BaseURLs: []string{srv.URL}, HTTPClient: c}, 7, 3)
		var p *Problem
		if _, err := s.Append(t.Context(), one("1")); !errors.As(err, &p) || p.Status != http.StatusTemporaryRedirect {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// The caller's client brings the CA that it trusts and the certificate that it shows.
func TestTheCallersTLSIsUsed(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(reply(200, `{"instance":"i1","address":"10.0.0.1:8000"}`))
	srv.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	defer srv.Close()
	own := srv.Client() // trusts the server
	own.Transport.(*http.Transport).TLSClientConfig.Certificates = srv.TLS.Certificates
	for name, c := range map[string]*http.Client{"its own client": nil, "the caller's": own} {
		g, err := NewGateway(Config{BaseURLs: []string{srv.URL}, HTTPClient: c})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Route(t.Context(), RouteRequest{Session: SessionKey{ID: "s"}}); (err == nil) != (c != nil) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for name, urls := range map[string][]string{
		"none":     nil,
		"no host":  {"http://"},
		"a scheme": {"redis://127.0.0.1"},
		"a query":  {"http://127.0.0.1:7410/?a=b"},
		"junk":     {"http://127.0.0.1:7410", "::"},
	} {
		if _, err := NewGateway(Config{BaseURLs: urls}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := NewWorker(Config{BaseURLs: []string{"http://127.0.0.1:7410"}}, Instance{ID: "i1"}); err == nil {
		t.Error("an instance without an address was accepted")
	}
}

// Every id reaches the server as it is, whatever proxies and header rules do to
// some of its bytes (R24).
func TestSessionIDsTravelUnharmed(t *testing.T) {
	t.Parallel()
	ids := []string{
		"s1", "user@host", "a/b", "%2F", "a b", " lead", "trail ", "-", ".", "..", "../x", "a?b#c", "{}", "ümlaut", "日本", "🙂",
		"a;b", "a,b", "a%", "~_-.", strings.Repeat("é", 128), "\u00a0",
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sessions/{id}", func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		if id == "-" {
			id = r.Header.Get(headerSession)
		}
		w.Header().Set("Content-Type", typeJSON)
		_, _ = w.Write([]byte(`{"digest":` + string(quoted(id)) + `}`))
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	for _, id := range ids {
		s, err := worker(t, Config{BaseURLs: []string{srv.URL}}).Open(SessionKey{ID: id})
		if err != nil {
			t.Errorf("open %q: %v", id, err)
			continue
		}
		rec, _, err := s.Load(t.Context(), 0)
		if err != nil || rec.Digest != id {
			t.Errorf("%q arrived as %+v, error %v", id, rec, err)
		}
	}
	for _, id := range []string{"", strings.Repeat("x", 257), "a\x00b", "a\nb", "\xff", "a\u0085b"} {
		if _, err := worker(t, Config{BaseURLs: []string{srv.URL}}).Open(SessionKey{ID: id}); err == nil {
			t.Errorf("%q was accepted", id)
		}
	}
}
