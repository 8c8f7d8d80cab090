package services_test

import (
	"strings"
	"testing"
)

// Two requests of a new session that came to one worker with handles of before it
// began: the second is told that the session is the worker's own, at another epoch,
// and that the newest handle takes the same op.
func TestAnOwnerWithAnOldHandleIsToldSo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	fresh := b.route("s").want(200).str("handle")
	newest := w.append("s", "first", fresh, `1`).want(200)
	for _, members := range [][]string{nil, {`"at":"end"`}} {
		a := w.append("s", "second", fresh, `2`, members...).refused(409, "not_owner")
		if a.str("owner.instance") != "i1" || a.str("owner.epoch") != newest.str("epoch") || a.str("parked") != "true" {
			t.Errorf("who owns it: %s", a.body)
		}
		if d := a.str("detail"); !strings.Contains(d, "the caller owns the session, but at epoch "+newest.str("epoch")) || !strings.Contains(d, "newest handle") {
			t.Errorf("what the owner is told: %s", d)
		}
	}
	if page := b.call("GET", "/problems/not_owner", "").want(200); !strings.Contains(string(page.body), "names the caller itself") {
		t.Errorf("the page does not explain it: %s", page.body)
	}
	w.append("s", "second", newest.str("handle"), `2`).want(200)
	if a := w.recover("s", "", "claim").want(200); a.str("parked") != "" || a.str("count") != "2" {
		t.Errorf("after the same op with the newest handle: %s", a.body)
	}
	other := b.worker("i2")
	if d := other.append("s", "third", newest.str("handle"), `3`).refused(409, "not_owner").str("detail"); strings.Contains(d, "the caller owns") {
		t.Errorf("who is not the owner is told: %s", d)
	}
}

// Why a session cannot be claimed: its epoch is not always the reason.
func TestWhyASessionIsNotClaimed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner, other := b.open("s", b.worker("i1"), b.worker("i2"))
	a := other.recover("s", "", "claim").refused(409, "stale_handle")
	if d := a.str("detail"); !strings.Contains(d, "needs a handle of /route") || strings.Contains(d, "gone on") || a.str("owner.instance") != owner.id {
		t.Errorf("without a handle: %s", a.body)
	}
	hint := b.route("s").want(200).str("handle") // names the owner
	if d := other.recover("s", hint, "claim").refused(409, "stale_handle").str("detail"); !strings.Contains(d, "names another instance") {
		t.Errorf("with a handle for another: %s", d)
	}
	elsewhere := b.route("s", "&exclude="+owner.id).want(200).str("handle")
	other.recover("s", elsewhere, "claim").want(200)
	if d := owner.recover("s", hint, "claim").refused(409, "stale_handle").str("detail"); !strings.Contains(d, "gone on to epoch") {
		t.Errorf("with a handle of before: %s", d)
	}
}

func TestARefusalWithoutATokenSaysWhichIsMeant(t *testing.T) {
	t.Parallel()
	b := setupTokens(t, gateway)
	for _, path := range []string{"/route?session=s", "/v1/instances", "/metrics"} {
		if a := b.call("GET", path, "").refused(401, "unauthorized"); a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: %v", path, a.header)
		}
	}
	if a := b.as("gateway").call("GET", "/v1/jobs", "").refused(403, "forbidden"); a.header.Get("WWW-Authenticate") != "" {
		t.Errorf("a known token: %v", a.header)
	}
}
