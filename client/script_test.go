package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// step is one answer of a scripted berth.
type step func(w http.ResponseWriter, r *http.Request)

// exchange is one request as it arrived.
type exchange struct {
	host, method, path, query string
	header                    http.Header
	body                      []byte
}

// member is a member of a JSON body.
func (e *exchange) member(t *testing.T, name string) any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(e.body, &m); err != nil {
		t.Fatalf("%s %s: body %q: %v", e.method, e.path, e.body, err)
	}
	return m[name]
}

// script is a berth that plays answers in the order of the requests, and notes
// what came.
type script struct {
	t     *testing.T
	mu    sync.Mutex
	steps []step
	got   []exchange
}

func newScript(t *testing.T, steps ...step) *script {
	s := &script{t: t, steps: steps}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.steps) > 0 && !t.Failed() {
			t.Errorf("%d answers of the script were never asked for", len(s.steps))
		}
	})
	return s
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	s.got = append(s.got, exchange{r.Host, r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Clone(), body})
	var next step
	if len(s.steps) > 0 {
		next, s.steps = s.steps[0], s.steps[1:]
	}
	s.mu.Unlock()
	if next == nil {
		s.t.Errorf("unexpected request %s %s: %s", r.Method, r.URL.EscapedPath(), body)
		next = refuse(http.StatusTeapot, "out_of_script", "")
	}
	next(w, r)
}

// requests are what came so far; it wants n of them.
func (s *script) requests(n int) []exchange {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.got) != n {
		s.t.Fatalf("%d requests came, want %d", len(s.got), n)
	}
	return s.got
}

// reply answers JSON.
func reply(status int, body string) step {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// lines answers NDJSON.
func lines(body string) step {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, body)
	}
}

// refuse answers a problem; members are further JSON members.
func refuse(status int, code Code, members string) step {
	if members != "" {
		members = "," + members
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		if status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"type":"/problems/%s","code":%q,"status":%d%s}`, code, code, status, members)
	}
}

// tear breaks the connection before an answer.
func tear(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// stall lets the caller wait until it gives up.
func stall(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// accept answers a write that made a version at an epoch, named by a handle of
// the form h<epoch>.<version>.
func accept(epoch, version uint64, turns int, level string) step {
	return reply(200, receiptJSON(epoch, version, turns, level, ""))
}

func receiptJSON(epoch, version uint64, turns int, level, more string) string {
	return fmt.Sprintf(
		`{"version":%d,"epoch":%d,"turns":%d,"bytes":10,"durability":{"level":%q},"handle":"h%d.%d","affinity_ms":1800000%s}`,
		version, epoch, turns, level, epoch, version, more)
}

// memory carries requests to handlers by host without a network, so that time in
// a synctest bubble moves while a call waits.
type memory map[string]http.Handler

func (m memory) RoundTrip(r *http.Request) (res *http.Response, err error) {
	h, ok := m[r.URL.Host]
	if !ok {
		return nil, errors.New("connection refused")
	}
	defer func() {
		switch p := recover(); {
		case p == http.ErrAbortHandler:
			res, err = nil, io.ErrUnexpectedEOF
		case p != nil:
			panic(p)
		}
	}()
	r = r.Clone(r.Context())
	r.Host = r.URL.Host
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	res = rec.Result()
	res.ContentLength = int64(rec.Body.Len())
	return res, nil
}

// config reaches the handlers by host; without names there is one, "berth".
func config(hosts map[string]http.Handler, order ...string) Config {
	cfg := Config{HTTPClient: &http.Client{Transport: memory(maps.Clone(hosts))}}
	for _, host := range order {
		cfg.BaseURLs = append(cfg.BaseURLs, "http://"+host)
	}
	return cfg
}

func only(h http.Handler) Config { return config(map[string]http.Handler{"berth": h}, "berth") }

// worker is instance i1 of the boot "boot-1".
func worker(t *testing.T, cfg Config) *Worker {
	t.Helper()
	w, err := NewWorker(cfg, Instance{ID: "i1", Address: "10.0.0.1:8000", Incarnation: "boot-1"})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// session is s1 as the worker knows it after a route at the given place.
func session(t *testing.T, h http.Handler, epoch, version uint64) *Session {
	t.Helper()
	return sessionOf(t, only(h), epoch, version)
}

func sessionOf(t *testing.T, cfg Config, epoch, version uint64) *Session {
	t.Helper()
	s, err := worker(t, cfg).Open(SessionKey{ID: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	s.Offer(Hint{Handle: Handle(fmt.Sprintf("h%d.%d", epoch, version)), Epoch: epoch, Version: version})
	return s
}

// one is a write of one small turn.
func one(value string) Write { return Write{Turns: []Turn{JSON([]byte(value))}} }

// texts are the contents of turns.
func texts(turns []Turn) (list []string) {
	for _, t := range turns {
		list = append(list, string(t.Value)+string(t.Bytes))
	}
	return list
}
