package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// TestHostileCallersHarmNobody sends a real server what no client of ours would:
// random requests, garbage, heads without end, bodies that drip. It never fails
// inside (500), panics or grows deaf: it is ready afterwards, and what was stored
// before stands as it was.
func TestHostileCallersHarmNobody(t *testing.T) {
	t.Parallel()
	server := serve(t, timing...)
	ctx := t.Context()
	who, err := server.api().enlist(ctx, "i1", "default", "10.0.0.1:8000")
	must(t, err)
	h, err := server.api().route(ctx, "victim")
	must(t, err)
	saved, err := server.api().append(ctx, "victim", newWrite(who, h.Handle, "op-1"))
	must(t, err)

	t.Run("attacks", func(t *testing.T) {
		t.Run("random requests", func(t *testing.T) {
			t.Parallel()
			sendRandom(t, server, who, saved.Handle)
		})
		t.Run("bytes that are no request", func(t *testing.T) {
			t.Parallel()
			sendGarbage(t, server)
		})
		t.Run("heads without end", func(t *testing.T) {
			t.Parallel()
			sendHeads(t, server)
		})
		t.Run("bodies that drip", func(t *testing.T) {
			t.Parallel()
			sendSlowly(t, server)
		})
	})

	got, err := server.api().raw(ctx, http.MethodGet, "/readyz?store=1", nil)
	must(t, err)
	if got.status != http.StatusOK {
		t.Errorf("after the attacks the server says %d %s", got.status, got.body)
	}
	kept, err := server.api().load(ctx, "victim")
	must(t, err)
	if kept.Version != 1 || kept.Count != 1 || kept.Owner.Instance != "i1" {
		t.Errorf("the session is %+v, and was one turn of i1", kept)
	}
	if _, err := server.api().append(ctx, "victim", newWrite(who, saved.Handle, "op-2")); err != nil {
		t.Errorf("the next turn is refused: %v", err)
	}
}

