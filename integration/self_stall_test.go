package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestStoppedBerthConvictsNobody is case T18: a control plane that stands still for
// longer than a lease lasts expires every client. All processes are stopped for three
// times the TTL of an instance while twenty of them go on beating. When they run on,
// nobody is down, no session moves, and that they stood still is told once.
func TestStoppedBerthConvictsNobody(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("not tested outside Linux: a process that is paused")
	}
	const fleet, sessions, ttl = 20, 60, 10 * time.Second
	ctx := t.Context()
	p := onOneRedis(t, "--heartbeat", "500ms", "--suspect-after", "6s", "--down-after", ttl.String())
	c := hire(t, fleet, p.urls()...)
	homes := make([]hint, sessions)
	name := func(i int) string { return fmt.Sprintf("calm-%d", i) }
	forAll(t, sessions, func(ctx context.Context, i int) (err error) {
		if homes[i], err = p.s1.api().route(ctx, name(i)); err == nil {
			_, err = p.s1.api().append(ctx, name(i), newWrite(c.credentials(homes[i].Instance), homes[i].Handle, "op-1"))
		}
		return err
	})
	for _, at := range []*berth{p.s1, p.s2} {
		eventually(t, at.url+" judges, or sees that the other one does", func() error {
			const calls = `berth_store_call_duration_seconds_count{call="acquire_lease"} `
			got, err := at.api().raw(ctx, http.MethodGet, "/metrics", nil)
			if _, after, _ := strings.Cut(string(got.body), calls); err == nil && (after == "" || after[0] < '2' && after[1] == '\n') {
				err = fmt.Errorf("%.3q looks", after)
			}
			return err
		})
	}
	marks := map[*berth]int{p.s1: p.s1.log.mark(), p.s2: p.s2.log.mark()}
	p.s1.pause(t)
	p.s2.pause(t)
	must(t, sleep(ctx, 3*ttl))
	// The first that wakes takes the health lease, which ended meanwhile, before the
	// other one wakes.
	p.s1.resume(t)
	must(t, p.s1.awaitLine(within(t), marks[p.s1], "event=self_stall"))
	must(t, sleep(ctx, 3*time.Second))
	p.s2.resume(t)

	stay := func(at *berth) {
		t.Helper()
		forAll(t, sessions, func(ctx context.Context, i int) error {
			h, err := at.api().route(ctx, name(i))
			if err == nil && (h.Instance != homes[i].Instance || h.Reason != "bound" || h.Jump || h.Version != 1) {
				err = fmt.Errorf("%s of %s at %s: %+v", name(i), homes[i].Instance, at.url, h)
			}
			return err
		})
	}
	stay(p.s1)
	stay(p.s2)
	awaitReady(t, p, ids(fleet)...)
	must(t, sleep(ctx, ttl+2*time.Second)) // what silence was counted would convict by now
	told := 0
	for at, mark := range marks {
		stay(at)
		told += at.log.count(mark, "event=self_stall")
		if n := at.log.count(mark, "health=down"); n > 0 {
			t.Errorf("%s marked %d instances down", at.url, n)
		}
		states, err := at.api().states(ctx)
		must(t, err)
		for id, state := range states {
			if state == "down" {
				t.Errorf("at %s %s is down", at.url, id)
			}
		}
	}
	if told != 1 {
		t.Errorf("%d self stalls told, want one", told)
	}
}

// ids are the instances that hire starts.
func ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("i%d", i+1)
	}
	return all
}
