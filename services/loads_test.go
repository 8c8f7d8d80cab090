package services_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"berth/statestore"
)

// torn is a store whose loads end early: after some turns, with an error, or with a
// panic if there is none.
type torn struct {
	statestore.Store
	after int
	err   error
}

func (s *torn) Load(ctx context.Context, key statestore.SessionKey, from uint64) (statestore.Reading, error) {
	r, err := s.Store.Load(ctx, key, from)
	whole := r.Turns
	r.Turns = func(yield func(statestore.NumberedTurn, error) bool) {
		n := 0
		for turn, err := range whole {
			if n == s.after {
				if s.err == nil {
					panic("a bug")
				}
				yield(statestore.NumberedTurn{}, s.err)
				return
			}
			n++
			if !yield(turn, err) {
				return
			}
		}
	}
	return r, err
}

// Until part of an answer has left, a load that fails is a refusal; after that the
// lines say so, and an object is cut off: no answer looks whole that is not.
func TestALoadThatFailsNeverLooksWhole(t *testing.T) {
	t.Parallel()
	large := `"` + strings.Repeat("x", 100<<10) + `"`
	cases := []struct {
		name, turn string
		after      int
		err        error
		lines      bool
		status     int
		code, last string // of a refusal, or the last line
	}{
		{"rewritten at once", `1`, 0, statestore.ErrChanged, false, 409, "changed", ""},
		{"rewritten at once, as lines", `1`, 0, statestore.ErrChanged, true, 409, "changed", ""},
		{"unavailable at once", `1`, 0, statestore.ErrUnavailable, false, 503, "store_unavailable", ""},
		{"a bug at once", `1`, 0, nil, false, 500, "internal", ""},
		{"rewritten later", large, 2, statestore.ErrChanged, false, 0, "", ""},
		{"rewritten later, as lines", large, 2, statestore.ErrChanged, true, 200, "", `{"changed":true}`},
		{"unavailable later", large, 2, statestore.ErrUnavailable, false, 0, "", ""},
		{"unavailable later, as lines", large, 2, statestore.ErrUnavailable, true, 200, "", `"code":"store_unavailable"`},
		{"a bug later", large, 2, nil, false, 0, "", ""},
		{"a bug later, as lines", large, 2, nil, true, 0, "", ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			store := &torn{Store: openStore(t), after: tc.after, err: tc.err}
			b := setupOn(t, store)
			w := b.worker("i1")
			h := b.route("s").want(200).str("handle")
			for i := range 4 {
				h = w.append("s", fmt.Sprint("op-", i), h, tc.turn).want(200).str("handle")
			}
			accept := "application/json"
			if tc.lines {
				accept = "application/x-ndjson"
			}
			status, header, body, err := b.whole("/v1/sessions/s", accept)
			switch {
			case tc.status == 0:
				if err == nil {
					t.Fatalf("the answer looks whole: %d ... %s", status, body[max(0, len(body)-200):])
				}
			case tc.code != "":
				a := answer{t: t, status: status, header: header, body: body}
				a.refused(tc.status, tc.code)
				if (header.Get("Retry-After") != "") != (tc.status == 503) {
					t.Errorf("headers %v", header)
				}
			default:
				lines := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
				if err != nil || len(lines) != 2+tc.after || !strings.Contains(lines[len(lines)-1], tc.last) {
					t.Fatalf("%v, %d lines, the last %.200s", err, len(lines), lines[len(lines)-1])
				}
			}
			end := "failed"
			if errors.Is(tc.err, statestore.ErrChanged) {
				end = "changed"
			}
			if n := b.metric(`berth_loads_total{end="` + end + `"}`); n != 1 || b.metric(`berth_loads_total{end="whole"}`) != 0 {
				t.Errorf("%v loads %s", n, end)
			}
			if strings.Contains(b.logs.String(), "xxxx") {
				t.Error("the log tells what was said")
			}
		})
	}
}

// whole reads an answer as far as it comes.
func (b *bundle) whole(path, accept string) (int, http.Header, []byte, error) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it comes
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, body, err
}

