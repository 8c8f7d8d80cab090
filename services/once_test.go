package services_test

import (
	"strings"
	"testing"
)

// What a route may choose from is a list, however many parameters or lines it comes in.
func TestListsOfARouteAreCombined(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, id := range []string{"i1", "i2", "i3"} {
		b.worker(id)
	}
	const exclude, subset = "X-Berth-Exclude: ", "X-Gateway-Destination-Endpoint-Subset: "
	address := func(id string) string { return b.call("GET", "/v1/instances/"+id, "").want(200).str("address") }
	for name, tc := range map[string]struct {
		query   string
		headers []string
	}{
		"two parameters":        {query: "&exclude=i1&exclude=i2"},
		"two that are escaped":  {query: "&exclude=%691&exclude=i2:busy"},
		"an empty one of three": {query: "&exclude=i1&exclude=&exclude=i2"},
		"two lines":             {headers: []string{exclude + "i1", exclude + "i2:timeout"}},
		"empty parameters":      {query: "&exclude=&exclude=", headers: []string{exclude + "i1,i2"}},
		"two endpoints":         {query: "&subset=10.9.9.9:1&subset=" + address("i3")},
		"two lines of them":     {headers: []string{subset + "10.9.9.9:1", subset + address("i3")}},
		"both":                  {query: "&subset=" + address("i3") + "&exclude=i1&exclude=i2", headers: []string{subset + address("i1"), subset + address("i2")}},
	} {
		// Whatever the ring prefers, one of the sessions would be sent elsewhere.
		for _, session := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			a := b.call("GET", "/route?session="+session+tc.query, "", tc.headers...).want(200)
			if a.str("instance") != "i3" {
				t.Errorf("%s: %s", name, a.body)
			}
		}
	}
	for _, result := range []string{"connect", "busy", "timeout"} {
		if b.metric(`berth_excludes_total{result="`+result+`"}`) == 0 {
			t.Errorf("%s was not heard", result)
		}
	}
	b.route("s", "&exclude=i1&exclude=i2:maybe").refused(400, "malformed")
	b.call("GET", "/route?session=s", "", exclude+"i1", exclude+"i2:maybe").refused(400, "malformed")
	b.route("s", "&subset=10.9.9.9:1&subset=10.9.9.8:1").refused(503, "not_eligible")
}

// What says which session, pool or tenant a call is about, or who makes it, comes once.
func TestWhatComesOnceIsRefusedTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	h := b.route("s", "&key=ka").want(200).str("handle")
	w.append("s", "op", h, `1`).want(200)
	before := b.stored()
	for _, tc := range []struct {
		method, path string
		headers      []string
		names        string
	}{
		{"GET", "/route?session=s&session=t", nil, "query.session"},
		{"GET", "/route?session=s&session=s", nil, "query.session"},
		{"GET", "/route?session=&session=s", nil, "query.session"},
		{"GET", "/route/v1/chat?session=s&sess%69on=t", nil, "query.session"},
		{"GET", "/route?pool=default&session=s&pool=other", nil, "query.pool"},
		{"GET", "/route?session=s&model=a&model=b", nil, "query.model"},
		{"GET", "/route?session=s&key=a&key=b", nil, "query.key"},
		{"GET", "/route?session=s&fallbacks=1&fallbacks=2", nil, "query.fallbacks"},
		{"GET", "/route?session=s&status=&status=", nil, "query.status"},
		{"GET", "/route", []string{"X-Session-ID: s", "X-Session-ID: t"}, "header.X-Session-Id"},
		{"GET", "/route", []string{"X-Session-ID: ", "X-Session-ID: s"}, "header.X-Session-Id"},
		{"GET", "/route", []string{"X-Session-ID: s", "session_id: s", "session_id: t"}, "header.Session_id"},
		{"GET", "/route?session=s", []string{"X-Berth-Pool: default", "X-Berth-Pool: other"}, "header.X-Berth-Pool"},
		{"GET", "/route?session=s", []string{"X-Gateway-Model-Name: a", "X-Gateway-Model-Name: b"}, "header.X-Gateway-Model-Name"},
		{"GET", "/route?session=s", []string{"X-Berth-Tenant: default", "X-Berth-Tenant: other"}, "header.X-Berth-Tenant"},
		{"GET", "/route?session=s", []string{"X-Berth-Key: a", "X-Berth-Key: b"}, "header.X-Berth-Key"},
		{"GET", "/route?session=s", []string{"X-Berth-Handle: " + h, "X-Berth-Handle: x"}, "header.X-Berth-Handle"},
		{"GET", "/v1/sessions/s?from=0&from=5", nil, "query.from"},
		{"GET", "/v1/sessions/s?pool=default&pool=default", nil, "query.pool"},
		{"GET", "/v1/sessions/s", []string{"X-Berth-Tenant: default", "X-Berth-Tenant: other"}, "header.X-Berth-Tenant"},
		{"GET", "/v1/sessions/-", []string{"X-Session-ID: s", "X-Session-ID: t"}, "header.X-Session-Id"},
		{"DELETE", "/v1/sessions/s", []string{"X-Berth-Handle: " + h, "X-Berth-Handle: x"}, "header.X-Berth-Handle"},
		{"DELETE", "/v1/sessions?key=ka&key=kb", nil, "query.key"},
		{"DELETE", "/v1/sessions?key=ka&key=ka", nil, "query.key"},
		{"DELETE", "/v1/instances/i1?force=true&force=false", nil, "query.force"},
		{"DELETE", "/v1/instances/i1?force=true", []string{"X-Berth-Incarnation: a", "X-Berth-Incarnation: " + w.incarnation}, "header.X-Berth-Incarnation"},
		{"GET", "/v1/instances/i1/tasks?max=1&max=2", []string{"X-Berth-Incarnation: " + w.incarnation}, "query.max"},
		{"POST", "/v1/sessions/s/turns", []string{"Content-Type: application/octet-stream", "Idempotency-Key: a", "Idempotency-Key: b"}, "header.Idempotency-Key"},
		{"GET", "/readyz?store=0&store=1", nil, "query.store"},
	} {
		a := b.call(tc.method, tc.path, "", tc.headers...).refused(400, "malformed")
		if a.str("errors.0.location") != tc.names || !strings.HasPrefix(a.str("detail"), tc.names+": is given twice") {
			t.Errorf("%s %s %q is refused with %s", tc.method, tc.path, tc.headers, a.body)
		}
		if strings.Contains(string(a.body), h) || strings.Contains(string(a.body), w.incarnation) {
			t.Errorf("%s tells a secret: %s", tc.path, a.body)
		}
	}
	if after := b.stored(); after != before {
		t.Errorf("stored\n%s\nbefore, and after\n%s", before, after)
	}
}