// sendRandom makes requests of the API's own words, put together at random and
// spoilt here and there. None is meant to succeed in changing the victim.
func sendRandom(t *testing.T, server *berth, who credentials, handle string) {
	requests := 2000
	if testing.Short() || raceEnabled {
		requests = 400
	}
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any bits
	t.Logf("seed %d", seed)
	statuses := map[int]int{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(t.Context())
	for lane := range uint64(8) {
		g.Go(func() error {
			r := requester{rand.New(rand.NewPCG(seed, lane)), who, handle}
			for range requests / 8 {
				method, path, body, headers := r.next()
				ctx, cancel := context.WithTimeout(ctx, patience)
				got, err := server.api().raw(ctx, method, path, body, headers...)
				cancel()
				if err != nil {
					return fmt.Errorf("%s %q: %w", method, path, err)
				}
				if got.status == http.StatusInternalServerError || got.status < 200 {
					return fmt.Errorf("%s %q with %q and %q is answered %d %s", method, path, headers, body, got.status, got.body)
				}
				mu.Lock()
				statuses[got.status]++
				mu.Unlock()
			}
			return nil
		})
	}
	must(t, g.Wait())
	t.Logf("answers by status: %v", statuses)
	if len(statuses) < 5 {
		t.Errorf("the requests were too tame: %v", statuses)
	}
}

// requester makes up requests.
type requester struct {
	*rand.Rand
	who    credentials
	handle string
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (r requester) next() (method, path string, body []byte, headers []string) {
	call := pick(r.Rand, calls...)
	method, path, _ = strings.Cut(call, " ")
	if r.IntN(10) == 0 {
		method = pick(r.Rand, "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW")
	}
	for strings.Contains(path, "*") {
		path = strings.Replace(path, "*", r.word(), 1)
	}
	var query []string
	for range r.IntN(4) {
		name := pick(r.Rand, "session", "pool", "key", "exclude", "subset", "fallbacks", "status", "from", "max", "instance", "cursor", "limit", "force")
		query = append(query, name+"="+r.word())
	}
	if query != nil {
		path += "?" + strings.Join(query, "&")
	}
	for range r.IntN(4) {
		name := pick(r.Rand, "X-Session-ID", "X-Berth-Handle", "X-Berth-Tenant", "X-Berth-Pool", "X-Berth-Exclude", "X-Berth-Incarnation",
			"X-Berth-Instance", "Idempotency-Key", "X-Request-Id", "Content-Type", "Accept", "Content-Encoding", "Authorization", "X-Berth-Token")
		headers = append(headers, name+": "+strings.Map(printable, r.raw()))
	}
	if method != http.MethodGet && method != http.MethodHead {
		body = r.spoil(r.document())
	}
	return method, path, body, headers
}

// calls are those of the API, with * for a word.
var calls = []string{
	"GET /route", "POST /route/*", "GET /v1/route", "POST /v1/outcomes", "POST /v1/recover", "POST /v1/drains", "GET /v1/jobs", "GET /v1/jobs/*",
	"POST /v1/jobs/*/cancel", "GET /v1/sessions", "GET /v1/sessions/*", "PUT /v1/sessions/*", "DELETE /v1/sessions/*", "POST /v1/sessions/*/turns",
	"POST /v1/sessions/-/turns", "PUT /v1/sessions/*/kv", "POST /v1/sessions/*/finish", "GET /v1/sessions/*/history", "GET /v1/instances",
	"GET /v1/instances/*", "PUT /v1/instances/*", "PATCH /v1/instances/*", "DELETE /v1/instances/*", "POST /v1/instances/*/heartbeat",
	"GET /v1/instances/*/tasks", "POST /v1/instances/*/tasks/*", "POST /v1/instances/*/cordon", "POST /v1/instances/*/uncordon", "GET /v1/pools",
	"GET /v1/pools/*/policy", "PUT /v1/pools/*/policy", "GET /v1/ring", "GET /metrics", "GET /docs", "GET /openapi.json", "GET /problems/*", "GET /*",
}

// printable keeps what net/http lets a client send in a header.
func printable(c rune) rune {
	if c < 0x20 || c == 0x7f || c > 0xff {
		return -1
	}
	return c
}

// raw is a word of the API, or none. The victim's own name is not among them.
func (r requester) raw() string {
	switch r.IntN(12) {
	case 0:
		return r.handle
	case 1:
		return r.handle[:r.IntN(len(r.handle))]
	case 2:
		return strings.Repeat("a", r.IntN(2000))
	case 3:
		return string([]byte{byte(r.IntN(256)), byte(r.IntN(256)), 0})
	case 4:
		return strconv.FormatInt(int64(r.Uint64()), 10) //nolint:gosec // any number
	}
	return pick(r.Rand, "", "-", "..", "%", "s", "i7", "i8:connect", "ghost:nothing", "default", "*", "true", "25ms", "-1", "1e9", "NaN",
		"ünïcode", "\u2028", "a/b", "a b", "always2xx", "10.0.0.1:8000", "[fd00::8]:1", "application/json", "application/x-ndjson",
		"application/octet-stream", "gzip", "Bearer nobody", "<script>", "' OR 1=1", "${jndi:ldap://x}")
}

// word is raw as it may stand in a URL: escaped, or now and then as it is.
func (r requester) word() string {
	w := r.raw()
	odd := strings.ContainsFunc(w, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '%' || c == '#' })
	if odd || r.IntN(20) > 0 {
		return url.PathEscape(w)
	}
	return w
}

// document is a body of members that some call knows.
func (r requester) document() []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range r.Perm(len(members))[:r.IntN(8)] {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", members[name], r.value(3))
	}
	b.WriteByte('}')
	return b.Bytes()
}

var members = []string{
	"op", "handle", "instance", "incarnation", "turns", "at", "base", "recreate", "meta", "usage", "kv", "session", "mode", "have", "accept_lost",
	"pool", "address", "weight", "labels", "compat", "running", "waiting", "ready", "kv_usage", "outcomes", "instances", "deadline_ms", "pace", "models",
}

func (r requester) value(depth int) string {
	if depth == 0 {
		return "0"
	}
	switch r.IntN(9) {
	case 0:
		return fmt.Sprintf("[%s,%s]", r.value(depth-1), r.value(depth-1))
	case 1:
		return fmt.Sprintf(`{"value":%s}`, r.value(depth-1))
	case 2:
		return fmt.Sprintf(`{%q:%s,%q:%s}`, pick(r.Rand, members...), r.value(depth-1), pick(r.Rand, members...), r.value(depth-1))
	case 3:
		return strconv.Quote(r.who.incarnation)
	case 4:
		return fmt.Sprint(r.Int64())
	case 5:
		return pick(r.Rand, "null", "true", "-0", "1e400", "0.1", `"\u0000"`, `"\ud83d"`, "[]", "{}", "18446744073709551616", strings.Repeat("[", 3000))
	}
	return fmt.Sprintf("%q", r.raw())
}

// spoil changes, cuts or doubles some bytes, one time in three.
func (r requester) spoil(b []byte) []byte {
	switch r.IntN(9) {
	case 0:
		b[r.IntN(len(b))] ^= byte(1 + r.IntN(255))
	case 1:
		return b[:r.IntN(len(b))]
	case 2:
		return slices.Concat(b, b)
	}
	return b
}

