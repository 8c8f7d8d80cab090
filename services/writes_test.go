package services_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// write sends the body of a write as it stands; $h is the handle.
func (w *worker) write(method, path, handle, members string, headers ...string) answer {
	w.t.Helper()
	body := fmt.Sprintf(`{"handle":%q,"instance":%q,"incarnation":%q,%s}`, handle, w.id, w.incarnation, members)
	return w.call(method, path, body, headers...)
}

// begun is a session "s" with one turn, and the newest handle.
func begun(t testing.TB) (*worker, string) {
	t.Helper()
	b := setup(t)
	w := b.worker("i1")
	return w, w.append("s", "first", b.route("s").want(200).str("handle"), `"hello"`).want(200).str("handle")
}

// Case T11: what a turn is, it stays: byte for byte, in both forms of an answer.
func TestTurnsComeBackAsTheBytesThatCame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	h := b.route("s").want(200).str("handle")
	values := []string{
		`"a\u0000b"`, `"\ud83d"`, `"\ud83d\ude00"`, "\"\u2028\u2029\"", `"👨‍👩‍👧‍👦"`, `"<b>&amp;</b>"`, `"\r\n$5\r\n"`, "\"\ufeff\"", `"\/"`,
		`9007199254740993`, `1e400`, `-0`, `0.10`, `1E+2`, `{"a":1,"a":2,"b" : [ ]}`, "{\n\t\"x\":\r\n 1 }", `[]`, `null`, `true`, `""`,
		strings.Repeat("[", 300) + strings.Repeat("]", 300),
	}
	for i, v := range values {
		h = w.write("POST", "/v1/sessions/s/turns", h, fmt.Sprintf(`"op":"op-%d","turns":[ {"value": %s } ]`, i, v)).want(200).str("handle")
	}
	raw := []byte("\x00\xff\r\n$5\r\n\xf0\x9f")
	h = w.write("POST", "/v1/sessions/s/turns", h, fmt.Sprintf(`"op":"b64","turns":[{"base64":%q},{"base64":""}]`, base64.StdEncoding.EncodeToString(raw))).want(200).str("handle")
	octets := w.call("POST", "/v1/sessions/-/turns", string(raw), "Content-Type: application/octet-stream", "X-Session-ID: s",
		"Idempotency-Key: octets", "X-Berth-Handle: "+h, "X-Berth-Instance: i1", "X-Berth-Incarnation: "+w.incarnation).want(200)
	if octets.str("turns") != fmt.Sprint(len(values)+3) {
		t.Fatalf("raw turn: %s", octets.body)
	}
	want := make([][]byte, 0, len(values)+3)
	for _, v := range values {
		want = append(want, []byte(v))
	}
	want = append(want, raw, nil, raw)

	var whole struct{ Turns []turn }
	if err := json.Unmarshal(w.recover("s", "", "read").want(200).body, &whole); err != nil {
		t.Fatal(err)
	}
	checkTurns(t, "JSON", whole.Turns, want)
	lines := strings.Split(strings.TrimSuffix(string(w.call("GET", "/v1/sessions/s", "", "Accept: application/x-ndjson").want(200).body), "\n"), "\n")
	list := make([]turn, len(lines)-1)
	for i, line := range lines[1:] {
		if err := json.Unmarshal([]byte(line), &list[i]); err != nil {
			t.Fatalf("line %d: %v: %s", i, err, line)
		}
	}
	checkTurns(t, "lines", list, want)
}

// turn is one as an answer shows it.
type turn struct {
	N      int
	Type   string
	Value  json.RawMessage
	Base64 []byte
}

func checkTurns(t *testing.T, form string, got []turn, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d turns, want %d", form, len(got), len(want))
	}
	for i, turn := range got {
		bytes := []byte(turn.Value)
		if turn.Value == nil {
			bytes = turn.Base64
		}
		if turn.N != i || string(bytes) != string(want[i]) {
			t.Errorf("%s: turn %d came back as %q, want %q", form, i, bytes, want[i])
		}
	}
}

// Case T03: two writers at one version: one is accepted, the other is told the
// version, reads, and appends with the same op and the new handle. Both are there.
func TestTwoWritersAtOneVersion(t *testing.T) {
	t.Parallel()
	w, h := begun(t)
	var answers [2]answer
	var both sync.WaitGroup
	for i := range answers {
		both.Go(func() { answers[i] = w.append("s", fmt.Sprint("op-", i), h, fmt.Sprint(i)) })
	}
	both.Wait()
	loser := 0
	if answers[0].status == 200 {
		loser = 1
	}
	answers[1-loser].want(200)
	if a := answers[loser].refused(409, "version_conflict"); a.str("version") != "2" || a.str("turns") != "2" {
		t.Fatalf("the loser is told %s", a.body)
	}
	look := w.recover("s", h, "read", fmt.Sprintf(`"have":{"handle":%q,"turns":1}`, h)).want(200)
	if look.str("base") != "1" || look.str("turns.0.n") != "1" || look.at("turns.1") != nil {
		t.Fatalf("what the loser lacks: %s", look.body)
	}
	op := fmt.Sprint("op-", loser)
	first := w.append("s", op, look.str("handle"), fmt.Sprint(loser)).want(200)
	again := w.append("s", op, h, fmt.Sprint(loser)).want(200) // a late copy of the first try
	if first.str("version") != "3" || again.str("version") != "3" || again.str("duplicate") != "true" || again.str("turns") != "3" {
		t.Fatalf("%s, then %s", first.body, again.body)
	}
}

