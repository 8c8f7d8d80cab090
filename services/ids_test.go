package services_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// Case R24: an id is what was sent, byte for byte, however it travels; none is
// cut, and none means another.
func TestIDsAreTakenWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	long := strings.Repeat("x", 255)
	ids := []string{
		long + "1", long + "2", "a/b", "a//b", "a%2Fb", "a b", "a+b", "{}", "{id}", "..", ".", "a?b=c", "a#b", "a&b=c", "ünïcödé ✓",
		"😀", "--", "'\"<>", "a;b", "a,b", "a:b", "a\\b", "turns", "Ａ", "A", "a",
	}
	for i, id := range ids {
		var hint answer
		if i%2 == 0 && !strings.ContainsAny(id, "ü✓😀Ａ") {
			hint = b.call("GET", "/route", "", "X-Session-ID: "+id).want(200)
		} else {
			hint = b.route(url.QueryEscape(id)).want(200)
		}
		if hint.str("new") != "true" {
			t.Errorf("%q was there already: %s", id, hint.body)
		}
		w.append(url.PathEscape(id), fmt.Sprint("op-", i), hint.str("handle"), fmt.Sprintf("%q", "turn of "+fmt.Sprint(i))).want(200)
	}
	for i, id := range ids {
		want := fmt.Sprintf(`"value":"turn of %d"`, i)
		a := b.call("GET", "/v1/sessions/"+url.PathEscape(id), "").want(200)
		if a.str("session") != id || a.str("count") != "1" || !strings.Contains(string(a.body), want) {
			t.Errorf("%q in the path: %s", id, a.body)
		}
		a = b.call("GET", "/v1/sessions/-", "", "X-Session-ID: "+id).want(200)
		if a.str("session") != id || !strings.Contains(string(a.body), want) {
			t.Errorf("%q in a header: %s", id, a.body)
		}
		a = b.call("POST", "/v1/recover", fmt.Sprintf(`{"session":%s,"mode":"read"}`, quoted(id))).want(200)
		if !strings.Contains(string(a.body), want) {
			t.Errorf("%q in a body: %s", id, a.body)
		}
		if a = b.route(url.QueryEscape(id)).want(200); a.str("version") != "1" {
			t.Errorf("%q in a query: %s", id, a.body)
		}
	}
}

// The id "-" itself has to travel in the header.
func TestTheIDDashTravelsInAHeader(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	body := fmt.Sprintf(`{"op":"op","handle":%q,"instance":"i1","incarnation":%q,"turns":[{"value":1}]}`,
		b.route("-").want(200).str("handle"), w.incarnation)
	b.call("POST", "/v1/sessions/-/turns", body, "x_session_id: -").want(200)
	if a := b.route("-").want(200); a.str("version") != "1" {
		t.Fatalf("route: %s", a.body)
	}
}

func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// Case R24: the header is found in any case and with any separators, and among
// several spellings always the same one.
func TestTheSessionHeaderIsFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	w.append("s", "op", b.route("s").want(200).str("handle"), `1`).want(200)
	found := func(headers ...string) string {
		return b.call("GET", "/route", "", headers...).want(200).str("version")
	}
	for _, name := range []string{
		"X-Session-ID", "x-session-id", "x_session_id", "X_SESSION_ID", "x-session_id", "Session-Id", "session_id",
		"x-claude-code-session-id", "x_dynamo_session_id", "X-SMG-Routing-Key",
	} {
		if found(name+": s") != "1" {
			t.Errorf("%s is not found", name)
		}
	}
	for range 20 { // maps have no order
		if found("X_Session_ID: other", "X-Session-ID: s", "x-dynamo-session-id: another") != "1" {
			t.Fatal("another spelling wins over the first name")
		}
		if found("X-Session-ID: ", "session-id: s") != "1" {
			t.Fatal("an empty header is not absent")
		}
	}
	if b.call("GET", "/route?session=s", "", "X-Session-ID: other").want(200).str("version") != "1" {
		t.Error("the header wins over the query")
	}
	if b.call("GET", "/route?session=", "", "X-Session-ID: s").want(200).str("version") != "1" {
		t.Error("an empty query is not absent")
	}
	if a := b.call("GET", "/route?session=", "").want(200); a.str("reason") != "stateless" || a.at("handle") != nil || a.at("epoch") != nil {
		t.Errorf("without a session: %s", a.body)
	}
}

// Case R25: the same id in three pools is three sessions, and none disturbs the
// others; models that mean one pool share its sessions.
func TestPoolsDoNotShareSessions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pools := map[string]*worker{}
	for _, pool := range []string{"x", "y", "z"} {
		pools[pool] = b.worker("of-"+pool, fmt.Sprintf(`"pool":%q`, pool))
	}
	b.call("PUT", "/v1/pools/x/policy", `{"models":["m","m(high)"]}`).want(200)
	for pool, w := range pools {
		h := b.call("GET", "/route?session=s&pool="+pool, "").want(200).str("handle")
		body := fmt.Sprintf(`{"op":"op","handle":%q,"instance":%q,"incarnation":%q,"turns":[{"value":%q}]}`, h, w.id, w.incarnation, pool)
		b.call("POST", "/v1/sessions/s/turns", body, "X-Berth-Pool: "+pool).want(200)
	}
	for pool, w := range pools {
		a := b.call("GET", "/route?session=s&pool="+pool, "").want(200)
		if a.str("instance") != w.id || a.str("reason") != "bound" || a.str("version") != "1" {
			t.Errorf("pool %s: %s", pool, a.body)
		}
		if a := b.call("GET", "/v1/sessions/s?pool="+pool, "").want(200); a.str("turns.0.value") != pool {
			t.Errorf("pool %s: %s", pool, a.body)
		}
	}
	for _, model := range []string{"m", "m(high)"} {
		for _, a := range []answer{
			b.call("GET", "/route?session=s&model="+url.QueryEscape(model), ""),
			b.call("GET", "/route?session=s", "", "X-Gateway-Model-Name: "+model),
		} {
			if a.want(200).str("instance") != "of-x" || a.str("version") != "1" {
				t.Errorf("model %s: %s", model, a.body)
			}
		}
	}
	b.call("GET", "/v1/sessions/s", "").refused(404, "not_found") // of the default pool
	b.call("PUT", "/v1/pools/y/policy", `{"models":["m"]}`).refused(422, "invalid")
}

// A worker that forgets to name its pool is told so: a session of that id in the
// default pool is another, and would look new.
func TestAnInstanceOfAnotherPoolIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	w := b.worker("i2", `"pool":"x"`)
	before := b.stored()
	w.recover("s", "", "claim").refused(422, "invalid")
	w.recover("s", "", "prewarm").refused(422, "invalid")
	w.append("s", "op", b.route("s").want(200).str("handle"), `1`).refused(422, "invalid")
	w.call("PUT", "/v1/sessions/s/kv", fmt.Sprintf(`{"instance":"i2","incarnation":%q,"placements":[]}`, w.incarnation)).refused(422, "invalid")
	if b.stored() != before {
		t.Fatal("something was stored")
	}
	w.call("POST", "/v1/recover", fmt.Sprintf(`{"session":"s","instance":"i2","incarnation":%q}`, w.incarnation), "X-Berth-Pool: x").want(200)
}
