package services_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// Cases R33 and R34 over HTTP, with two replicas: an instance that fails is hinted
// to nobody, then to exactly one request, and to all again once that was served.
func TestAFailingInstanceIsTriedOnce(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	a, b := setupOn(t, store), setupOn(t, store)
	a.call("PUT", "/v1/pools/default/policy", `{"breaker":{"failures":5,"open_ms":300,"max_open_ms":300,"trial_ms":60000}}`).want(200)
	bad, good := a.worker("bad"), a.worker("good")
	for _, of := range []*bundle{a, b} {
		eventually(t, "the holder of the health lease has let both in", func() bool {
			return of.call("GET", "/v1/instances/"+bad.id, "").str("ramp_percent") == "100" &&
				of.call("GET", "/v1/instances/"+good.id, "").str("ramp_percent") == "100"
		})
	}
	hints := func(of *bundle, n int) (toBad int) {
		for range n {
			if of.route(fmt.Sprintf("s%d", serial.Add(1))).want(200).str("instance") == bad.id {
				toBad++
			}
		}
		return toBad
	}
	// A bad request is no failure of the instance.
	client := strings.Repeat(`{"instance":"bad","result":"client","status":400},`, 50)
	a.call("POST", "/v1/outcomes", `{"outcomes":[`+strings.TrimSuffix(client, ",")+`]}`).want(202)
	for range 3 {
		a.call("POST", "/v1/outcomes", `{"outcomes":[{"instance":"bad","result":"5xx","status":500}]}`).want(202)
		b.route(fmt.Sprintf("s%d", serial.Add(1)), "&exclude=bad:connect").want(200)
	}
	state := func() string { return a.call("GET", "/v1/instances/bad", "").want(200).str("breaker") }
	trials := 0
	eventually(t, "the breaker opens, and lets a trial through", func() bool {
		s := state()
		if s == "open" {
			trials += hints(a, 5) + hints(b, 5)
		}
		return s == "trial"
	})
	eventually(t, "a replica makes the trial", func() bool {
		trials += hints(a, 20) + hints(b, 20)
		return trials > 0
	})
	trials += hints(a, 100) + hints(b, 100)
	if trials != 1 {
		t.Fatalf("%d requests were let through, want exactly one", trials)
	}
	b.call("POST", "/v1/outcomes", `{"outcomes":[{"instance":"bad","result":"ok"}]}`).want(202)
	eventually(t, "it serves again", func() bool { return state() == "" && hints(a, 20) > 0 && hints(b, 20) > 0 })
}

var serial atomic.Int64

// Case R06: an instance that only answers its probe, and sends nothing, comes into
// service with it.
func TestAGoodProbeEndsWarming(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var asked, well atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/ready" || well.Load() == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(web.Close)
	b.call("PUT", "/v1/pools/default/policy", `{"probe":{"path":"/ready","every_ms":200}}`).want(200)
	b.register("c", fmt.Sprintf(`{"address":%q,"probe":true}`, strings.TrimPrefix(web.URL, "http://"))).want(200)
	eventually(t, "it is probed", func() bool { return asked.Load() > 1 })
	b.route("s").refused(503, "not_eligible")
	well.Store(1)
	eventually(t, "it takes sessions", func() bool { return b.route("s").status == 200 })
}