// sendGarbage writes bytes that are no HTTP, and what only looks like it.
func sendGarbage(t *testing.T, server *berth) {
	noise := make([]byte, 64<<10)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(r.IntN(256))
	}
	for name, text := range map[string]string{
		"noise":                   string(noise),
		"zeros":                   strings.Repeat("\x00", 10_000),
		"a TLS hello":             "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("x", 500),
		"HTTP/2 without a word":   "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"no version":              "GET /route?session=s\r\n\r\n",
		"a version to come":       "GET /livez HTTP/9.9\r\nHost: b\r\n\r\n",
		"no host":                 "GET /livez HTTP/1.1\r\n\r\n",
		"two lengths":             "POST /v1/recover HTTP/1.1\r\nHost: b\r\nContent-Length: 2\r\nContent-Length: 30\r\n\r\n{}",
		"a negative length":       "POST /v1/recover HTTP/1.1\r\nHost: b\r\nContent-Length: -1\r\n\r\n{}",
		"a length beyond reason":  "POST /v1/sessions/s/turns HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\nContent-Length: 9223372036854775807\r\n\r\n{}",
		"a length and chunks":     "POST /v1/recover HTTP/1.1\r\nHost: b\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a chunk beyond reason":   "POST /v1/sessions/s/turns HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
		"a header that is folded": "GET /livez HTTP/1.1\r\nHost: b\r\nX-Session-ID: a\r\n b\r\n\r\n",
		"a path out of the world": "GET /../../etc/passwd HTTP/1.1\r\nHost: b\r\n\r\n",
		"another server's path":   "GET http://127.0.0.1:1/livez HTTP/1.1\r\nHost: b\r\n\r\n",
		"a tunnel":                "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: b\r\n\r\n",
	} {
		answer := exchange(t, server, text)
		if strings.HasPrefix(answer, "HTTP/1.1 500") || strings.Contains(answer, "goroutine ") {
			t.Errorf("%s is answered %q", name, answer)
		}
	}
}

// exchange writes text and reads until the server closes, as it may do at any
// moment, or has nothing more to say.
func exchange(t *testing.T, server *berth, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", server.addr)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	if _, err := io.WriteString(conn, text); err == nil {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	answer, _ := io.ReadAll(io.LimitReader(conn, 1<<20))
	return string(answer)
}

// sendHeads sends heads that are larger than any may be.
func sendHeads(t *testing.T, server *berth) {
	big := strings.Repeat("x", 200_000)
	for name, text := range map[string]string{
		"a header":          "GET /route?session=s HTTP/1.1\r\nHost: b\r\nX-Berth-Handle: " + big + "\r\n\r\n",
		"a URL":             "GET /route?session=" + big + " HTTP/1.1\r\nHost: b\r\n\r\n",
		"many headers":      "GET /route?session=s HTTP/1.1\r\nHost: b\r\n" + strings.Repeat("X-Session-ID: s\r\n", 20_000) + "\r\n",
		"a header's name":   "GET /route?session=s HTTP/1.1\r\nHost: b\r\n" + big + ": s\r\n\r\n",
		"a word for method": big + " /route HTTP/1.1\r\nHost: b\r\n\r\n",
	} {
		answer := exchange(t, server, text)
		status, _, _ := strings.Cut(answer, "\r\n")
		// A server that has refused need not read the rest: the answer may be lost
		// to the reset of the connection.
		if answer != "" && !strings.HasPrefix(status, "HTTP/1.1 4") {
			t.Errorf("%s without end is answered %q", name, status)
		}
	}
}

// sendSlowly begins many requests and goes on with none: those whose body drips
// are told that it takes too long, and the others are served meanwhile.
func sendSlowly(t *testing.T, server *berth) {
	const slow = 200
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for i := range slow {
		conn, err := net.Dial("tcp", server.addr)
		must(t, err)
		conns = append(conns, conn)
		head := "POST /v1/recover HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
		if i%2 == 1 {
			head = head[:i%len(head)] // not even a whole head
		}
		_, err = io.WriteString(conn, head)
		must(t, err)
	}
	_, err := server.api().route(t.Context(), "someone-else")
	must(t, err)

	must(t, conns[0].SetReadDeadline(time.Now().Add(patience)))
	resp, err := http.ReadResponse(bufio.NewReader(conns[0]), nil)
	must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("a body that never ends is answered %s", resp.Status)
	}
}
