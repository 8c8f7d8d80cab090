package services_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth/services"
)

// noRequests are what net/http itself refuses, with the code that it has to get.
var noRequests = map[string]struct{ head, code string }{
	"a control character in a header": {"GET /route HTTP/1.1\r\nHost: b\r\nX-Session-ID: a\x01b\r\n", "malformed"},
	"NUL in a header":                 {"GET /route HTTP/1.1\r\nHost: b\r\nX-Session-ID: a\x00b\r\n", "malformed"},
	"DEL in a header":                 {"GET /route HTTP/1.1\r\nHost: b\r\nX-Session-ID: a\x7fb\r\n", "malformed"},
	"a header's name with a space":    {"GET /route HTTP/1.1\r\nHost: b\r\nX Session: a\r\n", "malformed"},
	"a control character in the path": {"DELETE /v1/sessions/s\x01 HTTP/1.1\r\nHost: b\r\n", "malformed"},
	"a space in the path":             {"DELETE /v1/sessions/s t HTTP/1.1\r\nHost: b\r\n", "malformed"},
	"an escape that is none":          {"DELETE /v1/sessions/%zz HTTP/1.1\r\nHost: b\r\n", "malformed"},
	"half an escape":                  {"DELETE /v1/sessions/s% HTTP/1.1\r\nHost: b\r\n", "malformed"},
	"no host":                         {"GET /route HTTP/1.1\r\n", "malformed"},
	"a host that is none":             {"GET /route HTTP/1.1\r\nHost: a b/c\r\n", "malformed"},
	"a method that is none":           {"G\x00T /route HTTP/1.1\r\nHost: b\r\n", "malformed"},
	"a version to come":               {"GET /route HTTP/9.9\r\nHost: b\r\n", "malformed"},
	"no version":                      {"GET /route\r\nHost: b\r\n", "malformed"},
	"a coding that nobody knows":      {"POST /v1/recover HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: none\r\n", "malformed"},
	"two hosts":                       {"GET /route HTTP/1.1\r\nHost: b\r\nHost: c\r\n", "malformed"},
	"an empty line ahead":             {"\r\nGET /route HTTP/1.1\r\nHost: b\r\n", "malformed"},
	"a length below zero":             {"POST /v1/recover HTTP/1.1\r\nHost: b\r\nContent-Length: -1\r\n", "malformed"},
	"two lengths":                     {"POST /v1/recover HTTP/1.1\r\nHost: b\r\nContent-Length: 2\r\nContent-Length: 3\r\n", "malformed"},
	"headers without end":             {"GET /route HTTP/1.1\r\nHost: b\r\nCookie: " + strings.Repeat("x", 2*services.MaxHeaderBytes+(16<<10)) + "\r\n", "headers_too_large"},
}

// What net/http cannot read it refuses before any handler. That is a problem like all
// others, also as the second request of a connection; nothing is stored, and the
// connection ends.
func TestWhatIsNoRequestIsAProblem(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plainly := func(t *testing.T) net.Conn {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://")) //nolint:noctx // of this process
		return dialled(t, conn, err)
	}
	addr, config := overTLS(t, b)
	securely := func(t *testing.T) net.Conn {
		conn, err := tls.Dial("tcp", addr, config) //nolint:noctx // as above
		return dialled(t, conn, err)
	}
	worker := b.worker("i1")
	worker.append("s", "first", b.route("s").want(200).str("handle"), `"hello"`).want(200)
	before := b.stored()
	for name, tt := range noRequests {
		t.Run(name, func(t *testing.T) {
			status := map[string]int{"malformed": 400, "headers_too_large": 431}[tt.code]
			for _, dial := range []func(*testing.T) net.Conn{plainly, securely} {
				for _, first := range []string{"", "GET /livez HTTP/1.1\r\nHost: b\r\n\r\n"} {
					a := b.with(t).exchange(dial(t), first, tt.head+"\r\n").refused(status, tt.code)
					if a.str("detail") == "" || a.header.Get("X-Request-Id") != a.str("instance") {
						t.Errorf("nothing explains %s with %v", a.body, a.header)
					}
				}
			}
			if after := b.stored(); after != before {
				t.Errorf("stored\n%s\nbefore, and after\n%s", before, after)
			}
		})
	}
	if got := b.call("GET", "/metrics", "").want(200); !strings.Contains(string(got.body), `berth_refusals_total{code="headers_too_large"} 4`) {
		t.Errorf("not counted: %s", got.body)
	}
}

// What is said of it fits: where net/http tells no reason, all that it may be is named.
func TestWhatIsNoRequestIsExplained(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, says := range map[string]string{
		"two hosts":                       "Host that comes more than once",
		"a length below zero":             "length of the body",
		"an empty line ahead":             "nothing stands ahead of it",
		"half an escape":                  "hexadecimal digits follow each %",
		"a header's name with a space":    "invalid header name",
		"a coding that nobody knows":      "Unsupported transfer encoding",
		"no host":                         "missing required Host header",
		"a control character in a header": "a control character",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://")) //nolint:noctx // of this process
		a := b.exchange(dialled(t, conn, err), "", noRequests[name].head+"\r\n").refused(400, "malformed")
		if !strings.Contains(a.str("detail"), says) {
			t.Errorf("%s is explained as %s", name, a.body)
		}
	}
}

