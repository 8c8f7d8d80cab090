package client

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
)

// Finish answers a new handle; a copy whose answer was lost does no harm.
func TestFinish(t *testing.T) {
	t.Parallel()
	const done = `{"epoch":8,"durability":{"level":"fsynced"},"handle":"h8.3"}`
	stale := func(owner string) step { return refuse(409, ErrStaleHandle, owner) }
	for name, c := range map[string]struct {
		steps  []step
		want   error
		handle Handle
	}{
		"accepted":                 {[]step{reply(200, done)}, nil, "h8.3"},
		"its answer lost":          {[]step{tear, stale(`"owner":null`)}, nil, "h7.3"},
		"its answer lost, taken":   {[]step{tear, stale(`"owner":{"instance":"i2","epoch":9}`)}, ErrStaleHandle, "h7.3"},
		"another is the owner":     {[]step{stale(`"owner":null`)}, ErrStaleHandle, "h7.3"},
		"gone":                     {[]step{refuse(410, ErrExpired, "")}, ErrExpired, ""},
		"a loss that nobody mends": {[]step{behind(2, 3)}, ErrStoreBehind, "h7.3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := session(t, newScript(t, c.steps...), 7, 3)
				if _, err := s.Finish(t.Context()); !errors.Is(err, c.want) {
					t.Errorf("error %v", err)
				}
				if s.Handle() != c.handle {
					t.Errorf("another handle is held than %q", string(c.handle))
				}
			})
		})
	}
}

// Finish and delete repair a loss first, like every other call.
func TestFinishRepairs(t *testing.T) {
	t.Parallel()
	berth := newScript(t, accept(7, 4, 4, "memory"), behind(3, 4), accept(7, 4, 4, "memory"),
		reply(200, `{"epoch":8,"durability":{"level":"fsynced"},"handle":"h8.4"}`),
		reply(200, `{"deleted":true,"durability":{"level":"fsynced"},"forget_pending":2}`))
	s := session(t, berth, 7, 3)
	if err := ops(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	if f, err := s.Finish(t.Context()); err != nil || f.Epoch != 8 {
		t.Errorf("finished %+v, error %v", f, err)
	}
	if d, err := s.Delete(t.Context()); err != nil || !d.Deleted || d.ForgetPending != 2 {
		t.Errorf("deleted %+v, error %v", d, err)
	}
	if got := berth.requests(5)[4]; got.method != "DELETE" || got.header.Get("X-Berth-Handle") != "h8.4" {
		t.Errorf("deleted with %v", got.header)
	}
	if _, err := s.Append(t.Context(), one("1")); !errors.Is(err, ErrNoHandle) {
		t.Errorf("after the delete: %v", err)
	}
}

// A delete that is repeated after its answer was lost has done its work.
func TestDeleteTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if _, err := session(t, newScript(t, tear, refuse(410, ErrDeleted, "")), 7, 3).Delete(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestPutKV(t *testing.T) {
	t.Parallel()
	berth := newScript(t, reply(204, ""), reply(204, ""))
	w := worker(t, only(berth))
	s, err := w.Open(SessionKey{ID: "a/b", Tenant: "t", Pool: "p"})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]Placement{{{Tier: "gpu", Tokens: 1, Version: 2, Compat: map[string]any{"dtype": "fp8"}}}, nil} {
		if err := s.PutKV(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	got := berth.requests(2)
	const head = `{"instance":"i1","incarnation":"boot-1","placements":[`
	if want := head + `{"tier":"gpu","tokens":1,"version":2,"compat":{"dtype":"fp8"}}]}`; strings.TrimSpace(string(got[0].body)) != want {
		t.Errorf("put %s", got[0].body)
	}
	if strings.TrimSpace(string(got[1].body)) != head+`]}` {
		t.Errorf("put nothing as %s", got[1].body)
	}
	h := got[0].header
	if got[0].path != "/v1/sessions/-/kv" || h.Get("X-Session-ID") != "a/b" || h.Get("X-Berth-Tenant") != "t" || h.Get("X-Berth-Pool") != "p" {
		t.Errorf("put to %s with %v", got[0].path, h)
	}
}

// Repeats, fail-overs, repairs, tasks and errors leave traces in the log. None of
// them, and no error, names a session or holds what is secret.
func TestNothingSecretIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		secrets := []string{"SECRET", "h7.", "boot-1", "s1", "/sessions"}
		var log bytes.Buffer
		berth := newScript(t, tear, refuse(503, ErrOutcomeUnknown, `"detail":"timeout"`), reply(200, `{"SECRET`), accept(7, 4, 4, "memory"),
			behind(3, 4), accept(7, 4, 4, "memory"), reply(502, "SECRET"), accept(7, 5, 5, "memory"), notOwner(true),
			lines(`{"version":1,"count":1}`+"\n"+`{"n":0,"type":"application/json","base64":"SECRET SECRET"}`+"\n"))
		cfg := only(berth)
		cfg.Token = "SECRET-token"
		cfg.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s := sessionOf(t, cfg, 7, 3)
		var errs []error
		for range 3 {
			_, err := s.Append(t.Context(), one(`"SECRET turn"`))
			errs = append(errs, err)
		}
		_, _, err := s.Load(t.Context(), 0)
		errs = append(errs, err)
		g := Config{BaseURLs: []string{"http://127.0.0.1:1/"}, Token: "SECRET-token", Logger: cfg.Logger}
		gw, err := NewGateway(g)
		errs = append(errs, err)
		cfg.Logger.Info("printed", "session", s, "worker", s.w, "gateway", gw, "handle", s.Handle())
		shown := fmt.Sprintf("%v %+v %#v %v %v %+v", s, s, s.w, s.Handle(), gw, Hint{Handle: "h7.1"})
		text := log.String() + shown + fmt.Sprint(errs)
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%q shows in\n%s", secret, text)
			}
		}
		for _, want := range []string{"did not settle", "repeated accepted writes"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log says nothing of %q:\n%s", want, log.String())
			}
		}
	})
}
