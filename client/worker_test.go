package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const registered = `{"state":"warming","incarnation":"boot-9","next_ms":2000,"lease_ms":15000}`

func beat(nextMS int) step {
	return reply(200, fmt.Sprintf(`{"state":"ready","next_ms":%d,"lease_ms":15000,"tasks":[]}`, nextMS))
}

// fresh is instance i1 that has not registered yet.
func fresh(t *testing.T, h http.Handler) *Worker {
	t.Helper()
	w, err := NewWorker(only(h), Instance{ID: "i1", Pool: "p", Address: "10.0.0.1:8000", MaxRunning: 8})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs the worker until the script is played and some time more.
func run(t *testing.T, w *Worker, cfg RunConfig, span time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	return w.Run(ctx, cfg)
}

// A registration keeps the incarnation; what comes later carries it.
func TestRegisterKeepsTheIncarnation(t *testing.T) {
	t.Parallel()
	berth := newScript(t, reply(200, registered), reply(200, registered), reply(204, ""), refuse(404, ErrUnknownInstance, ""))
	w := fresh(t, berth)
	for range 2 {
		if err := w.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // an instance that is gone is no error
		if err := w.Deregister(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := berth.requests(4)
	if want := `{"pool":"p","address":"10.0.0.1:8000","max_running":8}`; strings.TrimSpace(string(got[0].body)) != want || got[0].path != "/v1/instances/i1" {
		t.Errorf("registered with %s", got[0].body)
	}
	if got[1].member(t, "incarnation") != "boot-9" || got[2].header.Get("X-Berth-Incarnation") != "boot-9" {
		t.Error("the incarnation was not kept")
	}
	if s := w.Status(); s.State != "warming" || s.Lease != 15*time.Second {
		t.Errorf("status %+v", s)
	}
}

// Heartbeats tell the load, come as often as Berth asks, and sooner after one
// that failed; their answers are the worker's status.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		timed := func(s step) step {
			return func(w http.ResponseWriter, r *http.Request) { at = append(at, time.Since(began)); s(w, r) }
		}
		draining := reply(200, `{"state":"draining","next_ms":3000,"lease_ms":15000,"tasks":[],"drain":{"job":"j1","deadline_ms":60000}}`)
		berth := newScript(t, reply(200, registered), timed(beat(500)), timed(beat(3000)), timed(tear), timed(draining))
		running := 0
		w := fresh(t, berth)
		err := run(t, w, RunConfig{Load: func() Load { running++; return Load{Ready: true, Running: running, KVUsage: 0.5, KVGeneration: 2} }}, 6*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if at[1] != 500*time.Millisecond || at[2] != 3500*time.Millisecond || at[3]-at[2] > 200*time.Millisecond {
			t.Errorf("beats at %v", at)
		}
		got := berth.requests(5)
		if want := `{"incarnation":"boot-9","ready":true,"running":2,"waiting":0,"kv_usage":0.5,"kv_generation":2}`; strings.TrimSpace(string(got[2].body)) != want {
			t.Errorf("beat with %s", got[2].body)
		}
		if s := w.Status(); s.State != "draining" || *s.Drain != (Drain{Job: "j1", Left: time.Minute}) {
			t.Errorf("status %+v", s)
		}
	})
}

// An instance that Berth does not know registers again, and beats for its new
// incarnation at once (T31: never stuck).
func TestRegistersAgainWhenUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		again := strings.Replace(registered, "boot-9", "boot-10", 1)
		berth := newScript(t, reply(200, registered), refuse(404, ErrUnknownInstance, ""), tear, reply(200, again), beat(2000))
		if err := run(t, fresh(t, berth), RunConfig{}, time.Second); err != nil {
			t.Fatal(err)
		}
		if got := berth.requests(5)[4].member(t, "incarnation"); got != "boot-10" {
			t.Errorf("beat for %v", got)
		}
	})
}

// A boot that another has replaced stops.
func TestStopsWhenReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		berth := newScript(t, reply(200, registered), refuse(409, ErrStaleIncarnation, ""))
		if err := run(t, fresh(t, berth), RunConfig{}, time.Hour); !errors.Is(err, ErrStaleIncarnation) {
			t.Errorf("error %v", err)
		}
	})
}

// A registration that Berth refuses is an error; one that finds nobody goes on.
func TestRunRegisters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if err := run(t, fresh(t, newScript(t, refuse(403, ErrForbidden, ""))), RunConfig{}, time.Hour); !errors.Is(err, ErrForbidden) {
			t.Errorf("error %v", err)
		}
		down := &counter{answer: tear}
		if err := run(t, fresh(t, down), RunConfig{}, 2*time.Hour); err != nil || down.n < 700 {
			t.Errorf("error %v after %d attempts", err, down.n)
		}
	})
}

// A heartbeat that hangs does not hold up the next one for long.
func TestHeartbeatsDoNotHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		berth := newScript(t, reply(200, registered), beat(2000), stall, beat(60000))
		began := time.Now()
		if err := run(t, fresh(t, berth), RunConfig{}, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		berth.requests(4)
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("ran for %v", d)
		}
	})
}
