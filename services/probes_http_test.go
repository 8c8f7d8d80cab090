package services_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// scripted answers its probes as written: P passes, F fails. When the script is at
// its end the last letter goes on.
type scripted struct {
	mu     sync.Mutex
	script string
	asked  int
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.script[min(s.asked, len(s.script)-1)] == 'F' {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	s.asked++
}

// play begins a script.
func (s *scripted) play(script string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script, s.asked = script, 0
}

func (s *scripted) played() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// Case R10: with fall 3 and rise 2 the probes F,P,F,P,P,F change nobody's state and
// move no session; three failed ones in a row do, and one good one does not undo it.
func TestOneProbeMovesNobody(t *testing.T) {
	t.Parallel()
	probes := &scripted{script: "P"}
	// Outside of the bubble, where no time passes while a probe is under way.
	web := httptest.NewServer(probes)
	t.Cleanup(web.Close)
	synctest.Test(t, func(t *testing.T) {
		b := start(t, openStore(t), usual)
		b.call("PUT", "/v1/pools/default/policy", `{"probe":{"path":"/health","fall":3,"rise":2}}`).want(200)
		other := b.worker("other")
		incarnation := b.register("probed", fmt.Sprintf(`{"address":%q,"probe":true}`, strings.TrimPrefix(web.URL, "http://"))).want(200).str("incarnation")
		f := &virtualFleet{b, map[string]*worker{"other": other, "probed": {b, "probed", incarnation}}, map[string]bool{"probed": true}, map[string]string{}}
		f.pass(3)
		f.seat(40)
		logged := len(b.logs.String())
		// until lets so many probes of a script be made, and shows every moment.
		until := func(n int, every func()) {
			t.Helper()
			for deadline := time.Now().Add(time.Hour); probes.played() < n; f.pass(1) {
				if every(); time.Now().After(deadline) {
					t.Fatalf("%d of %d probes in an hour", probes.played(), n)
				}
			}
			f.pass(2) // a round concludes, and a poll sees it
			every()
		}
		stay := func() {
			t.Helper()
			if a := b.call("GET", "/v1/instances/probed", "").want(200); a.str("state") != "ready" {
				t.Fatalf("after %d probes: %s", probes.played(), a.body)
			}
			for session, owner := range f.owners {
				if a := b.route(session).want(200); a.str("instance") != owner || a.str("reason") != "bound" || a.str("jump") != "" {
					t.Fatalf("after %d probes a session of %s: %s", probes.played(), owner, a.body)
				}
			}
		}
		const stream = "FPFPPF"
		probes.play(stream + "P")
		until(len(stream), stay)
		probes.play("P")
		until(4, stay)
		if said := b.logs.String()[logged:]; strings.Contains(said, "health changed") {
			t.Fatalf("a transition: %s", said)
		}

		gone := func() {
			t.Helper()
			if a := b.call("GET", "/v1/instances/probed", "").want(200); a.str("state") == "ready" {
				t.Fatalf("after %d probes: %s", probes.played(), a.body)
			}
			for session, owner := range f.owners {
				if a := b.route(session).want(200); a.str("instance") != "other" || (a.str("jump") == "true") != (owner == "probed") {
					t.Fatalf("after %d probes a session of %s: %s", probes.played(), owner, a.body)
				}
			}
		}
		probes.play("FF")
		until(2, stay)
		until(3, func() {})
		gone()
		probes.play("PFFP")
		until(4, func() {})
		if a := b.call("GET", "/v1/instances/probed", "").want(200); a.str("state") == "ready" {
			t.Fatalf("one good probe in a row: %s", a.body)
		}
		until(5, func() {})
		stay()
	})
}
