package services_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/services"
	"berth/statestore"
	"berth/statestore/boltstore"
)

// Every refusal that the API explains can be met, and every one that is met is
// explained.
func TestEveryRefusalIsReachableAndExplained(t *testing.T) {
	t.Parallel()
	b := setup(t)
	page := b.call("GET", "/docs", "").want(200)
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`"/problems/([a-z_]+)"`).FindAllSubmatch(page.body, -1) {
		listed[string(m[1])] = true
	}
	for code := range listed {
		if refusals[code].meet == nil {
			t.Errorf("nobody knows how to meet %s", code)
		}
	}
	for code, r := range refusals {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			if !listed[code] {
				t.Error("it is not explained")
			}
			a := r.meet(t).refused(r.status, code)
			explained := b.with(t).call("GET", a.str("type"), "").want(200)
			if !strings.Contains(string(explained.body), "What the caller does") {
				t.Errorf("explained as %s", explained.body)
			}
			if wait := a.header.Get("Retry-After"); (wait != "") != (r.status == 503 || r.status == 429) {
				t.Errorf("Retry-After %q with status %d", wait, r.status)
			}
		})
	}
}

// failing meets what an append of a store with that fault is answered.
func failing(fault error) func(*testing.T) answer {
	return func(t *testing.T) answer {
		b, store := setupFaulty(t)
		w := b.worker("i1")
		h := b.route("s").want(200).str("handle")
		store.fail(func(_ context.Context, call string) error {
			if call == "append" {
				return fault
			}
			return nil
		})
		return w.append("s", "op", h, `1`)
	}
}

// owned meets what a call on a session of one turn is answered.
func owned(call func(owner, other *worker, handle string) answer) func(*testing.T) answer {
	return func(t *testing.T) answer {
		b := setup(t)
		owner, other := b.open("s", b.worker("i1"), b.worker("i2"))
		return call(owner, other, b.route("s").want(200).str("handle"))
	}
}

