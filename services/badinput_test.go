package services_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"berth/services"
	"berth/statestore"
)

// stored is everything that a refused call must leave as it is: sessions with
// their turns counted, instances, policies and jobs.
func (b *bundle) stored() string {
	b.t.Helper()
	views, _, err := b.store.List(b.t.Context(), statestore.SessionQuery{Limit: 1000})
	if err != nil {
		b.t.Fatal(err)
	}
	var out strings.Builder
	for _, v := range views {
		fmt.Fprintf(&out, "%v %v %d %d %d %x\n", v.Key, v.Owner, v.Epoch, v.Version, v.Turns, v.Digest)
	}
	fleet, err := b.store.FleetView(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, in := range fleet.Instances {
		spec, err := json.Marshal(in.InstanceSpec)
		if err != nil {
			b.t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s %s %v %d\n", spec, in.Lifecycle, in.Override, in.Beats)
	}
	jobs, _, err := b.store.Jobs(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	fmt.Fprintf(&out, "%v %d", fleet.Policies, len(jobs))
	return out.String()
}

// badCall is one call that must be refused and change nothing. In path and body,
// $i is an instance, $x its incarnation and $h the newest handle of session s.
type badCall struct {
	name, method, path, body string
	status                   int
	code                     string
	headers                  []string
}

func TestBadBodiesAreRefusedAndNothingIsStored(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("a", 300<<10)
	turn := func(members string) string {
		return `{"op":"o","handle":"$h","instance":"$i","incarnation":"$x",` + members + `}`
	}
	cases := []badCall{
		{"no body", "PUT", "/v1/instances/new", ``, 400, "malformed", nil},
		{"no JSON", "PUT", "/v1/instances/new", `{"address"`, 400, "malformed", nil},
		{"two values", "PUT", "/v1/instances/new", `{"address":"10.0.0.9:1"} {}`, 400, "malformed", nil},
		{"not UTF-8", "PUT", "/v1/instances/new", "{\"address\":\"10.0.0.9:1\",\"zone\":\"\xff\"}", 400, "malformed", nil},
		{"half a surrogate pair", "POST", "/v1/recover", `{"session":"\ud800","mode":"read"}`, 400, "malformed", nil},
		{"member twice", "PUT", "/v1/instances/new", `{"address":"10.0.0.9:1","address":"10.0.0.8:1"}`, 400, "malformed", nil},
		{"deep nesting", "PUT", "/v1/instances/new", `{"address":"10.0.0.9:1","compat":{"a":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}}`, 400, "malformed", nil},
		{"null", "PUT", "/v1/instances/new", `null`, 422, "invalid", nil},
		{"an array", "POST", "/v1/drains", `[]`, 422, "invalid", nil},
		{"unknown member", "PUT", "/v1/instances/new", `{"address":"10.0.0.9:1","rack":"x"}`, 422, "invalid", nil},
		{"name in another case", "PUT", "/v1/instances/new", `{"Address":"10.0.0.9:1"}`, 422, "invalid", nil},
		{"wrong type", "POST", "/v1/instances/$i/heartbeat", `{"incarnation":"$x","running":"3","waiting":0}`, 422, "invalid", nil},
		{"null for a number", "POST", "/v1/instances/$i/heartbeat", `{"incarnation":"$x","running":null,"waiting":0}`, 422, "invalid", nil},
		{"fraction for a count", "POST", "/v1/instances/$i/heartbeat", `{"incarnation":"$x","running":1.5,"waiting":0}`, 422, "invalid", nil},
		{"negative count", "POST", "/v1/instances/$i/heartbeat", `{"incarnation":"$x","running":-1,"waiting":0}`, 422, "invalid", nil},
		{"count that overflows sums", "POST", "/v1/instances/$i/heartbeat", `{"incarnation":"$x","running":9223372036854775807,"waiting":1}`, 422, "invalid", nil},
		{"number out of range", "POST", "/v1/instances/$i/heartbeat", `{"incarnation":"$x","running":1e400,"waiting":0}`, 400, "malformed", nil},
		{"generation beyond 64 bits", "POST", "/v1/instances/$i/heartbeat", `{"incarnation":"$x","running":1,"waiting":0,"kv_generation":18446744073709551616}`, 422, "invalid", nil},
		{"duration that overflows", "PUT", "/v1/pools/default/policy", `{"retention_ms":9223372036854775807}`, 422, "invalid", nil},
		{"affinity longer than retention", "PUT", "/v1/pools/default/policy", `{"retention_ms":1000}`, 422, "invalid", nil},
		{"ring of no shape", "PUT", "/v1/pools/default/policy", `{"ring":{"slots":3}}`, 422, "invalid", nil},
		{"too large a body", "PUT", "/v1/instances/new", `{"address":"10.0.0.9:1","zone":"` + huge + `"}`, 413, "too_large", nil},
		{"media type", "PUT", "/v1/instances/new", `address=10.0.0.9:1`, 415, "unsupported_media", []string{"Content-Type: application/x-www-form-urlencoded"}},

		{"a coding", "POST", "/v1/recover", `{"session":"s","mode":"read"}`, 415, "unsupported_media", []string{"Content-Encoding: gzip"}},
		{"zone with a control character", "PUT", "/v1/instances/new", `{"address":"10.0.0.9:1","zone":"\u001b[31m"}`, 422, "invalid", nil},
		{"label with a control character", "PUT", "/v1/instances/new", `{"address":"10.0.0.9:1","labels":{"a":"b\u0007"}}`, 422, "invalid", nil},
		{"label whose name has one", "PATCH", "/v1/instances/$i", `{"labels":{"a\u0085":"b"}}`, 422, "invalid", nil},
		{"label without a name", "PUT", "/v1/instances/new", `{"address":"10.0.0.9:1","labels":{"":"b"}}`, 422, "invalid", nil},

		{"write: usage that is a list", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1}],"usage":[]`), 422, "invalid", nil},
		{"write: usage that is a text", "PUT", "/v1/sessions/s", turn(`"turns":[{"value":1}],"usage":"12"`), 422, "invalid", nil},
		{"write: no body", "POST", "/v1/sessions/s/turns", ``, 400, "malformed", nil},
		{"write: two values", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1}]`) + `{}`, 400, "malformed", nil},
		{"write: member twice", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1}],"op":"p"`), 400, "malformed", nil},
		{"write: member of a turn twice", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1,"value":2}]`), 400, "malformed", nil},
		{"write: unknown member", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1}],"bse":0`), 422, "invalid", nil},
		{"write: name in another case", "POST", "/v1/sessions/s/turns", turn(`"Turns":[{"value":1}]`), 422, "invalid", nil},
		{"write: unknown member of a turn", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1,"role":"user"}]`), 422, "invalid", nil},
		{"write: no turns", "POST", "/v1/sessions/s/turns", turn(`"turns":[]`), 422, "invalid", nil},
		{"write: empty turn", "POST", "/v1/sessions/s/turns", turn(`"turns":[{}]`), 422, "invalid", nil},
		{"write: value and base64", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1,"base64":"AA=="}]`), 422, "invalid", nil},
		{"write: bad base64", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"base64":"AA==="}]`), 422, "invalid", nil},
		{"write: base64 with stray bits", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"base64":"AB=="}]`), 422, "invalid", nil},
		{"write: turns are no list", "POST", "/v1/sessions/s/turns", turn(`"turns":{"value":1}`), 422, "invalid", nil},
		{"write: turn is no object", "POST", "/v1/sessions/s/turns", turn(`"turns":["hello"]`), 422, "invalid", nil},
		{"write: at nowhere", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1}],"at":"start"`), 422, "invalid", nil},
		{"write: base at the end", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1}],"at":"end","base":0`), 422, "invalid", nil},
		{"write: negative base", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1}],"base":-1`), 422, "invalid", nil},
		{"write: base beyond the end", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1}],"base":18446744073709551615`), 409, "version_conflict", nil},
		{"write: tokens that overflow", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1,"tokens":18446744073709551615}]`), 422, "invalid", nil},
		{"write: meta too large", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1}],"meta":"` + huge + `"`), 413, "too_large", nil},
		{"write: kv too large", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1}],"kv":[{"tier":"disk","tokens":1,"version":1,"uri":"` + huge + `"}]`), 413, "too_large", nil},
		{"write: kv of no tier", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1}],"kv":[{"tier":"tape","tokens":1,"version":1}]`), 422, "invalid", nil},
		{"write: unknown member of kv", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":1}],"kv":[{"tier":"gpu","seed":1}]`), 422, "invalid", nil},
		{"write: turn too large", "POST", "/v1/sessions/s/turns", turn(`"turns":[{"value":"` + strings.Repeat("a", 16<<20) + `"}]`), 413, "too_large", nil},
		{"write: an op with a space", "POST", "/v1/sessions/s/turns", strings.Replace(turn(`"turns":[{"value":1}]`), `"o"`, `"a b"`, 1), 422, "invalid", nil},
		{"write: an op of nothing", "POST", "/v1/sessions/s/turns", strings.Replace(turn(`"turns":[{"value":1}]`), `"o"`, `null`, 1), 422, "invalid", nil},
		{"write: media type", "POST", "/v1/sessions/s/turns", `hello`, 415, "unsupported_media", []string{"Content-Type: text/plain"}},
		{"write: coded body", "POST", "/v1/sessions/s/turns", `hello`, 415, "unsupported_media", []string{"Content-Type: application/octet-stream", "Content-Encoding: gzip"}},
		{"write: raw bytes at the end", "POST", "/v1/sessions/s/turns?at=end", `hello`, 422, "invalid", []string{"Content-Type: application/octet-stream", "Idempotency-Key: o", "X-Berth-Handle: $h", "X-Berth-Instance: $i", "X-Berth-Incarnation: $x"}},
		{"write: raw bytes with a base", "POST", "/v1/sessions/s/turns?pool=default&base=0", `hello`, 422, "invalid", []string{"Content-Type: application/octet-stream", "Idempotency-Key: o", "X-Berth-Handle: $h", "X-Berth-Instance: $i", "X-Berth-Incarnation: $x"}},
		{"write: at in the query", "POST", "/v1/sessions/s/turns?at=end", turn(`"turns":[{"value":1}]`), 422, "invalid", nil},
		{"replace: recreate in the query", "PUT", "/v1/sessions/s?recreate=true", turn(`"turns":[]`), 422, "invalid", nil},
		{"replace: without turns", "PUT", "/v1/sessions/s", turn(`"meta":{}`), 422, "invalid", nil},
		{"replace: null turns", "PUT", "/v1/sessions/s", turn(`"turns":null`), 422, "invalid", nil},
		{"replace: with a base", "PUT", "/v1/sessions/s", turn(`"turns":[],"base":1`), 422, "invalid", nil},
		{"kv: unknown member", "PUT", "/v1/sessions/s/kv", `{"instance":"$i","incarnation":"$x","placements":[{"tier":"gpu","tokens":1,"version":1,"seed":2}]}`, 422, "invalid", nil},
		{"kv: time that overflows", "PUT", "/v1/sessions/s/kv", `{"instance":"$i","incarnation":"$x","placements":[{"tier":"gpu","tokens":1,"version":1,"remaining_ms":9223372036854775807}]}`, 422, "invalid", nil},
		{"kv: no such session", "PUT", "/v1/sessions/other/kv", `{"instance":"$i","incarnation":"$x","placements":[]}`, 404, "not_found", nil},
		{"outcome of a malformed session", "POST", "/v1/outcomes", `{"outcomes":[{"session":"a\u0000b","instance":"$i","result":"ok"}]}`, 400, "malformed", nil},
		{"outcome of no kind", "POST", "/v1/outcomes", `{"outcomes":[{"instance":"$i","result":"fine"}]}`, 422, "invalid", nil},
	}
	runBadCalls(t, cases)
}

