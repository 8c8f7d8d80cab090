package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func gateway(t *testing.T, h http.Handler) *Gateway {
	t.Helper()
	g, err := NewGateway(only(h))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestRoute(t *testing.T) {
	t.Parallel()
	berth := newScript(t, reply(200, `{"instance":"i2","address":"[fd00::8]:8000","rank":1,"scheme":"http","reason":"failover","jump":true,`+
		`"previous":"i1","epoch":7,"version":3,"handle":"h7.3","fallbacks":[{"instance":"i3","address":"10.0.0.3:8000"}],`+
		`"snapshot_version":12,"valid_ms":2000,"degraded":"miss_budget"}`))
	r, err := gateway(t, berth).Route(t.Context(), RouteRequest{
		Session: SessionKey{ID: " s/1&", Tenant: "t", Pool: "p"}, Model: "m", Key: "user 7",
		Exclude: []Exclusion{{Instance: "i3", Result: ResultTimeout}, {Instance: "i4"}},
		Subset:  []string{"10.0.0.1:8000", "[fd00::8]:8000"}, Fallbacks: 2, Handle: "held",
	})
	if err != nil {
		t.Fatal(err)
	}
	rank := 1
	want := &Route{
		Endpoint: Endpoint{"i2", "[fd00::8]:8000"}, Rank: &rank, Scheme: "http", Reason: "failover", Jump: true, Previous: "i1",
		Epoch: 7, Version: 3, Handle: "h7.3", SnapshotVersion: 12, ValidMS: 2000, Degraded: "miss_budget",
		Fallbacks: []Endpoint{{"i3", "10.0.0.3:8000"}},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("route %+v", r)
	}
	got := berth.requests(1)[0]
	q, _ := url.ParseQuery(got.query)
	wantQuery := url.Values{
		"session": {" s/1&"}, "pool": {"p"}, "model": {"m"}, "key": {"user 7"}, "exclude": {"i3:timeout,i4"},
		"subset": {"10.0.0.1:8000,[fd00::8]:8000"}, "fallbacks": {"2"},
	}
	if got.path != "/route" || !reflect.DeepEqual(q, wantQuery) || got.header.Get("X-Berth-Handle") != "held" || got.header.Get("X-Berth-Tenant") != "t" {
		t.Errorf("asked %s?%s with %v", got.path, got.query, got.header)
	}
}

func TestRouteRefused(t *testing.T) {
	t.Parallel()
	_, err := gateway(t, newScript(t, refuse(503, ErrNotEligible, ""))).Route(t.Context(), RouteRequest{})
	var p *Problem
	if !errors.Is(err, ErrNotEligible) || !errors.As(err, &p) || p.RetryAfter != time.Second {
		t.Errorf("error %v", err)
	}
	if _, err := gateway(t, newScript(t)).Route(t.Context(), RouteRequest{Session: SessionKey{ID: "a\x00"}}); err == nil {
		t.Error("an id with a control character was asked for")
	}
}

// What a gateway passes on is what the worker reads; what a client forged is not
// (R23: nothing is dropped on the way).
func TestHintTravelsFromGatewayToWorker(t *testing.T) {
	t.Parallel()
	rank := 0
	r := &Route{Endpoint: Endpoint{"i2", "10.0.0.2:8000"}, Rank: &rank, Epoch: 7, Version: 3, Handle: "h7.3"}
	h := http.Header{"X-Berth-Epoch": {"999"}, "X-Berth-New": {"true"}, "X-Berth-Tenant": {"other"}, "X-Berth-Forwarded": {"i9"}, "Accept": {"*/*"}}
	Strip(h)
	if len(h) != 1 {
		t.Errorf("left of a client's headers: %v", h)
	}
	key := SessionKey{ID: "s1", Tenant: "t", Pool: "p"}
	r.Pass(h, key)
	got, err := FromHeader(h)
	want := Request{Session: key, Instance: "i2", Rank: &rank, Hint: Hint{Handle: "h7.3", Epoch: 7, Version: 3}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, error %v", got, err)
	}
	r = &Route{Endpoint: Endpoint{"i2", "10.0.0.2:8000"}, Epoch: 7, New: true, Handle: "h7.0"}
	h = http.Header{}
	r.Pass(h, key)
	if got, err = FromHeader(h); err != nil || got.Hint != r.Hint() || !got.Hint.New {
		t.Errorf("of a new session it read %+v, error %v", got, err)
	}
	stateless := http.Header{}
	(&Route{Endpoint: Endpoint{"i2", "10.0.0.2:8000"}}).Pass(stateless, SessionKey{})
	if len(stateless) != 1 {
		t.Errorf("passed on without a session: %v", stateless)
	}
	for _, name := range []string{"X-Berth-Epoch", "X-Berth-Version", "X-Data-Parallel-Rank"} {
		if _, err := FromHeader(http.Header{http.CanonicalHeaderKey(name): {"x"}}); err == nil {
			t.Errorf("%s: x was read", name)
		}
	}
}

// A worker recovers unless its own copy has what the hint knows of.
func TestCurrent(t *testing.T) {
	t.Parallel()
	berth := newScript(t, accept(7, 1, 1, "fsynced"), accept(7, 2, 2, "fsynced"), accept(7, 4, 4, "fsynced"))
	s := session(t, berth, 0, 0)
	check := func(h Hint, want bool) {
		t.Helper()
		if s.Current(h) != want {
			t.Errorf("current for %+v: %v", h, !want)
		}
	}
	check(Hint{New: true}, true)
	check(Hint{}, false) // a header that says 0 may come from a Berth that could not look
	s.Offer(Hint{Handle: "h3.0", Epoch: 3, New: true})
	check(Hint{Handle: "h3.0", Epoch: 3, New: true}, true)
	if err := ops(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	check(Hint{Epoch: 9, New: true}, false) // its copy is of a life that has ended
	check(Hint{Epoch: 7, Version: 1}, true)
	check(Hint{Epoch: 7, Version: 2}, false)
	if err := appendEnd(t, s, "b"); err != nil {
		t.Fatal(err)
	}
	check(Hint{Epoch: 7, Version: 2}, true)
	check(Hint{Epoch: 8, Version: 2}, false)
	if h := s.Have(); h == nil || h.Handle != "h7.1" || h.Turns != 1 {
		t.Errorf("have %+v: a write at the end adds nothing to what is sure", h)
	}
	if err := appendEnd(t, s, "c"); err != nil { // somebody else wrote version 3
		t.Fatal(err)
	}
	check(Hint{Epoch: 7, Version: 4}, false)
}

// A copy that was only read, or belongs to an earlier boot, is no reason not to
// claim: nobody else would, and every write would be refused (T20, R18).
func TestCurrentNeedsOwnership(t *testing.T) {
	t.Parallel()
	head := lines(`{"epoch":7,"version":3,"base":0,"count":0,"handle":"h7.3"}` + "\n")
	berth := newScript(t, head, head, reply(200, registered), head,
		reply(200, `{"epoch":8,"durability":{"level":"fsynced"},"handle":"h8.3"}`))
	s := session(t, berth, 7, 3)
	hint := Hint{Handle: "h7.3", Epoch: 7, Version: 3}
	got := func(mode RecoverMode) bool {
		if _, err := s.Recover(t.Context(), RecoverRequest{Mode: mode}); err != nil {
			t.Fatal(err)
		}
		return s.Current(hint)
	}
	if got(Read) {
		t.Error("a read made it the owner")
	}
	if !got(Claim) {
		t.Error("a claim did not make it the owner")
	}
	if err := s.w.Register(t.Context()); err != nil { // another boot
		t.Fatal(err)
	}
	if s.Current(hint) {
		t.Error("the claim of another boot counts")
	}
	if !got(Claim) {
		t.Error("a claim did not make it the owner again")
	}
	if _, err := s.Finish(t.Context()); err != nil || s.Current(hint) || s.Current(Hint{Epoch: 8, Version: 3}) {
		t.Errorf("it owns what it released; error %v", err)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	sink := newSink()
	var list []Outcome
	for i := range 250 {
		list = append(list, Outcome{Session: SessionKey{ID: fmt.Sprint("s", i), Pool: "p"}, Instance: "i1", Result: ResultOK})
	}
	list = append(list, Outcome{
		Session: SessionKey{ID: "x", Tenant: "t"}, Handle: "h", Instance: "i2", Result: Result5xx, Status: 502,
		TTFT: 1500 * time.Microsecond, Usage: json.RawMessage(`{"prompt_tokens":3}`),
	})
	if err := gateway(t, sink).Outcomes(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	slices.Sort(sink.calls)
	want := []string{"t//1", "/p/100", "/p/100", "/p/50"}
	slices.Sort(want)
	if !slices.Equal(sink.calls, want) {
		t.Errorf("calls %q", sink.calls)
	}
	if !slices.Contains(sink.outcomes, `{"session":"x","handle":"h","instance":"i2","result":"5xx","status":502,"ttft_ms":1.5,"usage":{"prompt_tokens":3}}`) {
		t.Errorf("told %s", sink.outcomes[len(sink.outcomes)-1])
	}
}

// sink takes outcomes.
type sink struct {
	calls    []string // tenant/pool/number
	outcomes []string
	refuse   bool
}

func newSink() *sink { return &sink{} }

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.refuse {
		refuse(503, "shutting_down", "")(w, r)
		return
	}
	var in struct{ Outcomes []json.RawMessage }
	_ = json.NewDecoder(r.Body).Decode(&in)
	s.calls = append(s.calls, fmt.Sprintf("%s/%s/%d", r.Header.Get("X-Berth-Tenant"), r.Header.Get("X-Berth-Pool"), len(in.Outcomes)))
	for _, o := range in.Outcomes {
		s.outcomes = append(s.outcomes, string(o))
	}
	reply(202, `{"accepted":1}`)(w, r)
}

// A reporter tells in batches, never blocks, tells what is left at its end, and
// counts what nobody took.
func TestReporter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		berth := newSink()
		r := NewReporter(gateway(t, berth))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		add := func(n int) {
			for range n {
				r.Add(Outcome{Instance: "i1", Result: ResultOK})
			}
		}
		add(3)
		time.Sleep(reportEvery)
		synctest.Wait()
		add(maxOutcomes) // full: told at once
		synctest.Wait()
		if got := strings.Join(berth.calls, " "); got != "//3 //100" {
			t.Errorf("told %s", got)
		}
		berth.refuse = true
		add(5)
		time.Sleep(reportEvery)
		synctest.Wait()
		if r.Dropped() != 5 {
			t.Errorf("%d are counted as dropped", r.Dropped())
		}
		berth.refuse = false
		add(2)
		cancel()
		<-done
		if got := berth.calls[len(berth.calls)-1]; got != "//2" {
			t.Errorf("told last %s", got)
		}
		add(maxUnsent + 7)
		if r.Dropped() != 12 {
			t.Errorf("%d are counted as dropped", r.Dropped())
		}
	})
}