var refusals = map[string]struct {
	status int
	meet   func(*testing.T) answer
}{
	"malformed":    {400, owned(func(w, _ *worker, _ string) answer { return w.call("POST", "/v1/recover", "{") })},
	"invalid":      {422, owned(func(w, _ *worker, _ string) answer { return w.call("POST", "/v1/recover", "{}") })},
	"not_found":    {404, owned(func(w, _ *worker, _ string) answer { return w.call("GET", "/v1/sessions/none", "") })},
	"unknown_pool": {404, owned(func(w, _ *worker, _ string) answer { return w.call("GET", "/route?pool=none", "") })},
	"headers_too_large": {431, owned(func(w, _ *worker, _ string) answer {
		return w.call("GET", "/livez", "", "Cookie: "+strings.Repeat("x", services.MaxHeaderBytes))
	})},
	"method_not_allowed": {405, owned(func(w, _ *worker, _ string) answer { return w.call("PUT", "/livez", "") })},
	"bad_handle":         {403, owned(func(w, _ *worker, h string) answer { return w.append("other", "op", h, `1`) })},
	"op_reused":          {422, owned(func(w, _ *worker, h string) answer { return w.append("s", "first", h, `2`) })},
	"stale_handle":       {409, owned(func(_, other *worker, _ string) answer { return other.recover("s", "", "claim") })},
	"not_owner":          {409, owned(func(_, other *worker, h string) answer { return other.append("s", "op", h, `1`) })},
	"has_sessions":       {409, owned(func(w, _ *worker, _ string) answer { return w.call("DELETE", "/v1/instances/"+w.id, "") })},
	"wrong_state": {409, owned(func(w, _ *worker, _ string) answer {
		w.call("POST", "/v1/drains", `{"instances":["`+w.id+`"]}`).want(202)
		return w.call("POST", "/v1/instances/"+w.id+"/uncordon", "")
	})},
	"no_target": {409, owned(func(w, other *worker, _ string) answer {
		return w.call("POST", "/v1/drains", `{"instances":["i1","i2"]}`)
	})},
	"policy_enforced": {409, func(t *testing.T) answer {
		b := setup(t, func(o *services.Options) {
			o.Policies, o.EnforcePolicies = map[string]services.PoolPolicy{"p": {}}, true
		})
		return b.call("PUT", "/v1/pools/p/policy", `{}`)
	}},
	"unknown_instance": {404, owned(func(w, _ *worker, _ string) answer { return w.call("GET", "/v1/instances/none", "") })},
	"stale_incarnation": {409, owned(func(w, _ *worker, _ string) answer {
		w.worker(w.id) // another boot
		return w.recover("s", "", "claim")
	})},
	"version_conflict": {409, owned(func(w, _ *worker, h string) answer {
		w.append("s", "second", h, `2`).want(200)
		return w.append("s", "third", h, `3`)
	})},
	"op_forgotten": {409, owned(func(w, _ *worker, first string) answer {
		h := first
		for i := range statestore.OpsRemembered + 1 {
			h = w.append("s", fmt.Sprint("op-", i), h, `1`).want(200).str("handle")
		}
		return w.append("s", "late", first, `1`)
	})},
	"deleted": {410, owned(func(w, _ *worker, h string) answer {
		w.call("DELETE", "/v1/sessions/s", "").want(200)
		return w.append("s", "op", h, `1`)
	})},
	"too_large": {413, owned(func(w, _ *worker, h string) answer {
		return w.append("s", "op", h, `1`, `"meta":"`+strings.Repeat("m", 65<<10)+`"`)
	})},
	"unsupported_media": {415, owned(func(w, _ *worker, _ string) answer {
		return w.call("POST", "/v1/sessions/s/turns", "x", "Content-Type: text/plain")
	})},
	"store_behind":      {409, meetLoss},
	"expired":           {410, meetExpiry},
	"timeout":           {408, meetSlowBody},
	"changed":           {409, meetRewrite},
	"outcome_unknown":   {503, failing(&statestore.OutcomeUnknownError{Err: context.DeadlineExceeded})},
	"store_unavailable": {503, failing(statestore.ErrUnavailable)},
	"store_full":        {507, failing(statestore.ErrFull)},
	"internal":          {500, failing(io.ErrUnexpectedEOF)},
	"not_durable": {503, func(t *testing.T) answer {
		a := failing(&statestore.NotDurableError{Reached: statestore.Durability{Level: statestore.LevelFsynced}})(t)
		if a.str("stored") != "true" || a.str("op") != "op" || a.str("durability.level") != "fsynced" {
			t.Errorf("what was reached: %s", a.body)
		}
		return a
	}},
	"not_eligible": {503, func(t *testing.T) answer {
		b := setup(t)
		b.call("PUT", "/v1/instances/i1", `{"address":"10.0.0.1:80"}`).want(200) // warming
		return b.route("s")
	}},
	"busy": {429, func(t *testing.T) answer {
		b := setup(t)
		b.call("PUT", "/v1/pools/default/policy", `{"shed":true,"bound":{"percent":100,"gap":0,"noise":0}}`).want(200)
		w := b.worker("i1")
		b.worker("i2")
		w.beat(50)
		b.call("GET", "/v1/instances", "").want(200) // the fleet is read
		return b.route("s", "&exclude=i2:busy")
	}},
	"unauthorized": {401, func(t *testing.T) answer { return setupTokens(t, gateway).route("s") }},
	"forbidden":    {403, func(t *testing.T) answer { return setupTokens(t, gateway).as("gateway").call("GET", "/v1/jobs", "") }},
	"shutting_down": {503, func(t *testing.T) answer {
		b := setup(t)
		b.server.Stop()
		return b.call("GET", "/readyz", "")
	}},
}

// meetLoss presents what a store was told that has lost it since.
func meetLoss(t *testing.T) answer {
	b := setup(t)
	owner, _ := b.open("s", b.worker("i1"), b.worker("i2"))
	f := b.floor("s")
	f.Version += 2
	return owner.append("s", "op", b.routeHandle("s", f), `1`)
}

// meetExpiry lets a session's time go by between its load and its save (case T05).
func meetExpiry(t *testing.T) answer {
	var ahead atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	store := openStoreIn(t, filepath.Join(t.TempDir(), "berth.db"), boltstore.Options{Clock: clock})
	b := setupOn(t, store)
	b.call("PUT", "/v1/pools/default/policy", `{"affinity_idle_ms":60000,"retention_ms":3600000}`).want(200)
	w := b.worker("i1")
	w.append("s", "first", b.route("s").want(200).str("handle"), `1`).want(200)
	loaded := b.floor("s")
	ahead.Store(int64(61 * time.Minute))
	a := w.append("s", "op", b.routeHandle("s", loaded), `1`)
	b.call("GET", "/v1/sessions/s", "").refused(410, "expired")
	return a
}