// A request line and headers beyond the limit are refused like everything else, by
// routes too; up to it they are read.
func TestHeadersThatAreTooLargeAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker("i1")
	filler := strings.Repeat("x", services.MaxHeaderBytes)
	for _, a := range []answer{
		b.call("GET", "/v1/sessions/s", "", "X-Filler: "+filler),
		b.call("GET", "/v1/sessions/s?filler="+filler, ""),
		b.route("s", "&filler="+filler),
		b.call("GET", "/route?session=s", "", "X-One: "+filler[:len(filler)/2], "X-Two: "+filler[:len(filler)/2]),
	} {
		if a.refused(431, "headers_too_large"); a.str("limit") != fmt.Sprint(services.MaxHeaderBytes) {
			t.Errorf("answered %s", a.body)
		}
	}
	a := b.route("s", "&status=always2xx&filler="+filler).want(200)
	if a.header.Get("X-Berth-Reason") != "none" || a.header.Get("X-Berth-Status") != "431" {
		t.Errorf("with always2xx: %v %s", a.header, a.body)
	}
	b.route("s", "&filler="+filler[:len(filler)-1024]).want(200)
}

func TestBadQueriesAndIDsAreRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 257)
	cases := []badCall{
		{"id of 257 bytes", "GET", "/v1/sessions/" + long, "", 400, "malformed", nil},
		{"id with NUL", "GET", "/v1/sessions/a%00b", "", 400, "malformed", nil},
		{"id with a line break", "GET", "/v1/sessions/a%0Ab", "", 400, "malformed", nil},
		{"id with a C1 control", "GET", "/v1/sessions/a%C2%85b", "", 400, "malformed", nil},
		{"id that is no UTF-8", "GET", "/v1/sessions/%FF", "", 400, "malformed", nil},
		{"id of 257 bytes in a body", "POST", "/v1/recover", `{"session":"` + long + `","mode":"read"}`, 400, "malformed", nil},
		{"empty id in a body", "POST", "/v1/recover", `{"session":"","mode":"read"}`, 422, "invalid", nil},
		{"dash without a header", "GET", "/v1/sessions/-", "", 422, "invalid", nil},
		{"header that is no UTF-8", "GET", "/v1/sessions/-", "", 400, "malformed", []string{"X-Session-ID: \xff"}},
		{"pool of no name", "GET", "/v1/sessions/s?pool=a%20b", "", 400, "malformed", nil},
		{"query that cannot be read", "GET", "/v1/sessions/s?pool=%zz", "", 400, "malformed", nil},
		{"tenant of no name", "GET", "/v1/sessions/s", "", 400, "malformed", []string{"X-Berth-Tenant: a b"}},
		{"from before the start", "GET", "/v1/sessions/s?from=-1", "", 422, "invalid", nil},
		{"instance of no name", "PUT", "/v1/instances/a%20b", `{"address":"10.0.0.9:1"}`, 400, "malformed", nil},
		{"instance of 64 bytes", "PUT", "/v1/instances/" + strings.Repeat("i", 64), `{"address":"10.0.0.9:1"}`, 400, "malformed", nil},
		{"address that is a name", "PUT", "/v1/instances/new", `{"address":"localhost:1"}`, 422, "invalid", nil},
		{"address without brackets", "PUT", "/v1/instances/new", `{"address":"fd00::8:8000"}`, 422, "invalid", nil},
		{"address with a zone", "PUT", "/v1/instances/new", `{"address":"[fe80::1%eth0]:80"}`, 422, "invalid", nil},
		{"address that would end a header", "PUT", "/v1/instances/new", `{"address":"[fe80::1%a\r\nX-Evil: 1]:80"}`, 422, "invalid", nil},
		{"unspecified address", "PUT", "/v1/instances/new", `{"address":"0.0.0.0:80"}`, 422, "invalid", nil},
		{"no port", "PUT", "/v1/instances/new", `{"address":"10.0.0.9:0"}`, 422, "invalid", nil},
		{"scheme that is none", "PUT", "/v1/instances/new", `{"address":"10.0.0.9:1","scheme":"ht tp"}`, 422, "invalid", nil},
		{"too many labels", "PUT", "/v1/instances/new", `{"address":"10.0.0.9:1","labels":{` + manyLabels(65) + `}}`, 422, "invalid", nil},
		{"a label of too many bytes", "PUT", "/v1/instances/new", `{"address":"10.0.0.9:1","labels":{"a":"` + long + `"}}`, 422, "invalid", nil},
		{"compat too large", "PUT", "/v1/instances/new", `{"address":"10.0.0.9:1","compat":{"a":"` + strings.Repeat("x", 17<<10) + `"}}`, 413, "too_large", nil},
		{"heartbeat of a stranger", "POST", "/v1/instances/other/heartbeat", `{"incarnation":"$x","running":0,"waiting":0}`, 404, "unknown_instance", nil},
		{"heartbeat of another boot", "POST", "/v1/instances/$i/heartbeat", `{"incarnation":"other","running":0,"waiting":0}`, 409, "stale_incarnation", nil},
		{"list beyond its limit", "GET", "/v1/sessions?limit=1001", "", 422, "invalid", nil},
		{"list of nothing", "GET", "/v1/sessions?limit=0", "", 422, "invalid", nil},
		{"cursor that is none", "GET", "/v1/sessions?cursor=%00zz", "", 400, "malformed", nil},
		{"too many tasks", "GET", "/v1/instances/$i/tasks?max=65", "", 422, "invalid", []string{"X-Berth-Incarnation: $x"}},
		{"force that is none", "DELETE", "/v1/instances/$i?force=maybe", "", 422, "invalid", nil},
		{"wait that is no duration", "GET", "/v1/instances/$i/tasks?wait=soon", "", 422, "invalid", []string{"X-Berth-Incarnation: $x"}},
		{"tasks without an incarnation", "GET", "/v1/instances/$i/tasks", "", 422, "invalid", nil},
		{"task that is not there", "POST", "/v1/instances/$i/tasks/none", `{"incarnation":"$x","result":"done"}`, 404, "not_found", nil},
		{"job that is not there", "GET", "/v1/jobs/none?wait=1s", "", 404, "not_found", nil},
		{"pool that was never seen", "GET", "/v1/pools/none/policy", "", 404, "unknown_pool", nil},
		{"ring of a pool never seen", "GET", "/v1/ring?pool=none", "", 404, "unknown_pool", nil},
		{"delete of a pool that is no name", "DELETE", "/v1/pools/a%20b", "", 400, "malformed", nil},
		{"delete of a pool with instances", "DELETE", "/v1/pools/default", "", 409, "wrong_state", nil},
		{"path that is none", "GET", "/v1/session/s", "", 404, "not_found", nil},
		{"method that is none", "DELETE", "/v1/recover", "", 405, "method_not_allowed", nil},
		{"refusal that is none", "GET", "/problems/none", "", 404, "not_found", nil},
		{"delete of an instance by another boot", "DELETE", "/v1/instances/$i", "", 409, "stale_incarnation", []string{"X-Berth-Incarnation: other"}},
		{"delete of an instance with sessions", "DELETE", "/v1/instances/$i", "", 409, "has_sessions", nil},
	}
	runBadCalls(t, cases)
}

