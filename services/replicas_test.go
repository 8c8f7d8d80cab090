package services_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"berth/services"
	"berth/statestore"
)

// two starts two processes on one store.
func two(t *testing.T, options ...option) (a, b *bundle) {
	t.Helper()
	store := openStore(t)
	return setupOn(t, store, options...), setupOn(t, store, options...)
}

// at is the worker, calling another process.
func (w *worker) at(b *bundle) *worker { return &worker{b, w.id, w.incarnation} }

// Case R15: two processes that route the same new id at the same time say the
// same, a thousand times.
func TestTwoProcessesDecideAlike(t *testing.T) {
	t.Parallel()
	a, b := two(t, func(o *services.Options) { o.MissRate = 1_000_000 })
	for i := range 5 {
		a.worker(fmt.Sprint("i", i))
	}
	b.call("GET", "/v1/instances", "").want(200)
	a.call("GET", "/v1/instances", "").want(200)
	var all sync.WaitGroup
	for g := range 10 {
		all.Go(func() {
			for i := range 100 {
				id := fmt.Sprintf("new-%d-%d", g, i)
				var answers [2]answer
				var pair sync.WaitGroup
				for p, process := range []*bundle{a, b} {
					pair.Go(func() { answers[p] = process.route(id) })
				}
				pair.Wait()
				x, y := answers[0].want(200), answers[1].want(200)
				if x.str("snapshot_version") == y.str("snapshot_version") && x.str("instance") != y.str("instance") {
					t.Errorf("%s: %s and %s", id, x.body, y.body)
				}
			}
		})
	}
	all.Wait()
}

// Case T22: a session stays where it is, whichever process is asked.
func TestASessionStaysThroughEveryProcess(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	workers := map[string]*worker{}
	for i := range 4 {
		w := a.worker(fmt.Sprint("i", i))
		workers[w.id] = w
	}
	b.call("GET", "/v1/instances", "").want(200)
	processes := []*bundle{a, b}
	for s := range 20 {
		id, first, handle := fmt.Sprint("s", s), "", ""
		for turn := range 6 {
			process := processes[turn%2]
			hint := process.call("GET", "/route?session="+id, "", "X-Berth-Handle: "+handle).want(200)
			if first == "" {
				first = hint.str("instance")
			}
			if hint.str("instance") != first {
				t.Fatalf("turn %d of %s goes to %s, the first went to %s", turn, id, hint.str("instance"), first)
			}
			w := workers[first].at(processes[(turn/2)%2])
			handle = w.append(id, fmt.Sprint("op-", turn), hint.str("handle"), `1`).want(200).str("handle")
		}
	}
}

// A process learns of an owner that another one made before it calls the owner
// gone: else a claim without a handle would take the session from a living owner.
func TestAnOwnerThatAnotherProcessRegisteredIsNotGone(t *testing.T) {
	t.Parallel()
	a := setup(t)
	b := idle(t, a.store)
	thief := a.worker("i1").at(b)
	thief.recover("other", "", "claim").want(200) // known to b
	fresh := a.worker("fresh")
	fresh.append("s", "op", handleFor(a, "s", fresh.id), `1`).want(200)
	if got := thief.recover("s", "", "claim").refused(409, "stale_handle"); got.str("owner.instance") != fresh.id {
		t.Fatalf("the owner is %s", got.body)
	}
}

// idle is a process that sees only what it must: nothing refreshes it.
func idle(t *testing.T, store statestore.Store) *bundle {
	t.Helper()
	server, err := services.New(t.Context(), services.Options{Store: store, Process: "idle", StoreTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server.Handler())
	t.Cleanup(web.Close)
	return &bundle{t: t, store: store, server: server, url: web.URL}
}

// handleFor is a handle of a session that is not stored yet.
func handleFor(b *bundle, id, instance string) string {
	return b.routeHandle(id, statestore.Floor{}, instance)
}

// An instance works with every process as soon as one has registered it.
func TestAnInstanceIsKnownEverywhereAtOnce(t *testing.T) {
	t.Parallel()
	a := setup(t)
	b := idle(t, a.store)
	for i := range 10 {
		id := fmt.Sprint("s", i)
		w := a.worker(fmt.Sprint("i", i)).at(b)
		switch i % 4 { // whichever call comes first
		case 0:
			w.recover(id, "", "claim").want(200)
		case 1:
			w.append(id, "op", handleFor(b, id, w.id), `1`).want(200)
		case 2:
			w.call("GET", "/v1/instances/"+w.id+"/tasks", "", "X-Berth-Incarnation: "+w.incarnation).want(200)
		case 3:
			w.beat(0)
		}
		w.recover(id, "", "claim").want(200)
		w.call("GET", "/v1/instances/"+w.id+"/tasks", "", "X-Berth-Incarnation: "+w.incarnation).want(200)
		w.call("PUT", "/v1/instances/"+w.id, fmt.Sprintf(`{"address":"10.0.0.1:80","incarnation":%q}`, w.incarnation)).want(200)
		w.at(a).recover(id, "", "claim").want(200)
	}
}

// An owner that has deregistered, or has begun another boot, is gone: its sessions
// can be claimed without a handle, at once and through every process.
func TestAGoneOwnerLosesItsSessions(t *testing.T) {
	t.Parallel()
	cases := map[string]func(owner *worker){
		"deregistered": func(owner *worker) {
			owner.call("DELETE", "/v1/instances/"+owner.id, "", "X-Berth-Incarnation: "+owner.incarnation).want(204)
		},
		"removed by an operator": func(owner *worker) {
			owner.call("DELETE", "/v1/instances/"+owner.id+"?force=true", "").want(204)
		},
		"another boot": func(owner *worker) { owner.bundle.worker(owner.id) },
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := setup(t)
			owner, other := a.open("s", a.worker("i1"), a.worker("i2"))
			other = other.at(idle(t, a.store))
			other.recover("s", "", "claim").refused(409, "stale_handle")
			end(owner)
			got := other.recover("s", "", "claim").want(200)
			if got.str("version") != "1" || got.str("turns.0.value") != "hello" {
				t.Fatalf("recovered %s", got.body)
			}
			other.append("s", "op", got.str("handle"), `2`).want(200)
			if hint := a.route("s").want(200); hint.str("instance") != other.id || hint.str("reason") != "bound" {
				t.Fatalf("route: %s", hint.body)
			}
			if late := owner.append("s", "late", got.str("handle"), `3`); late.status == 200 {
				t.Fatalf("the gone owner still writes: %s", late.body)
			}
		})
	}
}

