package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// api speaks plain HTTP with one berth. Its calls return errors, so that they can
// be made from any goroutine.
type api struct {
	url   string
	token string
}

func (b *berth) api() api { return api{url: b.url} }

// callers keeps enough connections for parallel tests.
var callers = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}, // less than servers wait
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// reply is an answer with its body read.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// refused is an answer that is not 2xx.
type refused struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Why    string `json:"why"`
	Owner  struct {
		Instance string `json:"instance"`
		Epoch    uint64 `json:"epoch"`
	} `json:"owner"`
	Parked bool `json:"parked"`
	Have   struct {
		Version uint64 `json:"version"`
		Turns   uint64 `json:"turns"`
	} `json:"have"`
	Want struct {
		Version uint64 `json:"version"`
	} `json:"want"`
}

func (r *refused) Error() string { return fmt.Sprintf("%d %s: %s", r.Status, r.Code, r.Detail) }

// raw makes one call. Header pairs come as "Name: value".
func (a api) raw(ctx context.Context, method, path string, body []byte, headers ...string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.token != "" {
		req.Header.Set("X-Berth-Token", a.token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := callers.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, data}, err
}

// do makes one call with a JSON body, unless in is nil, and reads the answer into
// out, unless that is nil. Anything but 2xx is a *refused.
func (a api) do(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	got, err := a.raw(ctx, method, path, body)
	if err != nil {
		return err
	}
	if got.status/100 != 2 {
		p := &refused{Status: got.status}
		if err := json.Unmarshal(got.body, p); err != nil {
			return fmt.Errorf("%s %s: %d %s", method, path, got.status, got.body)
		}
		return p
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(got.body, out); err != nil {
		return fmt.Errorf("%s %s: read %q: %w", method, path, got.body, err)
	}
	return nil
}

// hint is the answer of /route.
type hint struct {
	Instance string `json:"instance"`
	Address  string `json:"address"`
	Reason   string `json:"reason"`
	Jump     bool   `json:"jump"`
	Previous string `json:"previous"`
	Epoch    uint64 `json:"epoch"`
	Version  uint64 `json:"version"`
	New      bool   `json:"new"`
	Handle   string `json:"handle"`
	Snapshot uint64 `json:"snapshot_version"`
	Degraded string `json:"degraded"`
}

// route asks where the session belongs; query comes as "exclude=i1", "pool=p".
func (a api) route(ctx context.Context, session string, query ...string) (hint, error) {
	q := append([]string{"session=" + url.QueryEscape(session)}, query...)
	var h hint
	err := a.do(ctx, http.MethodGet, "/route?"+strings.Join(q, "&"), nil, &h)
	return h, err
}

// receipt is the answer to an accepted write.
type receipt struct {
	Version    uint64 `json:"version"`
	Epoch      uint64 `json:"epoch"`
	Turns      int    `json:"turns"`
	Handle     string `json:"handle"`
	Duplicate  bool   `json:"duplicate"`
	Durability struct {
		Level string `json:"level"`
	} `json:"durability"`
	Moved *struct {
		Instance string `json:"instance"`
	} `json:"moved"`
}

// credentials are what an instance writes with.
type credentials struct{ instance, incarnation string }

// write is an append as a worker sends it, which it may send again.
type write struct {
	Op          string `json:"op"`
	Handle      string `json:"handle"`
	Instance    string `json:"instance"`
	Incarnation string `json:"incarnation"`
	Turns       []turn `json:"turns"`
}

type turn struct {
	Value json.RawMessage `json:"value"`
}

// newWrite is an append of one turn that holds the op's name.
func newWrite(by credentials, handle, op string) write {
	return write{
		Op: op, Handle: handle, Instance: by.instance, Incarnation: by.incarnation,
		Turns: []turn{{json.RawMessage(`{"turn":"` + op + `"}`)}},
	}
}

func (a api) append(ctx context.Context, session string, w write) (receipt, error) {
	var r receipt
	err := a.do(ctx, http.MethodPost, "/v1/sessions/"+session+"/turns", w, &r)
	return r, err
}

// record is a session as a load tells it.
type record struct {
	Owner struct {
		Instance string `json:"instance"`
	} `json:"owner"`
	Epoch   uint64 `json:"epoch"`
	Version uint64 `json:"version"`
	Count   int    `json:"count"`
	Turns   []turn `json:"turns"`
}

// values are the turns' bytes.
func (r *record) values() []string {
	var all []string
	for _, t := range r.Turns {
		all = append(all, string(t.Value))
	}
	return all
}

func (a api) load(ctx context.Context, session string) (record, error) {
	var r record
	err := a.do(ctx, http.MethodGet, "/v1/sessions/"+session, nil, &r)
	return r, err
}

// states are the instances with their states.
func (a api) states(ctx context.Context) (map[string]string, error) {
	var list struct {
		Instances []struct {
			ID    string `json:"id"`
			State string `json:"state"`
		} `json:"instances"`
	}
	if err := a.do(ctx, http.MethodGet, "/v1/instances", nil, &list); err != nil {
		return nil, err
	}
	states := map[string]string{}
	for _, i := range list.Instances {
		states[i.ID] = i.State
	}
	return states, nil
}

// enlist registers an instance and lets it say once that it is ready.
func (a api) enlist(ctx context.Context, id, pool, address string) (credentials, error) {
	var registered struct {
		Incarnation string `json:"incarnation"`
	}
	err := a.do(ctx, http.MethodPut, "/v1/instances/"+id, map[string]any{"pool": pool, "address": address}, &registered)
	if err != nil {
		return credentials{}, err
	}
	who := credentials{id, registered.Incarnation}
	return who, a.beat(ctx, who, 0)
}

// beat sends a heartbeat with that many running requests.
func (a api) beat(ctx context.Context, who credentials, running int) error {
	return a.do(ctx, http.MethodPost, "/v1/instances/"+who.instance+"/heartbeat", map[string]any{
		"incarnation": who.incarnation, "ready": true, "running": running, "waiting": 0,
	}, nil)
}

// must ends the test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// code is the refusal's code, or what the error says.
func code(err error) string {
	if p, ok := err.(*refused); ok {
		return p.Code
	}
	return fmt.Sprint(err)
}
