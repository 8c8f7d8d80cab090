package client

import (
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const recovered3 = `{"epoch":9,"version":3,"base":1,"count":3,"digest":"d1","meta":{"tools":[1]},"handle":"h9.3","plan":"kv_prefix",` +
	`"kv":[{"instance":"i1","verdict":"usable_prefix","tier":"host","tokens":512,"version":2}],` +
	`"parked":[{"op":"late","by":{"instance":"i1"},"version":2,"age_ms":1500,"turns":[{"type":"application/json","base64":"eyJhIjogMX0="}]}]`

// One call brings everything that is needed to go on, by either form.
func TestRecover(t *testing.T) {
	t.Parallel()
	turns := []string{`{"n":1,"type":"application/json","value":{"b":  2}}`, `{"n":2,"type":"application/octet-stream","base64":"AP8="}`}
	for name, answer := range map[string]step{
		"lines": lines(recovered3 + "}\n" + turns[0] + "\n" + turns[1] + "\n"),
		"JSON":  reply(200, recovered3+`,"turns":[`+strings.Join(turns, ",")+`]}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			berth := newScript(t, answer, accept(9, 4, 4, "fsynced"))
			s := session(t, berth, 8, 3)
			r, err := s.Recover(t.Context(), RecoverRequest{Mode: Claim, Have: &HaveCopy{Handle: "h7.1", Turns: 1}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Epoch != 9 || r.Base != 1 || r.Plan != PlanKVPrefix || r.Digest != "d1" || string(r.Meta) != `{"tools":[1]}` {
				t.Errorf("recovery %+v", r)
			}
			if len(r.KV) != 1 || r.KV[0].Verdict != "usable_prefix" || r.KV[0].Tokens != 512 {
				t.Errorf("placements %+v", r.KV)
			}
			if len(r.Turns) != 2 || string(r.Turns[0].Value) != `{"b":  2}` || string(r.Turns[1].Bytes) != "\x00\xff" || r.Turns[1].N != 2 {
				t.Errorf("turns %q", texts(r.Turns))
			}
			if len(r.Parked) != 1 || r.Parked[0].By != "i1" || r.Parked[0].Age != 1500*time.Millisecond || string(r.Parked[0].Turns[0].Value) != `{"a": 1}` {
				t.Errorf("parked %+v", r.Parked)
			}
			// The owner adopts what is parked by writing it under its own op.
			if _, err := s.Append(t.Context(), r.Parked[0].Write()); err != nil {
				t.Fatal(err)
			}
			got := berth.requests(2)
			if got[0].member(t, "handle") != "h8.3" || got[0].member(t, "incarnation") != "boot-1" || got[0].header.Get("Accept") != "application/x-ndjson" {
				t.Errorf("asked with %s", got[0].body)
			}
			if got[1].member(t, "op") != "late" || got[1].member(t, "at") != "end" || got[1].member(t, "handle") != "h9.3" ||
				!strings.Contains(string(got[1].body), `{"value":{"a": 1}}`) {
				t.Errorf("adopted with %s", got[1].body)
			}
		})
	}
}

// A stream that Berth tore is read again from the start; one that breaks is too.
func TestTornStreamsAreReadAgain(t *testing.T) {
	t.Parallel()
	const head = `{"epoch":7,"version":3,"count":2,"handle":"h7.3"}` + "\n" + `{"n":0,"type":"application/json","value":"old"}` + "\n"
	whole := lines(`{"epoch":7,"version":4,"count":2,"handle":"h7.4"}` + "\n" +
		`{"n":0,"type":"application/json","value":"new"}` + "\n" + `{"n":1,"type":"application/json","value":"er"}` + "\n")
	cut := func(w http.ResponseWriter, r *http.Request) {
		lines(head)(w, r)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	for name, torn := range map[string]step{
		"rewritten":     lines(head + `{"changed":true}` + "\n"),
		"refused whole": refuse(409, ErrChanged, ""),
		"store away":    lines(head + `{"error":{"code":"store_unavailable","status":503}}` + "\n"),
		"broken off":    cut,
		"half a line":   lines(head + `{"n":1,"type":"applica`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			berth := newScript(t, torn, whole, torn, whole)
			srv := httptest.NewServer(berth)
			defer srv.Close()
			s := sessionOf(t, Config{BaseURLs: []string{srv.URL}}, 7, 3)
			r, err := s.Recover(t.Context(), RecoverRequest{Mode: Read})
			if err != nil || len(r.Turns) != 2 || string(r.Turns[0].Value) != `"new"` {
				t.Errorf("recovery %+v, error %v", r, err)
			}
			rec, turns, err := s.Load(t.Context(), 0)
			if err != nil || rec.Version != 4 || len(turns) != 2 || string(turns[0].Value) != `"new"` {
				t.Errorf("record %+v, turns %q, error %v", rec, texts(turns), err)
			}
		})
	}
}

// Turns that are missing, doubled or cut off cleanly are noticed.
func TestIncompleteStreamsAreErrors(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"a gap":            `{"version":2,"count":2}` + "\n" + `{"n":1,"type":"application/json","value":1}` + "\n",
		"a clean cut":      `{"version":2,"count":2}` + "\n" + `{"n":0,"type":"application/json","value":1}` + "\n",
		"neither form":     `{"version":1,"count":1}` + "\n" + `{"n":0,"type":"application/json"}` + "\n",
		"broken base64":    `{"version":1,"count":1}` + "\n" + `{"n":0,"type":"application/octet-stream","base64":"?"}` + "\n",
		"an inner refusal": `{"version":1,"count":1}` + "\n" + `{"error":{"code":"not_found","status":404}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, turns, err := session(t, newScript(t, lines(body)), 7, 3).Load(t.Context(), 0)
			if err == nil {
				t.Errorf("loaded %q", texts(turns))
			}
		})
	}
}

// An answer whose end cannot be told from a break is refused.
func TestUndelimitedStreamIsRefused(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = buf.WriteString("HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n{\"version\":0}\n")
		_ = buf.Flush()
	}))
	defer srv.Close()
	_, _, err := sessionOf(t, Config{BaseURLs: []string{srv.URL}}, 7, 3).Load(t.Context(), 0)
	if !errors.Is(err, errEndless) {
		t.Errorf("error %v", err)
	}
}

// Streams hand out turns as they arrive, and are not repeated once they began.
func TestStreams(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	slow := func(w http.ResponseWriter, r *http.Request) {
		lines(`{"epoch":7,"version":4,"base":1,"count":3,"handle":"h7.4"}`+"\n"+`{"n":1,"type":"application/json","value":1}`+"\n")(w, r)
		w.(http.Flusher).Flush()
		<-release // the first turn has been used
		_, _ = io.WriteString(w, `{"n":2,"type":"application/json","value":2}`+"\n")
	}
	berth := newScript(t, refuse(503, ErrStoreUnavailable, ""), slow,
		lines(`{"version":1,"count":1}`+"\n"+`{"changed":true}`+"\n"))
	srv := httptest.NewServer(berth)
	defer srv.Close()
	s := sessionOf(t, Config{BaseURLs: []string{srv.URL}}, 7, 3)
	var got []string
	err := s.RecoverStream(t.Context(), RecoverRequest{Mode: Read, Have: &HaveCopy{Handle: "h", Turns: 1}},
		func(r *Recovery, turns iter.Seq2[Turn, error]) error {
			for turn, err := range turns {
				if err != nil {
					return err
				}
				if got = append(got, string(turn.Value)); len(got) == 1 {
					close(release)
				}
			}
			return nil
		})
	if err != nil || strings.Join(got, ",") != "1,2" || s.Handle() != "h7.4" || s.Have().Turns != 3 {
		t.Errorf("turns %q, error %v", got, err)
	}
	err = s.LoadStream(t.Context(), 0, func(_ *Record, turns iter.Seq2[Turn, error]) error {
		for _, err := range turns {
			return err
		}
		return nil
	})
	if !errors.Is(err, ErrChanged) {
		t.Errorf("error %v", err)
	}
	berth.requests(3)
}

// A recover that meets a loss repairs it first, unless the loss is accepted:
// then what was kept is handed back, and the handles of before are let go.
func TestRecoverAfterALoss(t *testing.T) {
	t.Parallel()
	t.Run("repairs", func(t *testing.T) {
		t.Parallel()
		berth := newScript(t, accept(7, 4, 4, "memory"), behind(3, 4), accept(7, 4, 4, "memory"),
			lines(`{"epoch":7,"version":4,"base":0,"count":0,"handle":"h7.4"}`+"\n"))
		s := session(t, berth, 7, 3)
		if err := ops(t, s, "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recover(t.Context(), RecoverRequest{Mode: Read}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("accepts", func(t *testing.T) {
		t.Parallel()
		berth := newScript(t, accept(7, 1, 1, "memory"), accept(7, 2, 2, "memory"),
			behind(0, 2), notOwner(false),
			lines(`{"new":true,"epoch":0,"version":0,"base":0,"count":0,"handle":"h0.0","lost":{"have":{"version":0,"turns":0},"want":{"version":2}}}`+"\n"),
			accept(8, 1, 1, "memory"))
		s := session(t, berth, 0, 0)
		if err := ops(t, s, "a", "b"); err != nil {
			t.Fatal(err)
		}
		if err := ops(t, s, "c"); !errors.Is(err, ErrStoreBehind) {
			t.Fatalf("error %v", err)
		}
		r, err := s.Recover(t.Context(), RecoverRequest{Mode: Claim, AcceptLost: true})
		if err != nil || r.Lost == nil || r.Lost.Want.Version != 2 {
			t.Fatalf("recovery %+v, error %v", r, err)
		}
		if len(r.Dropped) != 2 || r.Dropped[0].Op != "a" || string(r.Dropped[1].Turns[0].Value) != `"b"` {
			t.Errorf("dropped %+v", r.Dropped)
		}
		if _, err := s.Append(t.Context(), r.Dropped[0].Write); err != nil {
			t.Fatal(err)
		}
		if got := berth.requests(6); got[4].member(t, "accept_lost") != true || got[5].member(t, "handle") != "h0.0" || got[5].member(t, "op") != "a" {
			t.Errorf("went on with %s", got[5].body)
		}
	})
}

// To claim, the handle of the route is presented, unless a newer epoch is held;
// a handle for prewarming never becomes the one to write with.
func TestHandleOfARecover(t *testing.T) {
	t.Parallel()
	answer := lines(`{"epoch":7,"version":4,"base":0,"count":0,"handle":"got"}` + "\n")
	berth := newScript(t, accept(7, 4, 4, "fsynced"), answer, answer, answer)
	s := session(t, berth, 7, 3)
	if err := ops(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	for _, req := range []RecoverRequest{{Mode: Claim}, {Mode: Read}, {Mode: Prewarm, Handle: "task"}} {
		if _, err := s.Recover(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"h7.3", "h7.4", "task"} {
		if got := berth.requests(4)[i+1].member(t, "handle"); got != want {
			t.Errorf("recover %d presented %v, want %s", i, got, want)
		}
	}
	if s.Handle() != "h7.4" {
		t.Error("a handle of the same place replaced the one held")
	}
}
