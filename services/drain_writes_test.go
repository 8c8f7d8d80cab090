package services_test

import (
	"testing"
	"time"

	"berth/services"
)

// Cases T26 and T27: an owner whose session was moved by a drain saves its last turn
// late. It is taken, the answer says where the session is, and the new owner has it.
func TestALateSaveAfterADrainIsTaken(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *services.Options) { o.HintValid, o.CacheTTL = 100*time.Millisecond, 100*time.Millisecond })
	owner, other := b.open("s", b.worker("i1"), b.worker("i2"))
	h := b.route("s").want(200).str("handle")
	job := b.call("POST", "/v1/drains", `{"instances":["`+owner.id+`"],"in_flight_grace_ms":0}`).want(202)
	if job.header.Get("Location") != "/v1/jobs/"+job.str("id") {
		t.Fatalf("location %q of %s", job.header.Get("Location"), job.body)
	}
	if a := owner.beat(1); a.str("state") != "draining" || a.str("drain.job") != job.str("id") {
		t.Fatalf("heartbeat of a draining instance: %s", a.body)
	}
	eventually(t, "the session has moved", func() bool { return b.route("s").want(200).str("instance") == other.id })
	hint := b.route("s").want(200)
	if hint.str("reason") != "bound" || hint.str("jump") != "true" || hint.str("previous") != owner.id {
		t.Fatalf("route: %s", hint.body)
	}

	first := owner.append("s", "late-1", h, `"late 1"`).want(200)
	if first.str("moved.instance") != other.id || first.str("moved.epoch") != hint.str("epoch") || first.str("version") != "2" {
		t.Fatalf("late save: %s", first.body)
	}
	look := owner.recover("s", first.str("handle"), "read").want(200)
	second := owner.append("s", "late-2", look.str("handle"), `"late 2"`).want(200)
	if again := owner.append("s", "late-2", h, `"late 2"`).want(200); again.str("duplicate") != "true" || again.str("moved.instance") != other.id {
		t.Fatalf("repeated: %s", again.body)
	}
	owner.replace("s", "late-3", second.str("handle"), `"all"`).refused(409, "not_owner")

	got := other.recover("s", hint.str("handle"), "claim").want(200)
	if got.str("version") != "3" || got.str("turns.2.value") != "late 2" || got.str("epoch") != hint.str("epoch") {
		t.Fatalf("the new owner has %s", got.body)
	}
	arrived := `berth_cross_instance_jumps_total{cause="moved"}`
	if n := b.metric(arrived); n != 0 {
		t.Errorf("%v sessions arrived before the new owner wrote", n)
	}
	next := other.append("s", "next", got.str("handle"), `"next"`).want(200)
	other.append("s", "next", got.str("handle"), `"next"`).want(200)
	other.append("s", "and-next", next.str("handle"), `"and next"`).want(200)
	if n := b.metric(arrived); n != 1 {
		t.Errorf("%v sessions arrived, want 1", n)
	}
	if a := owner.append("s", "too-late", second.str("handle"), `"too late"`).refused(409, "not_owner"); a.str("why") != "moved" || a.str("parked") != "true" {
		t.Fatalf("after the new owner wrote: %s", a.body)
	}

	// Drained, it takes nobody: a claim is told why.
	owner.beat(0)
	eventually(t, "it is drained", func() bool {
		owner.beat(0)
		return b.call("GET", "/v1/jobs/"+job.str("id")+"?wait=1s", "").want(200).str("state") == "succeeded"
	})
	fenced := owner.recover("s", b.routeHandle("s", b.floor("s"), owner.id), "claim").refused(409, "not_owner")
	if fenced.str("why") != "fenced" || fenced.str("owner.instance") != other.id {
		t.Fatalf("claim by a drained instance: %s", fenced.body)
	}
	if a := b.call("GET", "/v1/instances/"+owner.id, "").want(200); a.str("safe_to_stop") != "true" || a.at("because.0") != nil {
		t.Fatalf("not safe to stop: %s", a.body)
	}
}