// What a process did itself it shows in its next route, without being told.
func TestAProcessSeesItsOwnWritesAtOnce(t *testing.T) {
	t.Parallel()
	a := setup(t)
	w1, w2 := a.worker("i1"), a.worker("i2")
	b := idle(t, a.store)
	owner, other := b.open("s", w1.at(b), w2.at(b))
	seen := func() answer { return b.route("s").want(200) }
	if a := seen(); a.str("version") != "1" || a.str("instance") != owner.id {
		t.Fatalf("after the first append: %s", a.body)
	}
	owner.append("s", "second", seen().str("handle"), `2`).want(200)
	if a := seen(); a.str("version") != "2" || a.str("reason") != "bound" {
		t.Fatalf("after an append: %s", a.body)
	}
	other.recover("s", b.route("s", "&exclude="+owner.id).want(200).str("handle"), "claim").want(200)
	if a := seen(); a.str("instance") != other.id || a.str("jump") != "true" || a.str("previous") != owner.id {
		t.Fatalf("after a claim: %s", a.body)
	}
	other.finish("s", seen().str("handle")).want(200)
	if a := seen(); a.str("reason") != "lapsed" {
		t.Fatalf("after a finish: %s", a.body)
	}
	other.recover("s", "", "claim").want(200)
	if a := seen(); a.str("instance") != other.id || a.str("reason") != "bound" {
		t.Fatalf("after another claim: %s", a.body)
	}
	b.call("DELETE", "/v1/sessions/s", "").want(200)
	if a := seen(); a.str("new") != "true" || a.str("version") != "0" {
		t.Fatalf("after a delete: %s", a.body)
	}
}

// A silent owner is down after its lease: routes go elsewhere and a claim needs no
// handle, yet until somebody claims its writes count (down changes hints only).
func TestASilentOwnerIsDown(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *services.Options) { o.SuspectAfter, o.DownAfter = 3*time.Second, 6*time.Second })
	w1, w2 := b.worker("i1"), b.worker("i2")
	owner, other := b.open("s", w1, w2)
	other.beats()
	h := b.route("s").want(200).str("handle")
	eventually(t, "the silent owner is down", func() bool {
		return b.call("GET", "/v1/instances/"+owner.id, "").want(200).str("state") == "down"
	})
	if hint := b.route("s").want(200); hint.str("instance") != other.id || hint.str("reason") != "failover" || hint.str("jump") != "true" {
		t.Fatalf("route: %s", hint.body)
	}
	h = owner.append("s", "still", h, `2`).want(200).str("handle")
	got := other.recover("s", "", "claim").want(200)
	if got.str("version") != "2" {
		t.Fatalf("claimed %s", got.body)
	}
	other.append("s", "served", got.str("handle"), `3`).want(200)
	if late := owner.append("s", "late", h, `4`).refused(409, "not_owner"); late.str("parked") != "true" {
		t.Fatalf("late: %s", late.body)
	}
	// Case R12: it comes back, and nobody jumps back.
	owner.beat(0)
	eventually(t, "the owner is well again", func() bool {
		owner.beat(0)
		return b.call("GET", "/v1/instances/"+owner.id, "").want(200).str("state") == "ready"
	})
	if hint := b.route("s").want(200); hint.str("instance") != other.id || hint.str("jump") != "" {
		t.Fatalf("route after the recovery: %s", hint.body)
	}
}

// beats lets an instance beat by itself until the test ends.
func (w *worker) beats() {
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	by := statestore.Owner{Instance: w.id, Incarnation: statestore.IncarnationDigest(w.incarnation)}
	var beating sync.WaitGroup
	beating.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if _, err := w.store.Heartbeat(ctx, by, statestore.Heartbeat{}); err != nil && ctx.Err() == nil {
				w.t.Errorf("heartbeat of %s: %v", w.id, err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	w.t.Cleanup(func() {
		stop()
		beating.Wait()
	})
}

// patience is how long what takes moments may take on a busy machine.
const patience = 2 * time.Minute

// eventually polls for what nothing announces.
func eventually(t testing.TB, what string, happened func() bool) {
	t.Helper()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !happened() {
		select {
		case <-poll.C:
		case <-limit.C:
			t.Fatalf("after %s still not: %s", patience, what)
		}
	}
}