// Case T04: an owner that slept through a move of its session overwrites nothing.
func TestASleepingOwnerOverwritesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner, other := b.open("s", b.worker("i1"), b.worker("i2"))
	h := b.route("s").want(200).str("handle")
	won := other.recover("s", b.route("s", "&exclude="+owner.id).want(200).str("handle"), "claim").want(200)
	other.append("s", "theirs", won.str("handle"), `"theirs"`).want(200)
	before := b.call("GET", "/v1/sessions/s", "").want(200).str("digest")
	for _, a := range []answer{
		owner.append("s", "mine", h, `"mine"`),
		owner.replace("s", "mine-too", h, `"mine"`),
		owner.write("POST", "/v1/sessions/s/turns", h, `"op":"mine-3","turns":[{"value":1}],"base":0`),
	} {
		if a.refused(409, "not_owner"); a.str("owner.instance") != other.id || a.str("owner.epoch") != won.str("epoch") || a.str("why") != "failover" {
			t.Errorf("told %s", a.body)
		}
	}
	if after := b.call("GET", "/v1/sessions/s", "").want(200); after.str("digest") != before || after.str("count") != "2" {
		t.Fatalf("afterwards %s", after.body)
	}
}

// The same op is the same write: its content may not differ, its handle and its
// numbers may.
func TestAnOpIsOneWrite(t *testing.T) {
	t.Parallel()
	w, h := begun(t)
	next := w.append("s", "op", h, `{"a":1}`).want(200)
	for _, handle := range []string{h, next.str("handle")} {
		if a := w.append("s", "op", handle, `{"a":1}`, `"meta":{"other":true}`).want(200); a.str("duplicate") != "true" || a.str("version") != "2" {
			t.Errorf("again: %s", a.body)
		}
	}
	for _, members := range []string{
		`"op":"op","turns":[{"value":{"a": 1}}]`, // other bytes
		`"op":"op","turns":[{"base64":"eyJhIjoxfQ=="}]`,
		`"op":"op","turns":[{"value":{"a":1}}],"base":1`,
		`"op":"op","turns":[{"value":{"a":1}},{"value":2}]`,
	} {
		if a := w.write("POST", "/v1/sessions/s/turns", h, members).refused(422, "op_reused"); a.str("version") != "2" {
			t.Errorf("%s: %s", members, a.body)
		}
	}
	w.replace("s", "op", h, `{"a":1}`).refused(422, "op_reused")
	if a := w.recover("s", "", "read").want(200); a.at("meta") != nil || a.str("count") != "2" {
		t.Fatalf("afterwards %s", a.body)
	}
}

// A base keeps that many turns; what a copy still holds is told the same way.
func TestABaseShortensAndIsTold(t *testing.T) {
	t.Parallel()
	w, h := begun(t)
	for i := 1; i < 5; i++ {
		h = w.append("s", fmt.Sprint("op-", i), h, fmt.Sprint(i)).want(200).str("handle")
	}
	old := h
	a := w.write("POST", "/v1/sessions/s/turns", h, `"op":"shorter","turns":[{"value":"x"}],"base":2`).want(200)
	if a.str("turns") != "3" || a.str("version") != "6" {
		t.Fatalf("with a base: %s", a.body)
	}
	w.write("POST", "/v1/sessions/s/turns", a.str("handle"), `"op":"too-far","turns":[{"value":"x"}],"base":4`).refused(409, "version_conflict")
	look := w.recover("s", "", "read", fmt.Sprintf(`"have":{"handle":%q,"turns":5}`, old)).want(200)
	if look.str("base") != "2" || look.str("count") != "3" || look.str("turns.0.value") != "x" || look.str("turns.0.n") != "2" {
		t.Fatalf("with a copy of before: %s", look.body)
	}
	gone := w.replace("s", "anew", look.str("handle"), `"summary"`).want(200)
	if gone.str("turns") != "1" {
		t.Fatalf("replaced: %s", gone.body)
	}
	if look = w.recover("s", "", "read", fmt.Sprintf(`"have":{"handle":%q,"turns":5}`, old)).want(200); look.str("base") != "0" || look.str("turns.0.value") != "summary" {
		t.Fatalf("after a replace: %s", look.body)
	}
	if none := w.recover("s", "", "read", `"turns":"none"`).want(200); none.str("turns.0") != "" || none.str("count") != "1" {
		t.Fatalf("without turns: %s", none.body)
	}
	if from := w.call("GET", "/v1/sessions/s?from=7", "").want(200); from.at("turns.0") != nil {
		t.Fatalf("from beyond the end: %s", from.body)
	}
}

