package services_test

import (
	"testing"
	"time"

	"berth/statestore"
)

// A task is pulled with a handle that reads the session and takes nothing; its
// answer says where KV of the session lies now.
func TestAPrewarmTaskIsPulledAnsweredAndLeavesItsPlacements(t *testing.T) {
	t.Parallel()
	b := setup(t)
	workers := map[string]*worker{"i1": b.worker("i1"), "i2": b.worker("i2")}
	hint := b.route("s").want(200)
	owner := workers[hint.str("instance")]
	target := workers[map[string]string{"i1": "i2", "i2": "i1"}[owner.id]]
	owner.append("s", "op", hint.str("handle"), `1`, `"usage":{}`).want(200)
	key := statestore.SessionKey{Tenant: "default", Pool: "default", ID: "s"}
	view, err := b.store.Lookup(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	task := statestore.Task{
		ID: "warm-s", Kind: statestore.TaskPrewarm, Session: key, Floor: view.Floor(),
		For: statestore.Owner{Instance: target.id, Incarnation: statestore.IncarnationDigest(target.incarnation)},
	}
	if err := b.store.PutTasks(t.Context(), []statestore.Task{task}, time.Minute); err != nil {
		t.Fatal(err)
	}
	polled := target.call("GET", "/v1/instances/"+target.id+"/tasks?wait=10s", "", "X-Berth-Incarnation: "+target.incarnation).want(200)
	if polled.str("tasks.0.id") != "warm-s" || polled.str("tasks.0.kind") != "prewarm" || polled.str("tasks.0.session") != "s" {
		t.Fatalf("polled %s", polled.body)
	}
	handle := polled.str("tasks.0.handle")
	if got := target.recover("s", handle, "prewarm").want(200); got.str("turns.0.value") != "1" {
		t.Fatalf("prewarm reads %s", got.body)
	}
	target.recover("s", handle, "claim").refused(403, "bad_handle")

	answer := "/v1/instances/" + target.id + "/tasks/warm-s"
	bad := `{"incarnation":"` + target.incarnation + `","result":"done","kv":[{"tier":"moon","tokens":1,"version":1}]}`
	target.call("POST", answer, bad).refused(422, "invalid")
	good := `{"incarnation":"` + target.incarnation + `","result":"done","version":1,"kv":[{"tier":"gpu","tokens":1,"version":1}]}`
	target.call("POST", answer, good).want(204)
	if got := target.recover("s", "", "read").want(200); got.str("kv.0.verdict") != "usable" || got.str("plan") != "kv" {
		t.Fatalf("after the prewarm: %s", got.body)
	}
	if again := target.call("GET", "/v1/instances/"+target.id+"/tasks", "", "X-Berth-Incarnation: "+target.incarnation).want(200); again.at("tasks.0") != nil {
		t.Fatalf("an answered task is handed out again: %s", again.body)
	}
}
