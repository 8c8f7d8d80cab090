package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestTornBodiesAreTheCallersFault: a body that breaks off is 400, not 500.
func TestTornBodiesAreTheCallersFault(t *testing.T) {
	t.Parallel()
	server := serve(t)
	for _, path := range []string{"/v1/recover", "/v1/outcomes", "/v1/drains", "/v1/sessions/s/turns"} {
		head := "POST " + path + " HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\n"
		for _, text := range []string{
			head + "Content-Length: 100\r\n\r\n{",
			head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
		} {
			if got := exchange(t, server, text); !strings.HasPrefix(got, "HTTP/1.1 400") {
				t.Errorf("%q is answered %q", text, got)
			}
		}
	}
}

// TestReadinessFailsBeforeConnectionsDo: load balancers see 503 before they are
// refused.
func TestReadinessFailsBeforeConnectionsDo(t *testing.T) {
	t.Parallel()
	// The delay is for whoever asks: on a busy machine a call takes seconds.
	server := serve(t, "--shutdown-delay", "5s")
	server.terminate(t)
	var seen []int
	eventually(t, "connections are refused", func() error {
		got, err := server.api().raw(t.Context(), http.MethodGet, "/readyz", nil, "Connection: close")
		if err != nil {
			return nil //nolint:nilerr // nobody answers any more
		}
		seen = append(seen, got.status)
		return fmt.Errorf("answered %d", got.status)
	})
	if len(seen) == 0 || seen[len(seen)-1] != http.StatusServiceUnavailable {
		t.Errorf("asked whether it is ready, a server that stops answered %v and then nothing", seen)
	}
	if got := server.exitCode(t); got != 0 {
		t.Errorf("the server ended with code %d", got)
	}
}