// Parallel requests of one owner append at the end, whatever version they saw.
func TestAppendsAtTheEndDoNotConflict(t *testing.T) {
	t.Parallel()
	w, h := begun(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			w.write("POST", "/v1/sessions/s/turns", h, fmt.Sprintf(`"op":"op-%d","turns":[{"value":%d}],"at":"end"`, i, i)).want(200)
		})
	}
	all.Wait()
	if a := w.recover("s", "", "read").want(200); a.str("version") != "17" || a.str("count") != "17" {
		t.Fatalf("afterwards %s", a.body)
	}
}

// Meta is replaced when given and comes back as the bytes that came; usage and
// placements ride along.
func TestMetaIsKeptUntilItIsReplaced(t *testing.T) {
	t.Parallel()
	w, h := begun(t)
	const meta = `{"tools":[ {"name":"<f>"} ],"seed":9007199254740993,"a":1,"a":2}`
	h = w.append("s", "one", h, `1`, `"meta":`+meta, `"usage":{"prompt_tokens":12}`).want(200).str("handle")
	h = w.append("s", "two", h, `2`, `"meta":null`).want(200).str("handle")
	w.append("s", "three", h, `3`, `"usage":null`).want(200)
	for _, a := range []answer{w.recover("s", "", "read"), w.call("GET", "/v1/sessions/s", "")} {
		if !strings.Contains(string(a.want(200).body), `"meta":`+meta) {
			t.Errorf("meta is not byte for byte in %s", a.body)
		}
	}
	lines := string(w.call("GET", "/v1/sessions/s", "", "Accept: application/x-ndjson").want(200).body)
	if n := strings.Count(lines, "\n"); n != 5 {
		t.Errorf("%d lines of a record and four turns:\n%s", n, lines)
	}
}

// Deleting is told apart from never having been, and starts anew only on purpose.
func TestADeletedSessionStaysDeleted(t *testing.T) {
	t.Parallel()
	w, h := begun(t)
	if a := w.call("DELETE", "/v1/sessions/s", "", "X-Berth-Handle: "+h).want(200); a.str("deleted") != "true" || a.str("durability.level") != "fsynced" {
		t.Fatalf("deleted: %s", a.body)
	}
	w.call("DELETE", "/v1/sessions/s", "", "X-Berth-Handle: "+h).refused(410, "deleted")
	if a := w.call("DELETE", "/v1/sessions/s", "").want(200); a.str("deleted") != "false" {
		t.Fatalf("again, by an operator: %s", a.body)
	}
	w.call("GET", "/v1/sessions/s", "").refused(410, "deleted")
	w.append("s", "late", h, `1`).refused(410, "deleted")
	w.recover("s", h, "read").refused(410, "deleted")
	fresh := w.route("s").want(200)
	if fresh.str("new") != "true" || fresh.str("version") != "0" {
		t.Fatalf("route: %s", fresh.body)
	}
	w.append("s", "new", fresh.str("handle"), `1`).refused(410, "deleted")
	a := w.append("s", "new", fresh.str("handle"), `"anew"`, `"recreate":true`).want(200)
	if a.str("version") != "1" {
		t.Fatalf("anew: %s", a.body)
	}
	w.append("s", "late", h, `1`).refused(410, "deleted")
	w.call("DELETE", "/v1/sessions/s", "", "X-Berth-Handle: "+h).refused(410, "deleted")
	if look := w.recover("s", a.str("handle"), "read").want(200); look.str("turns.0.value") != "anew" {
		t.Fatalf("afterwards: %s", look.body)
	}
}

// Finished, a session keeps its context and belongs to nobody.
func TestAFinishedSessionIsFree(t *testing.T) {
	t.Parallel()
	w, h := begun(t)
	done := w.finish("s", h).want(200)
	if done.header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", done.header)
	}
	w.finish("s", h).refused(409, "stale_handle")
	if a := w.append("s", "late", h, `1`).refused(409, "not_owner"); a.str("why") != "unbound" || a.at("owner") != nil {
		t.Fatalf("append: %s", a.body)
	}
	if a := w.route("s").want(200); a.str("reason") != "lapsed" || a.str("version") != "1" {
		t.Fatalf("route: %s", a.body)
	}
	w.worker("i2").recover("s", "", "claim").want(200)
}
