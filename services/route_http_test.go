package services_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Gateways call a route as they are: with the method, the path and the body of the
// request that they ask about.
func TestARouteAnswersEveryMethodPathAndBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	w.append("s", "op", b.route("s").want(200).str("handle"), `1`).want(200)
	big := strings.Repeat("x", 1<<20)
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "PURGE", "M-SEARCH"} {
		for _, path := range []string{"/route", "/route/", "/route/v1/chat/completions", "/route/a%2Fb/../c", "/v1/route"} {
			body := ""
			if slices.Contains([]string{"POST", "PUT", "PATCH"}, method) {
				body = big
			}
			a := b.call(method, path+"?session=s", body, "Content-Type: text/nothing").want(200)
			if a.header.Get("X-Berth-Instance") != "i1" || a.header.Get("X-Berth-Version") != "1" {
				t.Errorf("%s %s: %v", method, path, a.header)
			}
			if method != "HEAD" && a.str("reason") != "bound" {
				t.Errorf("%s %s: %s", method, path, a.body)
			}
		}
	}
	for _, path := range []string{"/routes", "/rout", "/v1/route/x", "/"} {
		if a := b.call("GET", path, ""); a.status == 200 && a.header.Get("X-Berth-Instance") != "" {
			t.Errorf("%s is a route", path)
		}
	}
}

// Body and headers say the same.
func TestHeadersSayWhatTheBodySays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register("i1", `{"address":"[fd00:0::8]:8000","scheme":"https","rank":3}`).want(200)
	(&worker{b, "i1", b.register("i1", `{"address":"[fd00:0::8]:8000","scheme":"https","rank":3}`).want(200).str("incarnation")}).beat(0)
	b.worker("i2")
	b.route("s", "&fallbacks=1&exclude=i2").want(200)
	a := b.route("s", "&fallbacks=5").want(200)
	address := map[string]string{"i1": "[fd00::8]:8000", "i2": "10.0.105.52:8000"} // case R35
	first, second := a.str("instance"), a.str("fallbacks.0.instance")
	if a.str("address") != address[first] || a.str("fallbacks.0.address") != address[second] || first == second {
		t.Fatalf("addresses: %s", a.body)
	}
	only := b.route("s", "&subset=[fd00::8]:8000").want(200)
	for header, member := range map[string]string{
		"X-Berth-Instance": "instance", "X-Gateway-Destination-Endpoint": "address", "X-Data-Parallel-Rank": "rank", "X-Berth-Scheme": "scheme",
		"X-Berth-Reason": "reason", "X-Berth-Epoch": "epoch", "X-Berth-Version": "version", "X-Berth-Handle": "handle",
		"X-Berth-New": "new",
	} {
		if got, want := only.header.Get(header), only.str(member); got != want || got == "" {
			t.Errorf("%s is %q, %s is %q", header, got, member, want)
		}
	}
	if got, want := a.header.Get("X-Gateway-Destination-Endpoint"), address[first]+","+address[second]; got != want {
		t.Errorf("endpoints %q, want %q", got, want)
	}
	if only.str("rank") != "3" || only.str("scheme") != "https" {
		t.Errorf("rank and scheme: %s", only.body)
	}
	if a.header.Get("Cache-Control") != "no-store" || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("headers: %v", a.header)
	}
}

// The handle of a route names its fallbacks: the next in line may take over without
// another question.
func TestAFallbackMayClaimWithTheSameHandle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	workers := map[string]*worker{}
	for i := range 5 {
		w := b.worker(fmt.Sprint("i", i))
		workers[w.id] = w
	}
	owner := workers[b.route("s").want(200).str("instance")]
	owner.append("s", "op", b.route("s").want(200).str("handle"), `1`).want(200)
	hint := b.route("s", "&fallbacks=99&exclude="+owner.id).want(200)
	if hint.str("fallbacks.2.instance") == "" || hint.at("fallbacks.3") != nil {
		t.Fatalf("three fallbacks at most, and no fewer: %s", hint.body)
	}
	workers[hint.str("fallbacks.2.instance")].recover("s", hint.str("handle"), "claim").want(200)
}

func TestChoicesAreNarrowedAndNeverWidened(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	b.worker("i2")
	if a := b.route("s", "&exclude=i1,i9:5xx,+i8:timeout").want(200); a.str("instance") != "i2" {
		t.Errorf("exclude: %s", a.body)
	}
	if a := b.call("GET", "/route?session=s", "", "X-Berth-Exclude: i1").want(200); a.str("instance") != "i2" {
		t.Errorf("exclude in a header: %s", a.body)
	}
	for _, bad := range []string{"&exclude=i1:maybe", "&exclude=i1:", "&exclude=i1:OK", "&fallbacks=-1", "&fallbacks=x", "&fallbacks=1.5", "&exclude=%zz", "&exclude=i1;i2"} {
		b.route("s", bad).refused(400, "malformed")
	}
	if a := b.route("s", "&subset=10.0.105.51:8000").want(200); a.str("instance") != "i1" {
		t.Errorf("subset: %s", a.body)
	}
	for _, none := range []string{"&exclude=i1,i2", "&subset=10.9.9.9:1", "&subset=,", "&subset=10.0.105.51:8000&exclude=i1"} {
		if a := b.route("s", none).refused(503, "not_eligible"); a.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", none)
		}
	}
}

