package services_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"berth/services"
)

// A snapshot says of a pool what decisions depend on, and of its sessions where
// they stand on the ring, without their ids.
func TestSnapshotHidesIDs(t *testing.T) {
	t.Parallel()
	b := setup(t, quick)
	w1, w2 := b.worker("i1", `"zone":"a"`, `"max_running":7`), b.worker("i2", `"weight":50`)
	w1.beat(3)
	b.crowd(3, w1, w2)
	bare := b.call("GET", "/v1/snapshot", "").want(200)
	if bare.str("instances.0.id") != "i1" || bare.str("instances.0.zone") != "a" || bare.str("instances.0.max_running") != "7" ||
		bare.str("instances.0.running") != "3" || bare.str("instances.1.weight") != "50" || bare.str("instances.0.state") != "ready" ||
		bare.str("instances.0.breaker") != "closed" || bare.at("sessions") != nil {
		t.Errorf("snapshot %s", bare.body)
	}
	seen, cursor := map[string]bool{}, ""
	for range 4 {
		page := b.call("GET", "/v1/snapshot?sessions=hash&limit=1&cursor="+cursor, "").want(200)
		if strings.Contains(string(page.body), "crowd-") {
			t.Fatalf("an id is told: %s", page.body)
		}
		if page.at("sessions.0") != nil {
			seen[page.str("sessions.0.ring")] = true
			if page.str("sessions.0.owner") != "i1" || page.str("sessions.0.live") != "true" || page.str("sessions.0.turns") != "1" {
				t.Errorf("session %s", page.body)
			}
		}
		if cursor = page.str("cursor"); cursor == "" {
			break
		}
	}
	for i := range 3 {
		if want := fmt.Sprintf("%016x", xxhash.Sum64String(fmt.Sprintf("crowd-%d", i))); !seen[want] {
			t.Errorf("no session stands at %s: %v", want, seen)
		}
	}
	b.call("GET", "/v1/snapshot?pool=none", "").refused(404, "unknown_pool")
	b.call("GET", "/v1/snapshot?sessions=clear", "").refused(422, "invalid")
}

// What a job moved is told with whom it left, until its owner changes otherwise.
func TestSnapshotTellsMoves(t *testing.T) {
	t.Parallel()
	b := setup(t, quick)
	w1, w2 := b.worker("i1"), b.worker("i2")
	b.crowd(1, w1, w2)
	job := b.call("POST", "/v1/drains", `{"instances":["i1"],"in_flight_grace_ms":0}`).want(202)
	path := job.header.Get("Location")
	for range 200 {
		if b.call("GET", path+"?wait=1s", "").want(200).str("progress.moved") == "1" {
			break
		}
	}
	page := b.call("GET", "/v1/snapshot?sessions=hash", "").want(200)
	if page.str("sessions.0.owner") != "i2" || page.str("sessions.0.moved.from") != "i1" {
		t.Errorf("after the move: %s", page.body)
	}
}

// The sessions of one tenant are not shown to the operator of another.
func TestSnapshotKeepsTenantsApart(t *testing.T) {
	t.Parallel()
	theirs := services.Token{Name: "theirs", Roles: []services.Role{services.RoleOperator}, Tenants: []string{"theirs"}}
	b := setupTokens(t, gateway, workers, operator, theirs)
	w := b.as("worker").worker("i1")
	w.append("s", "first", b.as("gateway").route("s").want(200).str("handle"), `1`).want(200)
	if a := b.as("operator").call("GET", "/v1/snapshot?sessions=hash", "").want(200); a.at("sessions.0") == nil {
		t.Errorf("its own session is missing: %s", a.body)
	}
	if a := b.as("theirs").call("GET", "/v1/snapshot?sessions=hash", "").want(200); a.at("sessions.0") != nil {
		t.Errorf("another tenant's session is shown: %s", a.body)
	}
}