// A client that goes away in the middle of a write leaves it stored or not stored,
// and the same op says which; nobody is alarmed in the log.
func TestAClientThatLeavesInTheMiddle(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t)
	w := b.worker("i1")
	h := b.route("s").want(200).str("handle")
	reached := make(chan struct{})
	store.fail(func(ctx context.Context, call string) error {
		if call != "append" {
			return nil
		}
		close(reached)
		<-ctx.Done() // the server has seen that the client is gone
		return ctx.Err()
	})
	ctx, leave := context.WithCancel(t.Context())
	body := fmt.Sprintf(`{"op":"op","handle":%q,"instance":"i1","incarnation":%q,"turns":[{"value":1}]}`, h, w.incarnation)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/sessions/s/turns", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close() //nolint:errcheck // not read
		}
		gone <- err
	}()
	<-reached
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatalf("the client that left got %v", err)
	}
	store.fail(nil)
	if a := w.append("s", "op", h, `1`).want(200); a.str("version") != "1" || a.str("turns") != "1" {
		t.Fatalf("again: %s", a.body)
	}
	b.stop()
	if logs := b.logs.String(); strings.Contains(logs, "call failed") {
		t.Errorf("the log is alarmed:\n%s", logs)
	}
}

// A deleted session is also what instances hold of it in their caches and files:
// they are asked to forget it, whichever boot is there now.
func TestADeleteAsksInstancesToForget(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner, other := b.open("s", b.worker("i1"), b.worker("i2"))
	for _, w := range []*worker{owner, other} {
		w.call("PUT", "/v1/sessions/s/kv", fmt.Sprintf(`{"instance":%q,"incarnation":%q,"placements":[{"tier":"slot_file","tokens":1,"version":1}]}`, w.id, w.incarnation)).want(204)
	}
	again := b.worker(other.id) // its slot files outlive the boot that wrote them
	if a := b.call("DELETE", "/v1/sessions/s", "").want(200); a.str("forget_pending") != "2" {
		t.Fatalf("deleted: %s", a.body)
	}
	for _, w := range []*worker{owner, again} {
		a := w.call("GET", "/v1/instances/"+w.id+"/tasks?wait=1s", "", "X-Berth-Incarnation: "+w.incarnation).want(200)
		if a.str("tasks.0.kind") != "forget" || a.str("tasks.0.session") != "s" || a.at("tasks.0.handle") != nil || a.header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%s is asked %s", w.id, a.body)
		}
		done := fmt.Sprintf(`{"incarnation":%q,"result":"done"}`, w.incarnation)
		path := "/v1/instances/" + w.id + "/tasks/" + a.str("tasks.0.id")
		w.call("POST", path, done).want(204)
		w.call("POST", path, done).want(204)
	}
	other.call("GET", "/v1/instances/"+other.id+"/tasks", "", "X-Berth-Incarnation: "+other.incarnation).refused(409, "stale_incarnation")
	if a := b.call("DELETE", "/v1/sessions/s", "").want(200); a.str("deleted") != "false" || a.str("forget_pending") != "0" {
		t.Fatalf("again: %s", a.body)
	}
}

// A cache that was reset or got new weights holds nothing of before, also where the
// placement did not tell its generation.
func TestAGrowingGenerationVoidsPlacements(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	generation := func(g int) {
		w.call("POST", "/v1/instances/i1/heartbeat", fmt.Sprintf(`{"incarnation":%q,"running":0,"waiting":0,"kv_generation":%d}`, w.incarnation, g)).want(200)
		b.call("GET", "/v1/instances", "").want(200)
	}
	verdict := func() string { return w.recover("s", "", "read").want(200).str("kv.0.verdict") }
	generation(4)
	h := w.append("s", "one", b.route("s").want(200).str("handle"), `1`, `"kv":[{"tier":"gpu","tokens":10,"version":1}]`).want(200).str("handle")
	if got := verdict(); got != "usable" {
		t.Fatalf("of this generation: %s", got)
	}
	generation(5)
	if got := verdict(); got != "lapsed" {
		t.Fatalf("of the generation before: %s", got)
	}
	w.append("s", "two", h, `2`, `"kv":[{"tier":"gpu","tokens":20,"version":2,"generation":5}]`).want(200)
	if got := verdict(); got != "usable" {
		t.Fatalf("made anew: %s", got)
	}
	if a := b.route("s").want(200); a.str("reason") != "bound" {
		t.Fatalf("the binding went with it: %s", a.body)
	}
}
