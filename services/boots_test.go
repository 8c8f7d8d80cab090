package services_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/services"
)

// register sends a registration as it stands.
func (b *bundle) register(id, body string) answer {
	b.t.Helper()
	return b.call("PUT", "/v1/instances/"+id, body)
}

// Case R18: an instance that comes back as another boot, elsewhere, is offered its
// old sessions at the new address, with a handle to rebuild them.
func TestAnotherBootIsOfferedItsSessions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	h := w.append("s", "first", b.route("s").want(200).str("handle"), `"hello"`).want(200).str("handle")
	boot := b.register("i1", `{"address":"10.9.9.9:8000"}`).want(200)
	if boot.str("incarnation") == w.incarnation || boot.str("state") != "warming" || boot.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("another boot: %s", boot.body)
	}
	b.route("s").refused(503, "not_eligible") // it has not said that it is ready
	again := &worker{b, "i1", boot.str("incarnation")}
	again.beat(0)
	hint := b.route("s").want(200)
	if hint.str("address") != "10.9.9.9:8000" || hint.str("reason") != "replaced" || hint.str("version") != "1" {
		t.Fatalf("route: %s", hint.body)
	}
	w.append("s", "late", h, `"of the boot before"`).want(200) // nobody has taken it over yet
	got := again.recover("s", hint.str("handle"), "claim").want(200)
	if got.str("version") != "2" || got.str("plan") != "recompute" {
		t.Fatalf("recovered %s", got.body)
	}
	if a := w.append("s", "later", h, `1`).refused(409, "not_owner"); a.str("why") != "replaced" {
		t.Fatalf("the boot before: %s", a.body)
	}
	w.call("POST", "/v1/instances/i1/heartbeat", fmt.Sprintf(`{"incarnation":%q,"running":0,"waiting":0}`, w.incarnation)).refused(409, "stale_incarnation")
}

// Case T20: what the boot before held in its memory is worth nothing any more; what
// it had put where others read it still is.
func TestAnotherBootsPlacementsAreGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	kv := `"kv":[{"tier":"gpu","tokens":10,"version":1},{"tier":"object","uri":"s3://bucket/x","tokens":10,"version":1}]`
	w.append("s", "first", b.route("s").want(200).str("handle"), `"hello"`, kv).want(200)
	if a := w.recover("s", "", "read").want(200); a.str("kv.0.verdict") != "usable" || a.str("plan") != "kv" {
		t.Fatalf("before: %s", a.body)
	}
	again := b.worker("i1")
	a := again.recover("s", b.route("s").want(200).str("handle"), "claim").want(200)
	if a.str("kv.0.verdict") != "owner_gone" || a.str("kv.1.verdict") != "usable" || a.str("plan") != "kv" || a.str("turns.0.value") != "hello" {
		t.Fatalf("after: %s", a.body)
	}
}

// An address is reused: whoever had it before is suspect at once, not when its
// silence is noticed, and no more than suspect until it is heard of.
func TestWhoeverTakesAnAddressMakesTheOneBeforeSuspect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.worker("i1", `"rank":2`)
	old.append("s", "first", b.route("s").want(200).str("handle"), `1`).want(200)
	b.worker("i2")
	address := b.call("GET", "/v1/instances/i1", "").want(200).str("address")
	state := func(want string) {
		t.Helper()
		if a := b.call("GET", "/v1/instances/i1", "").want(200); a.str("state") != want {
			t.Fatalf("i1 is %s, want %s", a.str("state"), want)
		}
	}
	take := func(rank int) {
		t.Helper()
		b.register("i3", fmt.Sprintf(`{"address":%q,"rank":%d}`, address, rank)).want(200)
	}
	take(1)
	state("ready") // another rank of one address
	take(2)
	state("suspect")
	if a := b.route("s").want(200); a.str("instance") != "i1" || a.str("reason") != "bound" {
		t.Fatalf("its session: %s", a.body)
	}
	for i := range 20 {
		if a := b.route(fmt.Sprint("new-", i)).want(200); a.str("instance") != "i2" {
			t.Fatalf("a new session: %s", a.body)
		}
	}
	if a := old.beat(0); a.str("state") != "ready" {
		t.Fatalf("heard of again: %s", a.body)
	}
	state("ready")
}

// Case R30: registered again, in another pool and with another weight, an instance
// is where it is now, and only there.
func TestRegisteringAgainMovesAnInstance(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1", `"pool":"x"`)
	b.worker("i2", `"pool":"y"`)
	b.register("i1", fmt.Sprintf(`{"pool":"y","address":"10.0.0.1:80","weight":200,"incarnation":%q}`, w.incarnation)).want(200)
	ring := b.call("GET", "/v1/ring?pool=y", "").want(200)
	if share := ring.str("shares.i1"); !strings.HasPrefix(share, "0.6") {
		t.Fatalf("share %s of weight 200 beside 100, want two thirds: %s", share, ring.body)
	}
	if a := b.call("GET", "/v1/ring?pool=x", "").want(200); a.str("shares.i1") != "" {
		t.Fatalf("still in the pool that it left: %s", a.body)
	}
	b.call("GET", "/route?pool=x&session=s", "").refused(503, "not_eligible")
	list := b.call("GET", "/v1/instances", "").want(200)
	if list.str("instances.0.pool") != "y" || list.at("instances.2") != nil {
		t.Fatalf("instances: %s", list.body)
	}
	// A pool of a policy alone, and one whose instances weigh nothing, have no shares.
	b.call("PUT", "/v1/pools/empty/policy", `{}`).want(200)
	b.register("i3", `{"pool":"light","address":"10.0.0.3:80","weight":0}`).want(200)
	for pool, want := range map[string]string{"empty": "", "light": "0"} {
		if a := b.call("GET", "/v1/ring?pool="+pool, "").want(200); a.str("shares.i3") != want || a.str("max_mean") != "0" {
			t.Errorf("ring of %s: %s", pool, a.body)
		}
	}
	if a := b.call("GET", "/v1/instances/i1", "").want(200); a.str("weight") != "200" || a.str("state") != "ready" {
		t.Fatalf("i1: %s", a.body)
	}
}