// nginx turns every status of an auth_request but 401 and 403 into a 500 (case R37).
func TestAlways2xxSaysWhatItWouldHaveBeen(t *testing.T) {
	t.Parallel()
	b := setupTokens(t, gateway, workers)
	b.as("worker").worker("i1")
	gw := b.as("gateway")
	cases := []struct {
		name   string
		a      answer
		status string
	}{
		{"nobody eligible", gw.route("s", "&status=always2xx&exclude=i1"), "503"},
		{"a pool never seen", gw.route("s", "&status=always2xx&pool=none"), "404"},
		{"a malformed id", gw.route("%00", "&status=always2xx"), "400"},
		{"a broken escape", gw.route("%zz", "&status=always2xx"), "400"},
		{"a semicolon", gw.route("a;b", "&status=always2xx"), "400"},
		{"a bad exclude", gw.route("s", "&status=always2xx&exclude=i1:maybe"), "400"},
		{"a parameter twice", gw.route("s", "&session=t&status=always2xx"), "400"},
		{"the status twice", gw.route("s", "&status=any&status=always2xx"), "400"},
		{"a header twice", gw.call("GET", "/route?status=always2xx", "", "X-Session-ID: s", "X-Session-ID: t"), "400"},
		{"no token", b.route("s", "&status=always2xx"), "401"},
	}
	for _, c := range cases {
		a := c.a.want(200)
		if a.header.Get("X-Berth-Status") != c.status || a.header.Get("X-Berth-Reason") != "none" || a.str("status") != c.status {
			t.Errorf("%s: %v %s", c.name, a.header, a.body)
		}
		if (a.header.Get("Retry-After") != "") != (c.status == "503") || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %v", c.name, a.header)
		}
		if a.header.Get("X-Gateway-Destination-Endpoint") != "" || a.header.Get("X-Berth-Handle") != "" {
			t.Errorf("%s: names an instance: %v", c.name, a.header)
		}
	}
	if a := gw.route("s", "&status=always2xx").want(200); a.str("instance") != "i1" || a.header.Get("X-Berth-Status") != "" {
		t.Errorf("an answer: %s", a.body)
	}
}

func TestRequestIDsAreEchoedOrMade(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	made := regexp.MustCompile(`^[0-9a-f]{32}$`)
	for _, path := range []string{"/route?session=s", "/route?session=%00", "/livez", "/v1/pools", "/v1/sessions/none", "/none"} {
		if got := b.call("GET", path, "", "X-Request-Id: abc-123").header.Get("X-Request-Id"); got != "abc-123" {
			t.Errorf("%s answers %q", path, got)
		}
		for _, bad := range []string{"", strings.Repeat("x", 129), "a b", "a\"b", "ü", `a\b`} {
			if got := b.call("GET", path, "", "X-Request-Id: "+bad).header.Get("X-Request-Id"); !made.MatchString(got) {
				t.Errorf("%s answers %q to %q", path, got, bad)
			}
		}
	}
	ids := map[string]bool{}
	for range 50 {
		ids[b.route("s").header.Get("X-Request-Id")] = true
	}
	if len(ids) != 50 {
		t.Errorf("%d ids of 50 requests", len(ids))
	}
}

// Requests without a session spread over the pool, and get no handle.
func TestStatelessRequestsSpread(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	b.worker("i2")
	seen := map[string]int{}
	for range 200 {
		a := b.call("GET", "/route", "").want(200)
		if a.str("reason") != "stateless" || a.at("handle") != nil || a.header.Get("X-Berth-Handle") != "" {
			t.Fatalf("stateless: %s", a.body)
		}
		seen[a.str("instance")]++
	}
	if seen["i1"] < 40 || seen["i2"] < 40 {
		t.Fatalf("spread %v", seen)
	}
}

// Probes and load balancers ask with HEAD; a wrong method is told the right ones.
func TestPlainCallsAnswerHeadAndNameTheirMethods(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/livez", "/readyz", "/readyz?store=1", "/openapi.json", "/docs", "/problems/expired"} {
		get, head := b.call("GET", path, "").want(200), b.call("HEAD", path, "").want(200)
		if len(get.body) == 0 || len(head.body) != 0 || get.header.Get("Content-Type") != head.header.Get("Content-Type") {
			t.Errorf("%s: %v and %v", path, get.header, head.header)
		}
	}
	for path, allow := range map[string]string{
		"/livez": "GET HEAD", "/v1/recover": "POST", "/v1/sessions/a%2Fb": "GET PUT DELETE", "/v1/instances/i1": "GET PUT PATCH DELETE",
	} {
		a := b.call(http.MethodOptions, path, "").refused(405, "method_not_allowed")
		if got := strings.Join(a.header.Values("Allow"), " "); got != allow {
			t.Errorf("%s allows %q, want %q", path, got, allow)
		}
	}
}
