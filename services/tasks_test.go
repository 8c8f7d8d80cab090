package services_test

import (
	"fmt"
	"slices"
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

// A drain asks both ends of a session that was active lately, and tells both when
// it has moved: where the source finds it, and the target what epoch it owns.
func TestBothEndsOfADrainAreAskedAndTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	source, target := b.open("s", b.worker("i1"), b.worker("i2"))
	source.beat(1)
	b.call("POST", "/v1/drains", `{"instances":["`+source.id+`"],"in_flight_grace_ms":20000}`).want(202)
	next := func(w *worker) answer {
		return w.call("GET", "/v1/instances/"+w.id+"/tasks?wait=20s", "", "X-Berth-Incarnation: "+w.incarnation).want(200)
	}
	for _, want := range []struct {
		by   *worker
		kind string
	}{{source, "offload"}, {target, "prewarm"}, {source, "release"}} {
		got := next(want.by)
		if got.str("tasks.0.kind") != want.kind || got.at("tasks.0.moved") != nil {
			t.Fatalf("want %s, got %s", want.kind, got.body)
		}
		answer := `{"incarnation":"` + want.by.incarnation + `","result":"done","version":1}`
		want.by.call("POST", "/v1/instances/"+want.by.id+"/tasks/"+got.str("tasks.0.id"), answer).want(204)
	}
	away, here := next(source), next(target)
	if away.str("tasks.0.kind") != "release" || away.str("tasks.0.moved.instance") != target.id || away.str("tasks.0.moved.address") == "" {
		t.Errorf("the source is told %s", away.body)
	}
	hint := b.route("s").want(200)
	if away.str("tasks.0.lease_ms") != "0" || here.str("tasks.0.lease_ms") != "0" {
		t.Errorf("notices that are handed out again: %s, %s", away.body, here.body)
	}
	if here.str("tasks.0.moved.instance") != target.id || here.str("tasks.0.moved.epoch") != hint.str("epoch") {
		t.Errorf("the target is told %s, the hint is %s", here.body, hint.body)
	}
	// The notice's handle reads the session at its present epoch.
	if got := target.recover("s", here.str("tasks.0.handle"), "prewarm").want(200); got.str("epoch") != hint.str("epoch") {
		t.Errorf("the notice's handle reads %s", got.body)
	}
}

// A heartbeat's answer names the tasks that wait, and hands none of them out: the
// worker polls for them, or answers them.
func TestAHeartbeatNamesTheTasksThatWait(t *testing.T) {
	t.Parallel()
	b, store := setupFaulty(t)
	w := b.worker("i1")
	eventually(t, "a heartbeat looks for no tasks", func() bool {
		before := store.looks.Load()
		w.beat(0)
		return store.looks.Load() == before
	})
	if a := w.beat(0); len(a.at("tasks").([]any)) != 0 || a.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("without tasks: %s", a.body)
	}
	boot := statestore.Owner{Instance: "i1", Incarnation: statestore.IncarnationDigest(w.incarnation)}
	key := statestore.SessionKey{Tenant: "default", Pool: "default", ID: "s"}
	put := func(ids ...string) {
		t.Helper()
		var tasks []statestore.Task
		for _, id := range ids {
			tasks = append(tasks, statestore.Task{ID: id, Kind: statestore.TaskPrewarm, Session: key, For: boot})
		}
		if err := b.store.PutTasks(t.Context(), tasks, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	names := func() (ids []string) {
		a := w.beat(0)
		for i := range a.at("tasks").([]any) {
			at := fmt.Sprintf("tasks.%d.", i)
			if a.str(at+"handle") == "" || a.str(at+"lease_ms") != "0" || a.str(at+"kind") != "prewarm" || a.str(at+"session") != "s" {
				t.Fatalf("a task that waits: %s", a.body)
			}
			ids = append(ids, a.str(at+"id"))
		}
		return ids
	}
	put("a", "b")
	eventually(t, "both are named", func() bool { return slices.Equal(names(), []string{"a", "b"}) })
	w.call("POST", "/v1/instances/i1/tasks/a", `{"incarnation":"`+w.incarnation+`","result":"done"}`).want(204)
	if got := names(); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("after one was answered: %v", got)
	}
	w.call("GET", "/v1/instances/i1/tasks", "", "X-Berth-Incarnation: "+w.incarnation).want(200)
	if got := names(); got != nil {
		t.Fatalf("after the other was handed out: %v", got)
	}
	before := store.looks.Load()
	for range 10 {
		w.beat(0)
	}
	if n := store.looks.Load() - before; n != 0 {
		t.Errorf("%d looks of 10 heartbeats without tasks", n)
	}
	put("c")
	eventually(t, "the next is named", func() bool { return slices.Equal(names(), []string{"c"}) })
}
