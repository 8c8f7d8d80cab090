package integration_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestStalledProcessesConvictNobody is case T18: all processes stand still for three
// times the time after which a silent instance is down, and run on. No instance is
// called down, and no session moves.
func TestStalledProcessesConvictNobody(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("not tested outside Linux: a process that is paused")
	}
	if testing.Short() {
		t.Skip("not tested in short mode: processes that stand still for half a minute")
	}
	const fleet, sessions, down = 20, 60, 10 * time.Second
	ctx := t.Context()
	p := onOneRedis(t, "--suspect-after", "6s", "--down-after", down.String())
	c := hire(t, fleet, p.urls()...)
	homes := make([]hint, sessions)
	for i := range homes {
		h, err := p.s1.api().route(ctx, fmt.Sprintf("stalled-%d", i))
		must(t, err)
		_, err = p.s1.api().append(ctx, fmt.Sprintf("stalled-%d", i), newWrite(c.credentials(h.Instance), h.Handle, "op-1"))
		must(t, err)
		homes[i] = h
	}
	p.s1.pause(t)
	p.s2.pause(t)
	must(t, sleep(ctx, 3*down))
	p.s1.resume(t)
	p.s2.resume(t)
	// Long enough for silence that began with the stall, or after it, to be judged.
	for end := time.Now().Add(2 * down); time.Now().Before(end); {
		for _, at := range []*berth{p.s1, p.s2} {
			states, err := at.api().states(within(t))
			must(t, err)
			for id, state := range states {
				if state == "down" {
					t.Fatalf("%s is down at %s", id, at.url)
				}
			}
		}
		must(t, sleep(ctx, 200*time.Millisecond))
	}
	for i, home := range homes {
		session := fmt.Sprintf("stalled-%d", i)
		h, err := p.s2.api().route(ctx, session)
		must(t, err)
		var past history
		must(t, p.s2.api().do(ctx, http.MethodGet, "/v1/sessions/"+session+"/history", nil, &past))
		if h.Instance != home.Instance || h.Reason != "bound" || len(past.Changes) != 1 {
			t.Errorf("%s of %s is hinted to %s (%s) and had the owners %+v", session, home.Instance, h.Instance, h.Reason, past.Changes)
		}
	}
	told := 0
	for _, at := range []*berth{p.s1, p.s2} {
		got, err := at.api().raw(ctx, http.MethodGet, "/metrics", nil)
		must(t, err)
		for line := range strings.Lines(string(got.body)) {
			if n := 0; strings.HasPrefix(line, "berth_self_stalls_total ") {
				_, err := fmt.Sscanf(line, "berth_self_stalls_total %d", &n)
				must(t, err)
				told += n
			}
		}
	}
	t.Logf("%d stalls told", told)
	if told > 1 {
		t.Errorf("the stall was told %d times", told)
	}
}