// What is no question to Berth may come twice, and so may a header that says the same.
func TestWhatMayComeTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	w.append("s", "op", b.route("s").want(200).str("handle"), `1`).want(200)
	for _, tc := range []struct {
		path    string
		headers []string
	}{
		{"/route/v1/models?session=s&include=a&include=b", nil},
		{"/route?session=s&x=%20&x=1", nil},
		{"/route", []string{"X-Session-ID: s", "X-Session-ID: s"}},
		{"/route", []string{"X-Session-ID: s", "X_Session_ID: other", "session-id: another"}},
		{"/route?session=s", []string{"X-Berth-Pool: default", "X-Berth-Pool: default"}},
		{"/route?session=s", []string{"Cookie: a", "Cookie: b", "X-Forwarded-For: a", "X-Forwarded-For: b"}},
		{"/v1/sessions/-", []string{"X-Session-ID: s", "X-Session-ID: s"}},
	} {
		if a := b.call("GET", tc.path, "", tc.headers...).want(200); a.str("version") != "1" {
			t.Errorf("%s %q: %s", tc.path, tc.headers, a.body)
		}
	}
}

// A query that cannot be read is refused ahead of every call: an erase whose pool is
// passed over would be one of all pools.
func TestQueriesThatCannotBeReadAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	w.append("s", "op", b.route("s", "&key=ka").want(200).str("handle"), `1`).want(200)
	before := b.stored()
	for _, call := range []string{
		"DELETE /v1/sessions?key=ka&pool=%zz", "DELETE /v1/sessions?key=ka&pool=none;x=1", "GET /v1/sessions?instance=%",
		"GET /v1/instances?pool=a;b", "GET /v1/ring?pool=%zz", "DELETE /v1/instances/i1?force=true&%zz", "GET /readyz?store=1;",
	} {
		method, path, _ := strings.Cut(call, " ")
		b.call(method, path, "").refused(400, "malformed")
	}
	if after := b.stored(); after != before {
		t.Errorf("stored\n%s\nbefore, and after\n%s", before, after)
	}
}

// A route knows one word of status. Fallbacks are as many as there is room for.
func TestWordsThatARouteDoesNotKnow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	for _, word := range []string{"foo", "always2XX", "always", "200", "always2xx,foo"} {
		a := b.route("s", "&status="+word)
		if word == "always2xx,foo" { // it has the word, too
			if a.want(200); a.str("status") != "400" || a.header.Get("X-Berth-Status") != "400" {
				t.Errorf("%s: %v %s", word, a.header, a.body)
			}
			continue
		}
		if a.refused(400, "malformed"); !strings.Contains(a.str("detail"), "always2xx") {
			t.Errorf("%s: the word to use is not told: %s", word, a.body)
		}
	}
	b.route("s", "&status=&fallbacks=100000").want(200)
}