func manyLabels(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"l%d":"v"`, i)
	}
	return strings.Join(list, ",")
}

func runBadCalls(t *testing.T, cases []badCall) {
	b := setup(t)
	w := b.worker("i1")
	h := w.append("s", "first", b.route("s").want(200).str("handle"), `"hello"`).want(200).str("handle")
	fill := strings.NewReplacer("$i", w.id, "$x", w.incarnation, "$h", h)
	before := b.stored()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			b := b.with(t)
			var headers []string
			for _, header := range tc.headers {
				headers = append(headers, fill.Replace(header))
			}
			a := b.call(tc.method, fill.Replace(tc.path), fill.Replace(tc.body), headers...).refused(tc.status, tc.code)
			if a.header.Get("X-Request-Id") != a.str("instance") {
				t.Errorf("request id %q, but %q in the refusal", a.header.Get("X-Request-Id"), a.str("instance"))
			}
			if a.str("detail") == "" || a.str("title") == "" {
				t.Errorf("nothing explains %s", a.body)
			}
			if tc.code == "too_large" && (a.str("limit") == "" || a.str("size") == "" || a.str("what") == "") {
				t.Errorf("what is too large, and by how much: %s", a.body)
			}
			if tc.code == "invalid" && a.str("errors.0.location") == "" {
				t.Errorf("what is invalid: %s", a.body)
			}
			for _, secret := range []string{w.incarnation, h} {
				if strings.Contains(string(a.body), secret) {
					t.Errorf("the refusal tells a secret: %s", a.body)
				}
			}
			if after := b.stored(); after != before {
				t.Errorf("stored\n%s\nbefore, and after\n%s", before, after)
			}
		})
	}
}
