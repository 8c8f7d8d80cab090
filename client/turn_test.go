package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// keeper is a berth that keeps turns as they come, and hands them out again.
type keeper struct {
	mu    sync.Mutex
	lines []string
	forms []string
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.Method == http.MethodGet {
		out := fmt.Sprintf(`{"version":1,"count":%d}`+"\n", len(k.lines))
		for n, l := range k.lines {
			out += fmt.Sprintf(`{"n":%d,%s}`+"\n", n, l)
		}
		lines(out)(w, r)
		return
	}
	form, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	k.forms = append(k.forms, form)
	if form == typeBytes {
		k.lines = append(k.lines, `"type":"application/octet-stream","base64":"`+base64.StdEncoding.EncodeToString(body)+`"`)
	} else {
		k.keepJSON(body)
	}
	reply(200, receiptJSON(7, uint64(len(k.lines)), len(k.lines), "fsynced", ""))(w, r)
}

func (k *keeper) keepJSON(body []byte) {
	var in struct {
		Turns []struct {
			Value  json.RawMessage `json:"value"`
			Base64 *string         `json:"base64"`
		} `json:"turns"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		panic(err)
	}
	for _, t := range in.Turns {
		switch {
		case t.Base64 != nil:
			k.lines = append(k.lines, `"type":"application/octet-stream","base64":"`+*t.Base64+`"`)
		case bytes.ContainsAny(t.Value, "\r\n"):
			k.lines = append(k.lines, `"type":"application/json","base64":"`+base64.StdEncoding.EncodeToString(t.Value)+`"`)
		default:
			k.lines = append(k.lines, `"type":"application/json","value":`+string(t.Value))
		}
	}
}

// Nothing between a caller's bytes and the wire reformats them (T11).
func TestTurnsComeBackAsTheBytesThatWereSent(t *testing.T) {
	t.Parallel()
	values := []string{
		`null`, `0`, `""`, `1e400`, `12345678901234567890123456789`, `-0.0`, `{"a" :  [1 , 2 ]}`, "{\n\t\"a\": 1\r\n}",
		`"<script>&amp;"`, `"\u003c\ud83d\u0000\/"`, "\"\u2028\u2029\"", `"👨‍👩‍👧‍👦"`, "\"\ufeffbom\"", `{"a":1,"a":2}`, `"$5\r\nhello"`,
	}
	raw := []string{"\x00\xff", "", "plain\r\n", "\xef\xbb\xbf", strings.Repeat("\x80", 70_000)}
	k := &keeper{}
	srv := httptest.NewServer(k)
	defer srv.Close()
	s := sessionOf(t, Config{BaseURLs: []string{srv.URL}}, 7, 3)
	var want []string
	all := Write{At: AtEnd, Meta: json.RawMessage(`{"x": 1}`)}
	for _, v := range values {
		want = append(want, v)
		all.Turns = append(all.Turns, JSON([]byte(v)))
	}
	for _, b := range raw {
		want = append(want, b)
		all.Turns = append(all.Turns, Binary([]byte(b)))
	}
	writes := []Write{all, {Turns: []Turn{Binary([]byte("\x00alone"))}}, {Turns: []Turn{Binary(nil)}}}
	want = append(want, "\x00alone", "")
	for _, w := range writes {
		if _, err := s.Append(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	_, turns, err := s.Load(t.Context(), 0)
	if err != nil || len(turns) != len(want) {
		t.Fatalf("%d turns, want %d; error %v", len(turns), len(want), err)
	}
	for i, turn := range turns {
		if got := texts([]Turn{turn})[0]; got != want[i] || (turn.Value == nil) != (i >= len(values)) {
			t.Errorf("turn %d came back as %.80q, was %.80q", i, got, want[i])
		}
	}
	if got := strings.Join(k.forms, " "); got != "application/json application/octet-stream application/json" {
		t.Errorf("sent as %s", got)
	}
}

// A single raw turn travels as it is, with its fields in headers.
func TestRawBytesForm(t *testing.T) {
	t.Parallel()
	berth := newScript(t, tear, accept(7, 4, 4, "fsynced"))
	r, err := session(t, berth, 7, 3).Append(t.Context(), Write{Turns: []Turn{Binary([]byte("\x00\x01"))}})
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range berth.requests(2) {
		h := got.header
		if string(got.body) != "\x00\x01" || h.Get("Idempotency-Key") != r.Op || h.Get("X-Berth-Handle") != "h7.3" ||
			h.Get("X-Berth-Instance") != "i1" || h.Get("X-Berth-Incarnation") != "boot-1" {
			t.Errorf("sent %q with %v", got.body, h)
		}
	}
}

// A write is what it was when it was given, whatever becomes of the buffers.
func TestWritesOwnTheirBytes(t *testing.T) {
	t.Parallel()
	buf, meta := []byte(`"before"`), []byte(`"meta a"`)
	clobber := func(w http.ResponseWriter, r *http.Request) {
		copy(buf, `"after!"`)
		copy(meta, `"meta b"`)
		tear(w, r)
	}
	berth := newScript(t, clobber, accept(7, 4, 4, "memory"), behind(3, 4), accept(7, 4, 4, "memory"), accept(7, 5, 5, "memory"))
	s := session(t, berth, 7, 3)
	if _, err := s.Append(t.Context(), Write{Turns: []Turn{JSON(buf)}, Meta: meta}); err != nil {
		t.Fatal(err)
	}
	if err := ops(t, s, "next"); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 1, 3} {
		if got := berth.requests(5)[i]; !bytes.Contains(got.body, []byte(`"before"`)) || !bytes.Contains(got.body, []byte(`"meta a"`)) {
			t.Errorf("sending %d was %s", i, got.body)
		}
	}
}

// What cannot be sent, or would be refused for its size while it is being sent,
// is an error before anything leaves.
func TestUnsendableWrites(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("x"), MaxTurnBytes+1)
	for name, c := range map[string]struct {
		write Write
		want  error
	}{
		"neither value nor bytes": {write: Write{Turns: []Turn{{}}}},
		"both":                    {write: Write{Turns: []Turn{{Value: []byte("1"), Bytes: []byte("1")}}}},
		"no JSON":                 {write: one(`{"a":`)},
		"meta that is no JSON":    {write: Write{Meta: []byte("{"), Turns: []Turn{JSON([]byte("1"))}}},
		"usage that is no JSON":   {write: Write{Usage: []byte("{"), Turns: []Turn{JSON([]byte("1"))}}},
		"a turn too large":        {write: Write{Turns: []Turn{Binary(big)}}, want: ErrTooLarge},
		"a session too large":     {write: Write{Turns: slicesOf(Binary(big[1:]), 5)}, want: ErrTooLarge},
		"meta too large":          {write: Write{Meta: []byte(`"` + strings.Repeat("m", MaxMetaBytes) + `"`)}, want: ErrTooLarge},
	} {
		_, err := session(t, newScript(t), 7, 3).Append(t.Context(), c.write)
		var failed *WriteError
		if !errors.As(err, &failed) || (c.want != nil && !errors.Is(err, c.want)) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := session(t, newScript(t), 7, 3).Replace(t.Context(), Write{At: AtEnd, Turns: []Turn{JSON([]byte("1"))}}); err == nil {
		t.Error("a replace took a place")
	}
}

func slicesOf(t Turn, n int) (list []Turn) {
	for range n {
		list = append(list, t)
	}
	return list
}

// The JSON form carries everything that a write may say.
func TestWriteBody(t *testing.T) {
	t.Parallel()
	berth := newScript(t, accept(7, 4, 4, "fsynced"), accept(7, 5, 1, "fsynced"))
	s := session(t, berth, 7, 3)
	base := 2
	w := Write{
		Op: "o1", Base: &base, Recreate: true, Turns: []Turn{{Value: []byte(`1`), Tokens: 7}, Binary([]byte("b"))},
		Meta: []byte(`{"m":1}`), Usage: []byte(`{"prompt_tokens":3}`), KV: []Placement{{Tier: "host", Tokens: 512, Version: 4}},
	}
	if _, err := s.Append(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	const head = `{"op":"o1","handle":"h7.3","instance":"i1","incarnation":"boot-1",`
	const tail = `"recreate":true,"turns":[{"value":1,"tokens":7},{"base64":"Yg=="}],"meta":{"m":1},"usage":{"prompt_tokens":3},` +
		`"kv":[{"tier":"host","tokens":512,"version":4}]}`
	if got := string(berth.requests(1)[0].body); got != head+`"base":2,`+tail {
		t.Errorf("sent %s", got)
	}
	w.Base = nil
	if _, err := s.Replace(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	got := berth.requests(2)[1]
	if want := strings.Replace(head, "h7.3", "h7.4", 1) + tail; string(got.body) != want || got.method != "PUT" || got.path != "/v1/sessions/s1" {
		t.Errorf("replaced with %s %s %s", got.method, got.path, got.body)
	}
}
