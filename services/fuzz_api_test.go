package services_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzAPI asks for anything: no call panics or fails inside, and whatever is refused
// is a problem with a code. $x is the incarnation of instance i1, $h the handle of
// session s.
func FuzzAPI(f *testing.F) {
	b := setup(f)
	w := b.worker("i1")
	h := w.append("s", "first", b.route("s").want(200).str("handle"), `"hello"`).want(200).str("handle")
	fill := strings.NewReplacer("$x", w.incarnation, "$h", h)
	for _, seed := range [][4]string{
		{"GET", "/route?session=s&exclude=i1:5xx&fallbacks=2&subset=10.0.0.1:80&status=always2xx", "", ""},
		{"POST", "/v1/outcomes", `{"outcomes":[{"session":"s","handle":"$h","instance":"i1","result":"ok","usage":{"prompt_tokens":1}}]}`, "application/json"},
		{"PUT", "/v1/instances/i2", `{"address":"10.0.0.2:80","labels":{"a":"b"},"compat":{"seed":1},"rank":0}`, "application/json"},
		{"POST", "/v1/instances/i1/heartbeat", `{"incarnation":"$x","running":1,"waiting":0,"kv_usage":0.5}`, "application/json"},
		{"GET", "/v1/instances/i1/tasks?max=1", "", ""},
		{"POST", "/v1/instances/i1/tasks/t", `{"incarnation":"$x","result":"done","kv":[{"tier":"gpu","tokens":1,"version":1}]}`, "application/json"},
		{"PATCH", "/v1/instances/i1", `{"weight":null,"labels":{"a":"b"}}`, "application/json"},
		{"POST", "/v1/recover", `{"session":"s","handle":"$h","instance":"i1","incarnation":"$x","mode":"claim","have":{"handle":"$h","turns":1}}`, "application/json"},
		{"POST", "/v1/sessions/s/turns", `{"op":"o","handle":"$h","instance":"i1","incarnation":"$x","turns":[{"value":1}],"base":0,"meta":{},"kv":[]}`, "application/json"},
		{"PUT", "/v1/sessions/-", `{"op":"p","handle":"$h","instance":"i1","incarnation":"$x","turns":[]}`, "application/json"},
		{"POST", "/v1/sessions/s/turns", "\x00", "application/octet-stream"},
		{"PUT", "/v1/sessions/s/kv", `{"instance":"i1","incarnation":"$x","placements":[{"tier":"disk","uri":"x","tokens":1,"version":1,"must_equal":["a"]}]}`, "application/json"},
		{"POST", "/v1/sessions/s/finish", `{"handle":"$h","instance":"i1","incarnation":"$x"}`, "application/json"},
		{"GET", "/v1/sessions?instance=i1&key=k&limit=1&cursor=x", "", ""},
		{"PUT", "/v1/pools/p/policy", `{"models":["m"],"ring":{"points":64},"bound":{"percent":125,"gap":1,"noise":1},"durability":"memory"}`, "application/json"},
		{"GET", "/v1/ring?pool=p", "", ""},
		{"POST", "/v1/drains", `{"instances":["i9"],"mode":"detach","pace":{"concurrency":1}}`, "application/json"},
		{"DELETE", "/v1/sessions/s", "", ""},
		{"GET", "/problems/expired", "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, method, target, body, media string) {
		if strings.Contains(target, "wait") {
			t.Skip("it would wait")
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://berth"+fill.Replace(target), strings.NewReader(fill.Replace(body)))
		if err != nil {
			t.Skip("no client could send it")
		}
		r.Header["Content-Type"], r.Header["X-Session-Id"] = []string{media}, []string{"s"}
		r.Header["X-Berth-Handle"], r.Header["X-Berth-Incarnation"] = []string{h}, []string{w.incarnation}
		r.Header["X-Berth-Instance"], r.Header["Idempotency-Key"] = []string{"i1"}, []string{"op"}
		rec := httptest.NewRecorder()
		b.server.Handler().ServeHTTP(rec, r)
		if rec.Code == http.StatusInternalServerError { // what a panic becomes, too
			t.Fatalf("%d %s\n%s", rec.Code, rec.Body, b.logs)
		}
		if rec.Code < 400 {
			return
		}
		var p struct{ Code, Type string }
		if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil && method != http.MethodHead {
			t.Fatalf("%d is no problem: %s", rec.Code, rec.Body)
		}
		if ct := rec.Header().Get("Content-Type"); ct != "application/problem+json" || p.Type != "/problems/"+p.Code {
			t.Fatalf("%d of type %q: %s", rec.Code, ct, rec.Body)
		}
	})
}