// What a worker answers that is not the owner.
func TestAnswerNotOwner(t *testing.T) {
	t.Parallel()
	owned := &Problem{Code: ErrNotOwner, Owner: &Owner{Instance: "i2", Address: "10.0.0.2:8000", Epoch: 9}}
	for name, c := range map[string]struct {
		err                error
		want               bool
		instance, endpoint string
	}{
		"an owner":      {fmt.Errorf("append: %w", &WriteError{Err: owned}), true, "i2", "10.0.0.2:8000"},
		"stale handle":  {&Problem{Code: ErrStaleHandle, Owner: owned.Owner}, true, "i2", "10.0.0.2:8000"},
		"nobody":        {&Problem{Code: ErrNotOwner}, true, "", ""},
		"another error": {&Problem{Code: ErrExpired, Owner: owned.Owner}, false, "", ""},
	} {
		rec := httptest.NewRecorder()
		if AnswerNotOwner(rec, c.err) != c.want {
			t.Errorf("%s: answered %v", name, !c.want)
		}
		h := rec.Header()
		if c.want && (rec.Code != 503 || h.Get("Retry-After") != "0" || h.Get("X-Berth-Instance") != c.instance || h.Get("X-Gateway-Destination-Endpoint") != c.endpoint) {
			t.Errorf("%s: %d %v", name, rec.Code, h)
		}
	}
}

