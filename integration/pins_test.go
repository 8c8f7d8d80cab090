package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"berth/integration/redistest"
)

// TestPinsOutliveTheProcess is the second half of case R43: where an operator put a
// session it stays when Berth is killed and started again, on either store, with the
// policy that says when it may leave; and when it has left, it stays there.
func TestPinsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		pinAndKill(t, serve(t, timing...))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		redis := redistest.Standalone(t, redistest.Fsync("always"))
		common := []string{"--store", redis.URL, "--redis-prefix", fmt.Sprintf("e2e-%d", prefixes.Add(1))}
		pinAndKill(t, serve(t, append(common, timing...)...))
	})
}

func pinAndKill(t *testing.T, server *berth) {
	ctx, at := t.Context(), server.api()
	policy := map[string]any{"max_age_ms": 2000, "bound": map[string]int{"percent": 125, "gap": 1, "noise": 3}}
	must(t, at.do(ctx, http.MethodPut, "/v1/pools/default/policy", policy, nil))
	home, err := at.enlist(ctx, "i1", "default", "10.0.0.1:8001")
	must(t, err)
	pinned, err := at.enlist(ctx, "i2", "default", "10.0.0.2:8001")
	must(t, err)
	sessions := at.seat(t, home, "i2:busy", 10)
	for _, s := range sessions {
		moveOnce(t, at, s, 0)
		h, err := at.route(ctx, s)
		must(t, err)
		_, err = at.append(ctx, s, newWrite(pinned, h.Handle, "op-2")) // or the pinned one would be none that served it
		must(t, err)
	}
	was := make([]hint, len(sessions))
	stays := func(when, owner string, first bool) {
		t.Helper()
		forAll(t, len(sessions), func(ctx context.Context, i int) error {
			h, err := at.route(ctx, sessions[i])
			if err != nil {
				return err
			}
			if first {
				was[i] = h
			}
			if h.Instance != owner || h.Reason != "bound" || h.Degraded != "" || h.Epoch != was[i].Epoch || h.Version != was[i].Version {
				return fmt.Errorf("%s %s is hinted %+v, want %s as in %+v", when, sessions[i], h, owner, was[i])
			}
			return nil
		})
	}
	stays("pinned,", "i2", true)
	server.kill9(t)
	server.restart(t)
	stays("after a restart", "i2", false)

	must(t, at.beat(ctx, pinned, 2)) // two more than its idle sibling
	eventually(t, "the next turns spill", func() error {
		for i, s := range sessions {
			h, err := at.route(ctx, s)
			if err != nil {
				return err
			}
			if h.Instance != "i1" || h.Reason != "breaker" || h.Previous != "i2" {
				return fmt.Errorf("%s is hinted %+v", s, h)
			}
			was[i] = h
		}
		return nil
	})
	forAll(t, len(sessions), func(ctx context.Context, i int) error {
		return at.do(ctx, http.MethodPost, "/v1/recover", map[string]any{
			"session": sessions[i], "handle": was[i].Handle, "instance": home.instance, "incarnation": home.incarnation,
		}, nil)
	})
	must(t, at.beat(ctx, pinned, 0))
	stays("spilt,", "i1", true)
	server.kill9(t)
	server.restart(t)
	must(t, sleep(ctx, 2*time.Second)) // older than the age
	stays("spilt and restarted,", "i1", false)
}
