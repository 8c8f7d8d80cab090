package services_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth/services"
	"berth/statestore"
)

// pairOfReplicas is two processes on one store in virtual time, and instances that
// come and go with their breakers.
type pairOfReplicas struct {
	t        testing.TB
	store    statestore.Store
	replicas []*bundle
}

func (p *pairOfReplicas) start() {
	p.replicas = []*bundle{start(p.t, p.store, usual, patient), start(p.t, p.store, usual, patient)}
}

func (p *pairOfReplicas) stop() {
	for _, r := range p.replicas {
		r.stop()
	}
}

// patient is a server that convicts nobody for silence.
func patient(o *services.Options) { o.SuspectAfter, o.DownAfter = 24*time.Hour, 48*time.Hour }

// report tells the replicas in turn how requests to an instance ended.
func (p *pairOfReplicas) report(id, result string, n int) {
	p.t.Helper()
	for i := range n {
		p.replicas[i%2].call("POST", "/v1/outcomes", fmt.Sprintf(`{"outcomes":[{"instance":%q,"result":%q}]}`, id, result)).want(202)
	}
}

// breaker waits until the breaker of an instance is in a state.
func (p *pairOfReplicas) breaker(id, want string) {
	p.t.Helper()
	for range 100 {
		if p.replicas[0].call("GET", "/v1/instances/"+id, "").want(200).str("breaker") == want {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.t.Fatalf("the breaker of %s is not %q within 10 s", id, want)
}

// hinted is what new sessions were told of an instance.
type hinted struct {
	at        []time.Duration // when it was hinted
	fallbacks int             // how often it was named as the next one
	refused   int             // how often nobody was named
}

// hints asks both replicas ten times a second for new sessions.
func (p *pairOfReplicas) hints(seconds int, id string) (told hinted) {
	p.t.Helper()
	began := time.Now()
	for range 10 * seconds {
		for _, r := range p.replicas {
			a := r.route(fmt.Sprint("s", serial.Add(1)), "&fallbacks=1")
			switch {
			case a.status != 200:
				if told.refused++; a.refused(503, "not_eligible").header.Get("Retry-After") == "" {
					p.t.Fatalf("no Retry-After: %v", a.header)
				}
			case a.str("instance") == id:
				told.at = append(told.at, time.Since(began))
			case a.str("fallbacks.0.instance") == id:
				told.fallbacks++
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return told
}

// serves fails unless both replicas send new sessions to an instance.
func (p *pairOfReplicas) serves(id string) {
	p.t.Helper()
	p.breaker(id, "")
	time.Sleep(time.Second)
	if told := p.hints(1, id); len(told.at) < 2 || told.refused > 0 {
		p.t.Fatalf("%s serves again: %+v", id, told)
	}
}

// tried fails unless an instance is hinted once within seconds, and that in one of the
// four from a certain one on.
func (p *pairOfReplicas) tried(what, id string, from, within int) {
	p.t.Helper()
	told := p.hints(within, id)
	first := time.Duration(from) * time.Second
	if len(told.at) != 1 || told.at[0] < first || told.at[0] > first+4*time.Second || told.fallbacks+told.refused > 0 {
		p.t.Fatalf("%s: %s is told of as %+v, want one hint from %d s on, within %d s", what, id, told, from, within)
	}
}

func onTwoReplicas(t *testing.T, f func(p *pairOfReplicas)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pairOfReplicas{t: t, store: openStore(t)}
		p.start()
		p.replicas[0].worker("bad")
		p.replicas[0].worker("good")
		time.Sleep(3 * time.Second)
		f(p)
		p.stop()
	})
}

// Cases R33 and R34 over HTTP, with two replicas: an instance that fails is hinted to
// nobody for 15 s, and then to exactly one request. Served, that lets all in; failed,
// it takes twice as long; and one of which nobody hears more makes room for the next.
func TestAFailingInstanceIsTriedOnce(t *testing.T) {
	onTwoReplicas(t, func(p *pairOfReplicas) {
		p.report("bad", "client", 50)
		p.serves("bad")
		p.report("bad", "5xx", 3)
		for range 2 {
			p.replicas[1].route(fmt.Sprint("s", serial.Add(1)), "&exclude=bad:connect").want(200)
		}
		p.breaker("bad", "open")
		p.tried("opened", "bad", 14, 30)
		p.tried("the outcome of the trial is lost", "bad", 14, 30)
		p.report("bad", "ok", 1)
		p.serves("bad")

		p.report("bad", "reset", 6)
		p.breaker("bad", "open")
		p.tried("opened again", "bad", 29, 40)
		p.report("bad", "5xx", 1)
		p.breaker("bad", "open")
		p.tried("the trial failed", "bad", 59, 70)
		p.report("bad", "ok", 1)
		p.serves("bad")
	})
}

// Case R34: with all breakers open everybody is told to ask again, and each instance
// is tried in its time: also if both replicas begin anew meanwhile, and if trials are
// lost. Nobody is locked out for ever.
func TestAllBreakersOpenLockNobodyOut(t *testing.T) {
	onTwoReplicas(t, func(p *pairOfReplicas) {
		open := func() {
			for _, id := range []string{"bad", "good"} {
				p.report(id, "5xx", 6)
			}
			p.breaker("bad", "open")
			p.breaker("good", "open")
		}
		open()
		if told := p.hints(10, "bad"); told.refused != 200 {
			p.t.Fatalf("with all open, of 200 in 10 s: %+v", told)
		}
		if told := p.hints(10, "bad"); told.refused != 198 || len(told.at) != 1 {
			p.t.Fatalf("each should be tried once: of 200 in 10 s %+v", told)
		}
		p.report("bad", "ok", 1)
		p.report("good", "ok", 1)
		p.serves("bad")
		p.serves("good")

		open()
		p.stop()
		time.Sleep(time.Hour)
		p.start()
		if told := p.hints(10, "good"); told.refused != 200 {
			p.t.Fatalf("after a cold start, of 200 in 10 s: %+v", told)
		}
		for range 5 { // each with two trials whose outcome nobody tells
			if told := p.hints(60, "good"); len(told.at) == 0 || len(told.at) > 3 {
				p.t.Fatalf("of 1200 in another minute: %+v", told)
			}
		}
		p.report("bad", "ok", 1)
		p.report("good", "ok", 1)
		p.serves("bad")
		p.serves("good")
	})
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