// A request is forwarded to the owner once, body and stream and all.
func TestForward(t *testing.T) {
	t.Parallel()
	owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Engine", "i2")
		_, _ = fmt.Fprintf(w, "%s %s forwarded by %s", r.Method, r.URL.RequestURI(), r.Header.Get("X-Berth-Forwarded"))
	}))
	defer owner.Close()
	refused := &Problem{Code: ErrNotOwner, Owner: &Owner{Instance: "i2", Address: strings.TrimPrefix(owner.URL, "http://")}}
	f := &Forwarder{Instance: "i1"}
	rec := httptest.NewRecorder()
	if err := f.Forward(rec, httptest.NewRequest("POST", "/v1/chat?x=1", strings.NewReader("{}")), refused); err != nil {
		t.Fatal(err)
	}
	if rec.Body.String() != "POST /v1/chat?x=1 forwarded by i1" || rec.Header().Get("X-Engine") != "i2" {
		t.Errorf("answered %q", rec.Body)
	}
	again := httptest.NewRequest("POST", "/", nil)
	again.Header.Set("X-Berth-Forwarded", "i3")
	if err := f.Forward(httptest.NewRecorder(), again, refused); !errors.Is(err, ErrForwarded) {
		t.Errorf("a second hop: %v", err)
	}
	if err := f.Forward(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil), &Problem{Code: ErrNotOwner}); err == nil {
		t.Error("forwarded to nobody")
	}
	rec = httptest.NewRecorder()
	here := &Problem{Code: ErrNotOwner, Why: "failover", Owner: &Owner{Instance: "i1", Address: strings.TrimPrefix(owner.URL, "http://")}}
	if err := f.Forward(rec, httptest.NewRequest("POST", "/", nil), here); !errors.Is(err, ErrOwnedHere) || rec.Body.Len() > 0 {
		t.Errorf("forwarded to itself: %v, %q", err, rec.Body)
	}
	owner.Close()
	rec = httptest.NewRecorder()
	if err := f.Forward(rec, httptest.NewRequest("POST", "/", nil), refused); err != nil || rec.Code != 503 || rec.Header().Get("X-Berth-Instance") != "i2" {
		t.Errorf("an owner that is away: %d %v, error %v", rec.Code, rec.Header(), err)
	}
}
