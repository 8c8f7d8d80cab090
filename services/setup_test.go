package services_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/services"
	"berth/statestore"
	"berth/statestore/boltstore"
)

// bundle is a server on the embedded store, reached over HTTP.
type bundle struct {
	t      testing.TB
	store  statestore.Store
	server *services.Server
	url    string
	client http.Client
	logs   *safeBuffer
	token  string // sent with every call, if not empty
	stop   func() // ends the server, not the store
	saw    func(answer)
}

type option func(*services.Options)

func setup(t testing.TB, options ...option) *bundle {
	t.Helper()
	return setupOn(t, openStore(t), options...)
}

func openStore(t testing.TB) statestore.Store {
	t.Helper()
	return openStoreIn(t, filepath.Join(t.TempDir(), "berth.db"), boltstore.Options{})
}

func openStoreIn(t testing.TB, path string, o boltstore.Options) statestore.Store {
	t.Helper()
	store, err := boltstore.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// setupOn starts another process, so to say, on the same store.
func setupOn(t testing.TB, store statestore.Store, options ...option) *bundle {
	t.Helper()
	b := start(t, store, options...)
	web := httptest.NewUnstartedServer(b.server.Handler())
	web.Listener = b.server.Listener(t.Context(), web.Listener)
	web.Config.MaxHeaderBytes = 2 * services.MaxHeaderBytes
	web.Start()
	stop := b.stop
	b.stop = sync.OnceFunc(func() {
		b.server.Stop()
		web.Close()
		stop()
	})
	t.Cleanup(b.stop)
	b.url, b.client.Transport = web.URL, nil
	return b
}

// start starts a server that is reached without a network: a connection would be
// something outside of a bubble of virtual time.
func start(t testing.TB, store statestore.Store, options ...option) *bundle {
	t.Helper()
	b := &bundle{t: t, store: store, logs: new(safeBuffer)}
	o := services.Options{
		Store: store, Process: fmt.Sprintf("%s-%d", t.Name(), processes.Add(1)), Version: "test",
		Logger: slog.New(slog.NewTextHandler(b.logs, nil)),
		// A busy machine must not look like silent instances or a slow store.
		SuspectAfter: 10 * time.Minute, DownAfter: 20 * time.Minute, StoreTimeout: 20 * time.Second,
	}
	for _, set := range options {
		set(&o)
	}
	server, err := services.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(b.stop)
	b.server, b.client.Transport = server, direct{server.Handler()}
	return b
}

// direct hands requests to a handler.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// processes numbers the servers, which share leases by their names.
var processes atomic.Int64

// with is the same bundle in a test below the one that made it.
func (b *bundle) with(t testing.TB) *bundle {
	same := *b
	same.t = t
	return &same
}

// answer is a response with its body read.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

// call makes a request. Headers come as pairs "Name: value".
func (b *bundle) call(method, path, body string, headers ...string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if b.token != "" {
		req.Header.Set("X-Berth-Token", b.token)
	}
	given := http.Header{}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		given[name] = append(given[name], value) // as it stands
	}
	maps.Copy(req.Header, given)
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.take(resp)
}

// take reads a response to its end.
func (b *bundle) take(resp *http.Response) answer {
	b.t.Helper()
	defer resp.Body.Close() //nolint:errcheck // read to its end
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	a := answer{t: b.t, status: resp.StatusCode, header: resp.Header, body: data}
	if b.saw != nil {
		b.saw(a)
	}
	return a
}

// want fails unless the status is the one expected.
func (a answer) want(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// refused fails unless the answer is that refusal.
func (a answer) refused(status int, code string) answer {
	a.t.Helper()
	if a.status != status || a.str("code") != code {
		a.t.Fatalf("got %d %s, want %d %s", a.status, a.body, status, code)
	}
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		a.t.Fatalf("content type %q", ct)
	}
	if a.str("type") != "/problems/"+code || a.str("instance") == "" {
		a.t.Fatalf("type or request id is missing: %s", a.body)
	}
	return a
}

