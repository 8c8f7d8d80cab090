package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// refuses runs a `berth serve` that must not come up, and returns what it says.
func refuses(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := runIn(ctx, t, dir, append([]string{"serve"}, flags...)...)
	if ctx.Err() != nil || got.code != 1 || got.stdout != "" || strings.Contains(got.stderr, "msg=serving") {
		t.Errorf("berth serve %v: code %d (%v), prints\n%s%s\nwant it to refuse", flags, got.code, ctx.Err(), got.stdout, got.stderr)
	}
	return got.stderr
}

// TestServeRefusesToLetStrangersIn holds that nobody beyond loopback is served
// without tokens by accident.
func TestServeRefusesToLetStrangersIn(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:7410", "berth.example:7410"} {
		if said := refuses(t, t.TempDir(), "--listen", listen); !strings.Contains(said, "--tokens") {
			t.Errorf("listening on %s is refused with %q, which does not name --tokens", listen, said)
		}
	}
}

// TestServeNamesWhatIsWrongWithItsStore holds that a store that cannot be used
// ends the program with a line that says which and why, and no password.
func TestServeNamesWhatIsWrongWithItsStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a-file")
	must(t, os.WriteFile(file, []byte("not a directory"), 0o600))
	damaged := filepath.Join(dir, "damaged")
	must(t, os.Mkdir(damaged, 0o700))
	must(t, os.WriteFile(filepath.Join(damaged, "berth.db"), []byte(strings.Repeat("not a store ", 5000)), 0o600))
	for store, says := range map[string]string{
		"mysql://localhost/berth":                         "must begin with redis",
		"redis://127.0.0.1:1/0":                           "127.0.0.1:1",
		"redis://user:hunter2secret@127.0.0.1:1/0":        "127.0.0.1:1",
		"redis://:hunter2secret@127.0.0.1:1/0?colour=red": "colour",
		"redis://127.0.0.1:1/first":                       "number",
		"redis+sentinel://127.0.0.1:1":                    "master",
		"redis+cluster://127.0.0.1:1/3":                   "Cluster",
		file:                                              "a-file",
		damaged:                                           "damaged",
	} {
		said := refuses(t, dir, "--listen", "127.0.0.1:0", "--store", store)
		if !strings.Contains(said, says) || strings.Contains(said, "hunter2secret") {
			t.Errorf("the store %s is refused with %q; want it to say %q and no password", store, said, says)
		}
	}
}

// TestServeNamesWhatIsWrongWithItsTokens holds that a mistake in the file of tokens
// is told, with the token's name where it has one and never with its secret.
func TestServeNamesWhatIsWrongWithItsTokens(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-some-length"
	for _, tt := range []struct{ file, says string }{
		{`{`, "read tokens"},
		{`[]`, "at least one token"},
		{`[{"name":"a","token":"` + secret + `","roles":["gateway"]}] []`, "one array"},
		{`[{"name":"a","token":"` + secret + `","roles":["gateway"],"rolls":[]}]`, "rolls"},
		{`[{"name":"a","token":"` + secret + `"}]`, "role"},
		{`[{"token":"` + secret + `","roles":["gateway"]}]`, "name"},
		{`[{"name":"a","token":"` + secret + `","roles":["root"]}]`, `unknown role "root"`},
		{`[{"name":"a","token":"` + secret + `","roles":["gateway"],"scopes":["all"]}]`, `unknown scope "all"`},
		{`[{"name":"a","roles":["gateway"]}]`, "token 1"},
		{`[{"name":"a","token":"` + secret + `","sha256":"00","roles":["gateway"]}]`, "exactly one"},
		{`[{"name":"a","sha256":"` + secret + `","roles":["gateway"]}]`, "64 hexadecimal"},
		{`[{"name":"a","token":"short","roles":["gateway"]}]`, "at least 8"},
		{`[{"name":"a","token":"` + secret + `","roles":["worker"],"networks":["10.0.0.0/99"]}]`, "network"},
		{`[{"name":"a","token":"` + secret + `","roles":["worker"]},{"name":"b","token":"` + secret + `","roles":["worker"]}]`, "same secret"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "tokens.json")
		must(t, os.WriteFile(path, []byte(tt.file), 0o600))
		said := refuses(t, dir, "--listen", "127.0.0.1:0", "--tokens", path)
		if !strings.Contains(said, tt.says) || !strings.Contains(said, "tokens") || strings.Contains(said, secret) {
			t.Errorf("the tokens %s are refused with %q; want it to say %q and no secret", tt.file, said, tt.says)
		}
	}
	if said := refuses(t, t.TempDir(), "--listen", "127.0.0.1:0", "--tokens", "nowhere.json"); !strings.Contains(said, "nowhere.json") {
		t.Errorf("a file of tokens that is not there is refused with %q", said)
	}
}