// meetSlowBody sends half a body and waits.
func meetSlowBody(t *testing.T) answer {
	b := setup(t, func(o *services.Options) { o.BodyTimeout, o.ContextTimeout = 50*time.Millisecond, 50*time.Millisecond })
	b.half("PUT", "/v1/sessions/s").refused(408, "timeout")
	return b.half("POST", "/v1/recover")
}

// half sends the head of a request and half of its body.
func (b *bundle) half(method, path string) answer {
	b.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(b.t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // read to its end
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: berth\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"op\":", method, path)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.take(resp)
}

// A body that says that it is too large is not waited for.
func TestATooLargeBodyIsRefusedBeforeItComes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, call := range []string{
		"PUT /v1/sessions/s", "POST /v1/sessions/s/turns", "POST /v1/recover", "PUT /v1/instances/i1",
		"POST /v1/instances/i1/heartbeat", "POST /v1/outcomes", "PUT /v1/pools/default/policy", "POST /v1/drains",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // read to its end
		if _, err := fmt.Fprint(conn, call+" HTTP/1.1\r\nHost: berth\r\nContent-Length: 1000000000\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", call, err)
		}
		a := b.take(resp).refused(413, "too_large")
		if a.str("what") != "body" || a.str("size") != "1000000000" || !resp.Close {
			t.Fatalf("%s: %s, close %v", call, a.body, resp.Close)
		}
	}
}

// The case of a media type means nothing.
func TestMediaTypesHaveNoCase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	for _, call := range [][3]string{
		{"PUT", "/v1/instances/i2", `{"address":"10.0.0.9:1"}`},
		{"POST", "/v1/instances/i1/heartbeat", `{"incarnation":"` + w.incarnation + `","running":0,"waiting":0}`},
		{"PATCH", "/v1/instances/i1", `{"weight":50}`},
		{"POST", "/v1/outcomes", `{"outcomes":[]}`},
	} {
		if got := b.call(call[0], call[1], call[2], "Content-Type: APPLICATION/Json; Charset=UTF-8"); got.status >= 300 {
			t.Errorf("%s %s: %d %s", call[0], call[1], got.status, got.body)
		}
	}
}

// What failed inside is told to the log and not to the caller.
func TestRefusalsDoNotTellWhatFailedInside(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t)
	w := b.worker("i1")
	h := b.route("s").want(200).str("handle")
	for _, sentinel := range []error{statestore.ErrUnavailable, statestore.ErrFull, io.ErrUnexpectedEOF, context.DeadlineExceeded, &statestore.OutcomeUnknownError{Err: io.EOF}} {
		fault := fmt.Errorf("dial tcp 10.1.2.3:6379: %w", sentinel)
		store.fail(func(_ context.Context, call string) error {
			if call == "append" {
				return fault
			}
			return nil
		})
		a := w.append("s", "op", h, `1`)
		if a.status < 500 || strings.Contains(string(a.body), "10.1.2.3") {
			t.Errorf("told %s", a.body)
		}
		if !strings.Contains(b.logs.String(), sentinel.Error()) {
			t.Errorf("the log does not tell %v", sentinel)
		}
	}
}

// meetRewrite has the context replaced between two looks of one recovery.
func meetRewrite(t *testing.T) answer {
	b, store := setupFaulty(t)
	w := b.worker("i1")
	h := w.append("s", "first", b.route("s").want(200).str("handle"), `1`).want(200).str("handle")
	var loads atomic.Int64
	store.fail(func(ctx context.Context, call string) error {
		if call != "load" || loads.Add(1) != 2 {
			return nil
		}
		_, err := store.Store.Replace(ctx, statestore.Replace{
			Key: statestore.SessionKey{Tenant: "default", Pool: "default", ID: "s"}, Op: "op", Turns: nil,
			By:     statestore.Owner{Instance: w.id, Incarnation: statestore.IncarnationDigest(w.incarnation)},
			Handle: statestore.Presented{Floor: b.floor("s")}, Lifetimes: statestore.Lifetimes{Affinity: time.Hour, Retention: time.Hour, Tombstone: time.Hour},
		})
		return err
	})
	return w.recover("s", h, "read", fmt.Sprintf(`"have":{"handle":%q,"turns":1}`, h))
}
