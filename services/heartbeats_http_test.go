package services_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"berth/services"
)

// nextBeat is the time to the next heartbeat, which runs down between two answers.
var nextBeat = regexp.MustCompile(`"next_ms":[1-9][0-9]{0,3},`)

// A heartbeat that is read the short way is answered as one that is not: a charset
// in the media type leads around it.
func TestPlainHeartbeatsAreAnsweredAsOthersAre(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	bare := func(header http.Header) http.Header {
		header = header.Clone()
		for _, own := range []string{"Date", "X-Request-Id"} {
			header.Del(own)
		}
		return header
	}
	same := func(name, path, body string, headers ...string) {
		t.Helper()
		plain := b.call("POST", path, body, headers...)
		other := b.call("POST", path, body, append(headers, "Content-Type: application/json; charset=utf-8")...)
		x, y := nextBeat.ReplaceAll(plain.body, nil), nextBeat.ReplaceAll(other.body, nil)
		if plain.status >= 400 {
			x, y = withoutInstance(t, x), withoutInstance(t, y)
		}
		p, o := bare(plain.header), bare(other.header)
		p.Del("Content-Length")
		o.Del("Content-Length")
		if plain.status != other.status || !bytes.Equal(x, y) || !equalHeaders(p, o) {
			t.Errorf("%s:\n%d %v %s\nand\n%d %v %s", name, plain.status, p, x, other.status, o, y)
		}
	}
	const at = "/v1/instances/i1/heartbeat"
	for _, seed := range services.BeatBodySeeds() {
		mine := strings.Replace(seed, `"incarnation":"x"`, `"incarnation":"`+w.incarnation+`"`, 1)
		same(mine, at, mine)
	}
	good := `{"incarnation":"` + w.incarnation + `","running":1,"waiting":0}`
	same("an unknown one", "/v1/instances/ghost/heartbeat", good)
	same("a bad id", "/v1/instances/i%201/heartbeat", good)
	same("no id", "/v1/instances//heartbeat", good)
	same("too deep", "/v1/instances/i1/x/heartbeat", good)
	same("another boot", at, `{"incarnation":"x","running":1,"waiting":0}`)
	same("a query", at+"?x=1", good)
	same("any answer", at, good, "Accept: */*")
	same("another answer", at, good, "Accept: text/html")
	same("a coding", at, good, "Content-Encoding: gzip")
	same("a large one", at, good+strings.Repeat(" ", 5000))
	b.call("POST", at, good).want(200)
	if got := b.call("GET", "/v1/instances/i1", "").want(200); got.str("running") != "1" {
		t.Errorf("stored: %s", got.body)
	}
}

// withoutInstance is a problem without the id of its request.
func withoutInstance(t *testing.T, body []byte) []byte {
	t.Helper()
	var p map[string]any
	if json.Unmarshal(body, &p) != nil {
		return body
	}
	delete(p, "instance")
	out, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func equalHeaders(a, b http.Header) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if strings.Join(a[name], ",") != strings.Join(b[name], ",") {
			return false
		}
	}
	return true
}