// A request of which only a part came is no refusal: its sender may be gone. One that
// still listens is told what is missing.
func TestARequestThatBreaksOffIsNotCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	addr, config := overTLS(t, b)
	const series = `berth_refusals_total{code="malformed"}`
	for _, half := range []string{"GET /li", "GET /livez HTTP/1.1\r\nHo", "GET /livez HTTP/1.1\r\nHost: b\r\n"} {
		plain, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://")) //nolint:noctx // of this process
		dialled(t, plain, err)
		secure, err := tls.Dial("tcp", addr, config) //nolint:noctx // as above
		dialled(t, secure, err)
		for _, conn := range []interface {
			net.Conn
			CloseWrite() error
		}{plain.(*net.TCPConn), secure} { //nolint:errcheck,forcetypeassert // it is one
			b.send(conn, half)
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if a := b.take(resp).refused(400, "malformed"); a.str("detail") != "the request ends before its headers do" {
				t.Errorf("%q is explained as %s", half, a.body)
			}
		}
	}
	if n := b.metric(series); n != 0 {
		t.Errorf("%v of requests that broke off are counted", n)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://")) //nolint:noctx // as above
	b.exchange(dialled(t, conn, err), "", noRequests["two hosts"].head+"\r\n").refused(400, "malformed")
	if n := b.metric(series); n != 1 {
		t.Errorf("%v of a whole one", n)
	}
}

// overTLS serves the bundle's server once more, over TLS and HTTP/2.
func overTLS(t *testing.T, b *bundle) (addr string, client *tls.Config) {
	t.Helper()
	certified := httptest.NewUnstartedServer(nil)
	certified.EnableHTTP2 = true
	certified.StartTLS()
	defer certified.Close()
	web := httptest.NewUnstartedServer(b.server.Handler())
	web.Listener = b.server.Listener(t.Context(), tls.NewListener(web.Listener, certified.TLS))
	web.Config.MaxHeaderBytes = 2 * services.MaxHeaderBytes
	web.Start()
	t.Cleanup(web.Close)
	client = certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone() //nolint:errcheck,forcetypeassert // httptest's own
	return web.Listener.Addr().String(), client
}

func dialled(t *testing.T, conn net.Conn, err error) net.Conn {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// exchange sends requests on a connection, and takes the answer to the last, after
// which the server has to hang up.
func (b *bundle) exchange(conn net.Conn, first, last string) answer {
	b.t.Helper()
	defer conn.Close() //nolint:errcheck // read to its end
	answers := bufio.NewReader(conn)
	if first != "" {
		b.send(conn, first)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		b.take(resp).want(200)
	}
	b.send(conn, last)
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	a := b.take(resp)
	if _, err := answers.ReadByte(); err == nil || !resp.Close {
		b.t.Errorf("the connection goes on after %d %s", a.status, a.body)
	}
	return a
}

func (b *bundle) send(conn net.Conn, text string) {
	b.t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		b.t.Fatal(err)
	}
}

// Callers over TLS have HTTP/2 where they ask for it, and one that never ends its
// handshake keeps nobody waiting.
func TestTLSIsAcceptedAfterItsHandshake(t *testing.T) {
	t.Parallel()
	b := setup(t)
	addr, config := overTLS(t, b)
	slow, err := net.Dial("tcp", addr) //nolint:noctx // of this process
	dialled(t, slow, err)
	for major, protocol := range map[int]string{1: "http/1.1", 2: "h2"} {
		config := config.Clone()
		config.NextProtos = []string{protocol}
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: major == 2}
		b.client.Transport, b.url = transport, "https://"+addr
		resp, err := b.client.Get(b.url + "/livez") //nolint:noctx // as above
		if err != nil {
			t.Fatal(err)
		}
		b.take(resp).want(200)
		if resp.ProtoMajor != major {
			t.Errorf("HTTP/%d, want %d", resp.ProtoMajor, major)
		}
		transport.CloseIdleConnections()
	}
}

// What a handler writes piece by piece goes out as it is, whatever it looks like.
func TestPartsOfAnAnswerAreLeftAlone(t *testing.T) {
	t.Parallel()
	const part = "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of this process
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 2 {
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, part)
		}
	})}
	served := setup(t).server.Listener(t.Context(), l)
	go func() { _ = server.Serve(served) }()
	defer server.Close()                                 //nolint:errcheck // nothing is left to say
	resp, err := http.Get("http://" + l.Addr().String()) //nolint:noctx // of this process
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != part+part {
		t.Errorf("%q, %v", got, err)
	}
}
