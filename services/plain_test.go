package services_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
)

// epochs are times in ms.
var epochs = regexp.MustCompile(`\b\d{13}\b`)

// An append that goes past huma is answered as one that does not: a second value of
// Accept leads it there. Two sessions that are told the same are compared, but for
// what tells them and their requests apart.
func TestPlainAppendsAreAnsweredAsOthersAre(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	sessions := [2]string{"plain", "other"}
	ways := [2][]string{nil, {"Accept: application/json, text/html"}}
	var handles [2]string
	for i, session := range sessions {
		handles[i] = b.route(session).want(200).str("handle")
	}
	same := func(name, path, body string, headers ...string) {
		t.Helper()
		var got [2]answer
		var told [2]map[string]any
		for i, session := range sessions {
			fill := strings.NewReplacer("{session}", session, "{handle}", handles[i], "{incarnation}", w.incarnation)
			all := append([]string{}, ways[i]...)
			for _, h := range headers {
				all = append(all, fill.Replace(h))
			}
			got[i] = b.call("POST", fill.Replace(path), fill.Replace(body), all...)
			got[i].body = epochs.ReplaceAll(got[i].body, []byte("1"))
			if err := json.Unmarshal(got[i].body, &told[i]); err != nil {
				t.Fatalf("%s: %v in %s", name, err, got[i].body)
			}
			if h, ok := told[i]["handle"].(string); ok {
				handles[i] = h
			}
			for _, own := range []string{"handle", "affinity_ms", "instance"} {
				if _, ok := told[i][own]; ok {
					told[i][own] = "its own"
				}
			}
			for _, own := range []string{"Date", "X-Request-Id", "Content-Length"} {
				got[i].header.Del(own)
			}
		}
		if got[0].status != got[1].status || !maps.EqualFunc(told[0], told[1], func(x, y any) bool { return fmt.Sprint(x) == fmt.Sprint(y) }) ||
			!equalHeaders(got[0].header, got[1].header) {
			t.Errorf("%s:\n%d %v %s\nand\n%d %v %s", name, got[0].status, got[0].header, got[0].body, got[1].status, got[1].header, got[1].body)
		}
	}
	const at = "/v1/sessions/{session}/turns"
	body := func(members string) string {
		return `{"handle":"{handle}","instance":"i1","incarnation":"{incarnation}",` + members + `}`
	}
	same("the first", at, body(`"op":"1","turns":[{"value":"<a&b>"}]`))
	same("again", at, body(`"op":"1","turns":[{"value":"<a&b>"}]`))
	same("another", at, body(`"op":"2","turns":[{"base64":"AAEC","tokens":3}],"meta":{"a":1}`))
	same("reused", at, body(`"op":"2","turns":[{"value":0}]`))
	same("no turns", at, body(`"op":"3","turns":[]`))
	same("unknown member", at, body(`"op":"3","turns":[{"value":0}],"x":1`))
	same("no JSON", at, `{"op"`)
	same("nothing", at, "")
	same("a stranger", at, strings.Replace(body(`"op":"3","turns":[{"value":0}]`), "i1", "i9", 1))
	same("a parameter twice", at+"?pool=default&pool=default", body(`"op":"3","turns":[{"value":0}]`))
	same("a header twice", at, body(`"op":"3","turns":[{"value":0}]`), "X-Berth-Pool: a", "X-Berth-Pool: b")
	same("forged", at, strings.Replace(body(`"op":"3","turns":[{"value":0}]`), "{handle}", "x{handle}", 1))
	same("raw", at, "raw bytes", "Content-Type: application/octet-stream", "Idempotency-Key: 4", "X-Berth-Handle: {handle}",
		"X-Berth-Instance: i1", "X-Berth-Incarnation: {incarnation}")
	same("another media type", at, body(`"op":"5","turns":[{"value":0}]`), "Content-Type: text/plain")
	same("a charset", at, body(`"op":"6","turns":[{"value":0}]`), "Content-Type: application/json; charset=utf-8")
	same("a coding", at, body(`"op":"7","turns":[{"value":0}]`), "Content-Encoding: gzip")
	same("a query", at+"?pool=none", body(`"op":"8","turns":[{"value":0}]`))
	same("a pool's name that is none", at+"?pool=%20", body(`"op":"8","turns":[{"value":0}]`))
	same("the id in a header", "/v1/sessions/-/turns", body(`"op":"9","turns":[{"value":0}]`), "X-Session-ID: {session}")
	same("no id in a header", "/v1/sessions/-/turns", body(`"op":"10","turns":[{"value":0}]`))
	same("an encoded id", "/v1/sessions/%2F{session}/turns", body(`"op":"10","turns":[{"value":0}]`))
	same("a per cent sign", "/v1/sessions/%25{session}/turns", body(`"op":"10","turns":[{"value":0}]`))
	same("no id", "/v1/sessions//turns", body(`"op":"10","turns":[{"value":0}]`))
	for _, session := range sessions {
		got := b.call("GET", "/v1/sessions/"+session, "").want(200)
		if n := got.str("version"); n != "5" {
			t.Errorf("%s is at version %s: %s", session, n, got.body)
		}
	}
}