// at reads a member of the JSON body by a dotted path.
func (a answer) at(path string) any {
	a.t.Helper()
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		a.t.Fatalf("%v: %s", err, a.body)
	}
	for part := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[part]
		case []any:
			var i int
			if _, err := fmt.Sscan(part, &i); err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

func (a answer) str(path string) string {
	a.t.Helper()
	if v := a.at(path); v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

// worker is an instance that a test plays.
type worker struct {
	*bundle
	id, incarnation string
}

// worker registers an instance that is ready at once.
func (b *bundle) worker(id string, members ...string) *worker {
	b.t.Helper()
	address := fmt.Sprintf(`"10.0.%d.%d:8000"`, id[0], len(id)+int(id[len(id)-1]))
	body := fmt.Sprintf(`{"address":%s%s}`, address, strings.Join(append([]string{""}, members...), ","))
	w := &worker{bundle: b, id: id}
	w.incarnation = b.call("PUT", "/v1/instances/"+id, body).want(200).str("incarnation")
	w.beat(0)
	return w
}

// beat sends a heartbeat with that many running requests.
func (w *worker) beat(running int) answer {
	w.t.Helper()
	body := fmt.Sprintf(`{"incarnation":%q,"ready":true,"running":%d,"waiting":0}`, w.incarnation, running)
	return w.call("POST", "/v1/instances/"+w.id+"/heartbeat", body).want(200)
}

func (b *bundle) route(session string, extra ...string) answer {
	b.t.Helper()
	return b.call("GET", "/route?session="+session+strings.Join(extra, ""), "")
}

// append writes one JSON turn.
func (w *worker) append(session, op, handle, value string, members ...string) answer {
	w.t.Helper()
	body := fmt.Sprintf(`{"op":%q,"handle":%q,"instance":%q,"incarnation":%q,"turns":[{"value":%s}]%s}`,
		op, handle, w.id, w.incarnation, value, strings.Join(append([]string{""}, members...), ","))
	return w.call("POST", "/v1/sessions/"+session+"/turns", body)
}

// recover asks for a session; members are further ones of the body.
func (w *worker) recover(session, handle, mode string, members ...string) answer {
	w.t.Helper()
	body := fmt.Sprintf(`{"session":%q,"handle":%q,"instance":%q,"incarnation":%q,"mode":%q%s}`,
		session, handle, w.id, w.incarnation, mode, strings.Join(append([]string{""}, members...), ","))
	return w.call("POST", "/v1/recover", body)
}

// with is the same worker in a test below the one that made it.
func (w *worker) with(t testing.TB) *worker {
	same := *w
	same.bundle = w.bundle.with(t)
	return &same
}

// replace writes the whole context, of one JSON turn.
func (w *worker) replace(session, op, handle, value string) answer {
	w.t.Helper()
	body := fmt.Sprintf(`{"op":%q,"handle":%q,"instance":%q,"incarnation":%q,"turns":[{"value":%s}]}`, op, handle, w.id, w.incarnation, value)
	return w.call("PUT", "/v1/sessions/"+session, body)
}

func (w *worker) finish(session, handle string) answer {
	w.t.Helper()
	body := fmt.Sprintf(`{"handle":%q,"instance":%q,"incarnation":%q}`, handle, w.id, w.incarnation)
	return w.call("POST", "/v1/sessions/"+session+"/finish", body)
}

// open begins a session of one turn, and tells its owner from the other worker.
func (b *bundle) open(session string, w1, w2 *worker) (owner, other *worker) {
	b.t.Helper()
	owner, other = w1, w2
	hint := b.route(session).want(200)
	if hint.str("instance") == w2.id {
		owner, other = w2, w1
	}
	owner.append(session, "first", hint.str("handle"), `"hello"`).want(200)
	return owner, other
}
