package redistest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// lineServer answers every line with the same line and counts those it has read.
type lineServer struct {
	addr string
	read atomic.Int32
}

func newLineServer(t *testing.T) *lineServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	s := &lineServer{addr: l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *lineServer) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		s.read.Add(1)
		if _, err := io.WriteString(conn, line); err != nil {
			return
		}
	}
}

// lineClient asks line by line.
type lineClient struct {
	conn  net.Conn
	lines *bufio.Reader
}

func dialLines(t *testing.T, addr string) *lineClient {
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &lineClient{conn, bufio.NewReader(conn)}
}

// ask sends a line and returns what came back within the time given.
func (c *lineClient) ask(line string, patience time.Duration) (string, error) {
	if _, err := io.WriteString(c.conn, line+"\n"); err != nil {
		return "", err
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	got, err := c.lines.ReadString('\n')
	return strings.TrimSuffix(got, "\n"), err
}

const (
	patient   = time.Minute
	impatient = 50 * time.Millisecond
)

// TestProxyFaults sends three requests of which the second meets the fault, and
// holds what the client gets and how many requests the server has executed by then.
func TestProxyFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		arm      func(*Proxy) <-chan struct{}
		patience time.Duration
		got      string
		timeout  bool // the connection stays open and silent
		failed   bool
		executed int32
	}{
		{"lose request", func(p *Proxy) <-chan struct{} { return p.LoseRequest("op-2") }, patient, "", false, true, 1},
		{"lose reply", func(p *Proxy) <-chan struct{} { return p.LoseReply("op-2") }, impatient, "", true, true, 2},
		{"delay reply", func(p *Proxy) <-chan struct{} { return p.DelayReply("op-2", 100*time.Millisecond) }, patient, "op-2", false, false, 2},
		{"delay reply past patience", func(p *Proxy) <-chan struct{} { return p.DelayReply("op-2", time.Hour) }, impatient, "", true, true, 2},
		{"cut reply at once", func(p *Proxy) <-chan struct{} { return p.CutReply("op-2", 0) }, patient, "", false, true, 2},
		{"cut reply in the middle", func(p *Proxy) <-chan struct{} { return p.CutReply("op-2", 2) }, patient, "op", false, true, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := newLineServer(t)
			proxy := NewProxy(t, server.addr)
			struck := tt.arm(proxy)
			client := dialLines(t, proxy.Addr)
			if got, err := client.ask("op-1", patient); err != nil || got != "op-1" {
				t.Fatalf("before the fault: %q, %v", got, err)
			}
			got, err := client.ask("op-2", tt.patience)
			if got != tt.got || (err != nil) != tt.failed || errors.Is(err, os.ErrDeadlineExceeded) != tt.timeout {
				t.Errorf("at the fault: %q, %v", got, err)
			}
			await(t, struck)
			if n := server.read.Load(); n != tt.executed {
				t.Errorf("the server has executed %d requests, want %d", n, tt.executed)
			}
			if got, err := dialLines(t, proxy.Addr).ask("op-2", patient); err != nil || got != "op-2" {
				t.Errorf("the same request again: %q, %v", got, err)
			}
		})
	}
}

// TestProxyMatchesAcrossPieces sends the matched bytes in two writes.
func TestProxyMatchesAcrossPieces(t *testing.T) {
	t.Parallel()
	server := newLineServer(t)
	proxy := NewProxy(t, server.addr)
	client := dialLines(t, proxy.Addr)
	if _, err := client.ask("needle in an earlier request", patient); err != nil {
		t.Fatal(err)
	}
	struck := proxy.LoseRequest("needle")
	if _, err := io.WriteString(client.conn, "need"); err != nil {
		t.Fatal(err)
	}
	// An answer through another connection shows that the proxy is past the first piece.
	if got, err := dialLines(t, proxy.Addr).ask("le hay", patient); err != nil || got != "le hay" {
		t.Fatalf("half a match in another connection struck: %q, %v", got, err)
	}
	if got, err := client.ask("le", patient); err == nil {
		t.Errorf("the request passed: %q", got)
	}
	await(t, struck)
	if n := server.read.Load(); n != 2 {
		t.Errorf("the server has executed %d requests, want the 2 before", n)
	}
}

func await(t *testing.T, struck <-chan struct{}) {
	t.Helper()
	select {
	case <-struck:
	case <-time.After(patient):
		t.Fatal("the fault does not strike")
	}
}

func TestProxyCutsAndComesBack(t *testing.T) {
	t.Parallel()
	server := newLineServer(t)
	proxy := NewProxy(t, server.addr)
	client := dialLines(t, proxy.Addr)
	ok := func(c *lineClient) bool { got, err := c.ask("hello", patient); return err == nil && got == "hello" }
	if !ok(client) {
		t.Fatal("a new proxy does not pass")
	}
	proxy.CutAll()
	if ok(client) {
		t.Error("a cut connection answers")
	}
	if !ok(dialLines(t, proxy.Addr)) {
		t.Error("no new connection after a cut")
	}
	proxy.Down()
	if ok(dialLines(t, proxy.Addr)) {
		t.Error("a new connection passes while down")
	}
	proxy.Up()
	client = dialLines(t, proxy.Addr)
	if !ok(client) {
		t.Error("no connection after up")
	}
	proxy.Latency(time.Hour)
	if _, err := client.ask("slow", impatient); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("with latency: %v, want a timeout", err)
	}
}