// Case R31: the farewell of a boot before removes nobody, and a second farewell
// finds nobody.
func TestAnOldBootRemovesNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.worker("i1")
	present := b.worker("i1")
	old.call("DELETE", "/v1/instances/i1", "", "X-Berth-Incarnation: "+old.incarnation).refused(409, "stale_incarnation")
	present.beat(0)
	present.call("DELETE", "/v1/instances/i1", "", "X-Berth-Incarnation: "+present.incarnation).want(204)
	for _, w := range []*worker{old, present} {
		w.call("DELETE", "/v1/instances/i1", "", "X-Berth-Incarnation: "+w.incarnation).refused(404, "unknown_instance")
	}
	b.call("DELETE", "/v1/instances/i1", "").refused(404, "unknown_instance")
	// The pool is empty, not unknown: whoever asks should wait for the next boot.
	if a := b.route("s").refused(503, "not_eligible"); a.header.Get("Retry-After") == "" {
		t.Fatalf("headers %v", a.header)
	}
}

// An instance that an operator cordoned takes nobody new and keeps whom it has;
// one that was drained serves again when it is uncordoned.
func TestCordonAndUncordon(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *services.Options) { o.HintValid, o.CacheTTL = 100*time.Millisecond, 100*time.Millisecond })
	owner, other := b.open("s", b.worker("i1"), b.worker("i2"))
	cordon := func(w *worker, word string) answer { return b.call("POST", "/v1/instances/"+w.id+"/"+word, "") }
	if a := cordon(owner, "cordon").want(200); a.str("state") != "cordoned" {
		t.Fatalf("cordon: %s", a.body)
	}
	cordon(owner, "cordon").want(200)
	owner.beat(0) // says ready, and stays cordoned
	if a := b.route("s").want(200); a.str("instance") != owner.id {
		t.Fatalf("its session: %s", a.body)
	}
	for i := range 20 {
		if a := b.route(fmt.Sprint("new-", i)).want(200); a.str("instance") != other.id {
			t.Fatalf("a new session: %s", a.body)
		}
	}
	if a := cordon(owner, "uncordon").want(200); a.str("state") != "ready" {
		t.Fatalf("uncordon: %s", a.body)
	}
	b.register("cold", `{"address":"10.0.0.9:80"}`).want(200)
	b.call("POST", "/v1/instances/cold/cordon", "").refused(409, "wrong_state") // warming
	b.call("POST", "/v1/instances/cold/uncordon", "").refused(409, "wrong_state")

	b.call("POST", "/v1/drains", `{"instances":["`+owner.id+`"],"in_flight_grace_ms":0}`).want(202)
	eventually(t, "it is drained", func() bool {
		owner.beat(0)
		return b.call("GET", "/v1/instances/"+owner.id, "").want(200).str("state") == "drained"
	})
	owner.append("other", "op", handleFor(b, "other", owner.id), `1`).want(200) // stored, and bound to nobody
	if a := b.call("GET", "/v1/sessions/other", "").want(200); a.at("owner") != nil {
		t.Fatalf("bound to a drained instance: %s", a.body)
	}
	cordon(owner, "uncordon").want(200)
	owner.append("third", "op", handleFor(b, "third", owner.id), `1`).want(200)
	if a := b.call("GET", "/v1/sessions/third", "").want(200); a.str("owner.instance") != owner.id {
		t.Fatalf("not bound after it was uncordoned: %s", a.body)
	}
}

// An operator's word wins over the worker's until it is taken back with null.
func TestAnOperatorsWordWins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1", `"weight":50`, `"labels":{"a":"worker"}`)
	read := func() (weight, label string) {
		a := b.call("GET", "/v1/instances/i1", "").want(200)
		return a.str("weight"), a.str("labels.a")
	}
	steps := []struct{ body, weight, label string }{
		{`{}`, "50", "worker"},
		{`{"weight":10}`, "10", "worker"},
		{`{"labels":{"a":"operator"}}`, "10", "operator"},
		{`{"weight":null}`, "50", "operator"},
		{`{"labels":{}}`, "50", ""},
		{`{"weight":0}`, "0", ""},
		{`{"labels":null}`, "0", "worker"},
		{`{"weight":null,"labels":null}`, "50", "worker"},
	}
	for _, s := range steps {
		b.call("PATCH", "/v1/instances/i1", s.body).want(200)
		if weight, label := read(); weight != s.weight || label != s.label {
			t.Errorf("after %s: weight %s, label %q, want %s, %q", s.body, weight, label, s.weight, s.label)
		}
	}
	b.call("PATCH", "/v1/instances/i1", `{"weight":10}`).want(200)
	b.register("i1", fmt.Sprintf(`{"address":"10.0.0.1:80","weight":70,"incarnation":%q}`, w.incarnation)).want(200)
	b.worker("i1", `"weight":80`) // another boot
	if weight, _ := read(); weight != "10" {
		t.Errorf("the operator's weight is %s after registrations, want 10", weight)
	}
	for _, bad := range []string{`{"weight":-1}`, `{"weight":10001}`, `{"weight":"10"}`, `{"labels":{"a":1}}`, `{"Weight":1}`} {
		b.call("PATCH", "/v1/instances/i1", bad).refused(422, "invalid")
	}
}
