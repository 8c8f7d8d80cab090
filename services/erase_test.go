package services_test

import (
	"fmt"
	"strings"
	"testing"

	"berth/services"
)

// begin begins a session with an affinity key, on whichever worker is hinted.
func (b *bundle) begin(session, key string, workers map[string]*worker, headers ...string) {
	b.t.Helper()
	hint := b.call("GET", "/route?session="+session+"&key="+key, "", headers...).want(200)
	w := workers[hint.str("instance")]
	b.call("POST", "/v1/sessions/"+session+"/turns", fmt.Sprintf(
		`{"op":"first","handle":%q,"instance":%q,"incarnation":%q,"turns":[{"value":"a secret"}]}`, hint.str("handle"), w.id, w.incarnation), headers...).want(200)
}

// All sessions of a key end, with their contexts, and instances are asked to forget
// them; those of other keys and other tenants stay.
func TestErase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	workers := map[string]*worker{"i1": b.worker("i1"), "i2": b.worker("i2")}
	for i := range 5 {
		b.begin(fmt.Sprint("a", i), "alice", workers)
	}
	b.begin("b0", "bob", workers)
	b.begin("a0", "alice", workers, "X-Berth-Tenant: other")
	for _, w := range workers {
		w.call("PUT", "/v1/sessions/a0/kv", fmt.Sprintf(
			`{"instance":%q,"incarnation":%q,"placements":[{"tier":"slot_file","tokens":1,"version":1}]}`, w.id, w.incarnation)).want(204)
	}
	job := b.call("DELETE", "/v1/sessions?key=alice", "").want(202)
	if job.str("kind") != "erase" || job.str("pool") != "" || job.header.Get("Location") != "/v1/jobs/"+job.str("id") {
		t.Errorf("job %s at %s", job.body, job.header.Get("Location"))
	}
	end := b.ended(job.str("id"), "succeeded")
	if end.str("progress.erased") != "5" || end.str("progress.total") != "5" {
		t.Errorf("ended as %s", end.body)
	}
	if list := b.call("GET", "/v1/sessions?key=alice", "", "X-Berth-Tenant: default").want(200); list.at("sessions.0") != nil {
		t.Errorf("still there: %s", list.body)
	}
	b.call("GET", "/v1/sessions/a0", "").refused(410, "deleted")
	b.call("GET", "/v1/sessions/b0", "").want(200)
	b.call("GET", "/v1/sessions/a0", "", "X-Berth-Tenant: other").want(200)
	for _, w := range workers {
		a := w.call("GET", "/v1/instances/"+w.id+"/tasks?wait=1s", "", "X-Berth-Incarnation: "+w.incarnation).want(200)
		if a.str("tasks.0.kind") != "forget" || a.str("tasks.0.session") != "a0" {
			t.Errorf("%s is asked %s", w.id, a.body)
		}
	}
	if a := b.route("a1").want(200); a.str("new") != "true" {
		t.Errorf("the route to an erased session says %s", a.body)
	}
}

// Wrong erases are refused, and nothing is begun.
func TestWrongErases(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	for _, wrong := range []string{
		"", "?key=", "?key=" + strings.Repeat("k", 1025), "?key=a&deadline_ms=0", "?key=a&deadline_ms=604800001",
		"?key=a&sessions_per_s=-1", "?key=a&deadline_ms=soon",
	} {
		b.call("DELETE", "/v1/sessions"+wrong, "").refused(422, "invalid")
	}
	b.call("DELETE", "/v1/sessions?key=a&pool=nowhere", "").refused(404, "unknown_pool")
	if a := b.call("GET", "/v1/jobs", "").want(200); a.at("jobs.0") != nil {
		t.Errorf("jobs: %s", a.body)
	}
	tokens := setupTokens(t, services.Token{Name: "narrow", Roles: []services.Role{services.RoleOperator}, Pools: []string{"p", "q"}}, workers)
	tokens.as("narrow").call("DELETE", "/v1/sessions?key=a", "").refused(403, "forbidden")
	tokens.as("worker").call("DELETE", "/v1/sessions?key=a", "").refused(403, "forbidden")
}

// What waits for the owner of a session is shown to operators: all of it to those who
// may read content, sizes to the others.
func TestParkedWritesAreShown(t *testing.T) {
	t.Parallel()
	reader := services.Token{Name: "reader", Roles: []services.Role{services.RoleOperator}, Scopes: []string{services.ScopeContent}}
	b := setupTokens(t, workers, operator, gateway, reader)
	w1, w2 := b.as("worker").worker("i1"), b.as("worker").worker("i2")
	owner, other := b.as("worker").open("s", w1, w2)
	b.as("operator").call("GET", "/v1/sessions/none/parked", "").refused(404, "not_found")
	if a := b.as("operator").call("GET", "/v1/sessions/s/parked", "").want(200); string(a.body) == "" || a.at("parked.0") != nil || a.str("owner.instance") != owner.id {
		t.Errorf("nothing is parked, and it says %s", a.body)
	}
	stale := owner.recover("s", "", "read").want(200).str("handle")
	hint := b.as("gateway").route("s", "&exclude="+owner.id+":connect").want(200)
	other.recover("s", hint.str("handle"), "claim").want(200)
	owner.append("s", "late", stale, `"a secret"`).refused(409, "not_owner")
	a := b.as("operator").call("GET", "/v1/sessions/s/parked", "").want(200)
	if a.str("parked.0.op") != "late" || a.str("parked.0.by.instance") != owner.id || a.str("parked.0.bytes") != "10" || a.str("owner.instance") != other.id {
		t.Errorf("parked: %s", a.body)
	}
	if a.at("parked.0.turns") != nil || strings.Contains(string(a.body), "secret") || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("an operator reads content: %s", a.body)
	}
	if a = b.as("reader").call("GET", "/v1/sessions/s/parked", "").want(200); a.str("parked.0.turns.0.base64") != "ImEgc2VjcmV0Ig==" {
		t.Errorf("a reader of content is shown %s", a.body)
	}
	b.as("worker").call("GET", "/v1/sessions/s/parked", "").refused(403, "forbidden")
}