// TestSecondServerOnOneEmbeddedStoreIsRefused holds that the embedded store belongs
// to one process, that the second is told so, and that the first goes on.
func TestSecondServerOnOneEmbeddedStoreIsRefused(t *testing.T) {
	t.Parallel()
	first := serve(t)
	said := refuses(t, first.dir, "--listen", "127.0.0.1:0")
	if !strings.Contains(said, "berth.db") || !strings.Contains(said, "in use") {
		t.Errorf("the second server is refused with %q", said)
	}
	must(t, first.api().do(t.Context(), http.MethodGet, "/v1/instances", nil, nil))
	first.kill9(t)
	first.restart(t) // what the dead process held is free
}

// TestTokensAreAskedFor holds that a server with tokens asks everybody for one,
// but for what load balancers and readers need.
func TestTokensAreAskedFor(t *testing.T) {
	t.Parallel()
	tokens, err := filepath.Abs(filepath.Join("..", "deploy", "demo-tokens.json"))
	must(t, err)
	server := serve(t, "--tokens", tokens)
	for path, open := range map[string]bool{
		"/livez": true, "/readyz": true, "/docs": true, "/openapi.json": true, "/problems/not_owner": true,
		"/metrics": false, "/route?session=s": false, "/v1/instances": false, "/v1/sessions/s": false, "/v1/jobs": false,
	} {
		got, err := server.api().raw(t.Context(), http.MethodGet, path, nil)
		must(t, err)
		if open != (got.status == http.StatusOK) || !open && got.status != http.StatusUnauthorized {
			t.Errorf("%s without a token is answered %d", path, got.status)
		}
	}
	operator := api{url: server.url, token: "demo-operator-token"}
	must(t, operator.do(t.Context(), http.MethodGet, "/v1/jobs", nil, nil))
}

// TestShutdownLetsCallsEnd asks a server to stop while a turn is on its way in and
// a worker waits for tasks. It is never ready from then on, both calls get their
// answers, and the exit is clean; the turn is stored.
func TestShutdownLetsCallsEnd(t *testing.T) {
	t.Parallel()
	server := serve(t, append([]string{"--shutdown-grace", patience.String()}, timing...)...)
	ctx := t.Context()
	who, err := server.api().enlist(ctx, "i1", "default", "10.0.0.1:8000")
	must(t, err)
	h, err := server.api().route(ctx, "at-the-end")
	must(t, err)
	body, err := json.Marshal(newWrite(who, h.Handle, "op-1"))
	must(t, err)

	polled := make(chan error, 1)
	go func() {
		got, err := server.api().raw(ctx, http.MethodGet, "/v1/instances/i1/tasks?wait=50s", nil, "X-Berth-Incarnation: "+who.incarnation)
		if err == nil && (got.status != http.StatusOK || !strings.Contains(string(got.body), `"tasks":[]`)) {
			err = fmt.Errorf("%d %s", got.status, got.body)
		}
		polled <- err
	}()
	conn, answers := halfSent(t, server, "/v1/sessions/at-the-end/turns", body)

	server.terminate(t)
	must(t, server.awaitLine(within(t), 0, "msg=stopping"))
	if got, err := server.api().raw(ctx, http.MethodGet, "/readyz", nil); err == nil && got.status != http.StatusServiceUnavailable {
		t.Errorf("a server that is stopping says %d %s when asked whether it is ready", got.status, got.body)
	}
	_, err = conn.Write(body[len(body)/2:])
	must(t, err)
	resp, err := http.ReadResponse(answers, nil)
	must(t, err)
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the turn that was on its way is answered %d %s", resp.StatusCode, text)
	}
	if err := <-polled; err != nil {
		t.Errorf("the call that waited for tasks: %v", err)
	}
	if got := server.exitCode(t); got != 0 {
		t.Errorf("the server ended with code %d", got)
	}
	if server.log.has("calls cut off") {
		t.Error("calls were cut off")
	}
	server.restart(t)
	got, err := server.api().load(ctx, "at-the-end")
	must(t, err)
	if got.Count != 1 {
		t.Errorf("%d turns are stored, want the one that was answered", got.Count)
	}
}

// halfSent sends a request and half of its body, and returns when the server is
// reading that: it has said "continue" then.
func halfSent(t *testing.T, server *berth, path string, body []byte) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", server.addr)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		path, server.addr, len(body))
	must(t, err)
	answers := bufio.NewReader(conn)
	for {
		line, err := answers.ReadString('\n')
		must(t, err)
		if strings.TrimSpace(line) == "" {
			break
		}
		if strings.HasPrefix(line, "HTTP/") && !strings.Contains(line, "100 Continue") {
			t.Fatalf("want the server to go on, it says %s", line)
		}
	}
	_, err = conn.Write(body[:len(body)/2])
	must(t, err)
	return conn, answers
}
