package services_test

import (
	"strings"
	"testing"
	"time"

	"berth/services"
)

// An instance that stays down is removed in the end, and has to register again. Its
// sessions are taken over without a handle; until then it may write.
func TestAGoneInstanceIsRemoved(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	before := setupOn(t, store)
	gone := before.worker("i1")
	h := gone.append("s", "first", before.route("s").want(200).str("handle"), `"hello"`).want(200).str("handle")
	before.stop()
	b := setupOn(t, store, func(o *services.Options) {
		o.SuspectAfter, o.DownAfter, o.GoneAfter = 100*time.Millisecond, 200*time.Millisecond, time.Second
	})
	eventually(t, "i1 is removed, and counted", func() bool {
		return strings.Contains(string(b.call("GET", "/metrics", "").want(200).body), "berth_instances_removed_total 1\n")
	})
	b.call("GET", "/v1/instances/i1", "").refused(404, "unknown_instance")
	if !strings.Contains(b.logs.String(), "gone instance removed") {
		t.Error("it is not logged")
	}
	b.stop()
	b = setupOn(t, store) // which takes nobody who comes for silent
	gone.bundle = b
	gone.call("POST", "/v1/instances/i1/heartbeat", `{"incarnation":"`+gone.incarnation+`","running":0,"waiting":0}`).refused(404, "unknown_instance")
	h = gone.append("s", "late", h, `"nobody has taken it over"`).want(200).str("handle")
	next := b.worker("i2")
	if got := next.recover("s", "", "claim").want(200); got.str("turns.0.value") != "hello" || got.str("version") != "2" {
		t.Fatalf("taken over: %s", got.body)
	}
	gone.append("s", "later", h, `1`).refused(409, "not_owner")
}
