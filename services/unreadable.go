package services

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What net/http cannot read as a request, or what has headers beyond twice
// MaxHeaderBytes, it refuses itself, in plain text and before any handler. It gives no
// say in that, but writes each such answer at once and in one form, with a head that
// no handler's answer has (those have a date). So the connection puts a problem in its
// place: TestWhatIsNoRequestIsAProblem fails if that form ever changes.
const (
	plainRefusal    = "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
	maxPlainRefusal = 512 // bytes; the longest is half of that, and most answers are longer
)

// handshakeTime is how long a caller may take over the TLS handshake.
const handshakeTime = 30 * time.Second

// Listener accepts for l, and lets no refusal of net/http's own go out on HTTP/1. Over
// TLS it accepts after the handshake, which says whether the caller speaks HTTP/2:
// that has other ways to refuse a stream.
func (s *Server) Listener(ctx context.Context, l net.Listener) net.Listener {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &problemListener{Listener: l, server: s, accepted: make(chan accepted), stop: stop, stopped: ctx.Done()}
	go p.run(ctx)
	return p
}

type problemListener struct {
	net.Listener
	server   *Server
	accepted chan accepted
	stop     context.CancelFunc
	stopped  <-chan struct{}
}

type accepted struct {
	conn net.Conn
	err  error
}

func (l *problemListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.stopped:
		return nil, net.ErrClosed
	}
}

func (l *problemListener) Close() error {
	l.stop()
	return l.Listener.Close()
}

func (l *problemListener) run(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := l.Listener.Accept()
		if err != nil {
			l.hand(accepted{err: err})
		} else if secure, ok := conn.(*tls.Conn); ok {
			go func() { l.hand(accepted{conn: l.shake(ctx, secure)}) }()
		} else {
			l.hand(accepted{conn: plainConn{conn, l.server}})
		}
	}
}

func (l *problemListener) hand(a accepted) {
	select {
	case l.accepted <- a:
	case <-l.stopped:
		if a.conn != nil {
			_ = a.conn.Close()
		}
	}
}

// shake ends the handshake. What fails in it net/http is told again, and answers.
func (l *problemListener) shake(ctx context.Context, conn *tls.Conn) net.Conn {
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	err := conn.HandshakeContext(ctx)
	_ = conn.SetDeadline(time.Time{})
	if err != nil || conn.ConnectionState().NegotiatedProtocol == "h2" {
		return conn
	}
	return secureConn{conn, l.server}
}

type plainConn struct {
	net.Conn
	server *Server
}

func (c plainConn) Write(p []byte) (int, error) { return c.server.writeReadable(c.Conn, p) }

type secureConn struct {
	*tls.Conn
	server *Server
}

func (c secureConn) Write(p []byte) (int, error) { return c.server.writeReadable(c.Conn, p) }

// writeReadable writes p, or a problem in place of a refusal in plain text.
func (s *Server) writeReadable(w net.Conn, p []byte) (int, error) {
	if len(p) > maxPlainRefusal {
		return w.Write(p)
	}
	status, rest, _ := bytes.Cut(p, []byte("\r\n"))
	said, ok := strings.CutPrefix(string(rest), plainRefusal)
	if !ok {
		return w.Write(p)
	}
	if _, err := w.Write(s.unreadable(string(status), said)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// unreadable is the whole answer to what is no request. What is said of it is net/http's
// own text, which quotes nothing of the request.
func (s *Server) unreadable(status, said string) []byte {
	if _, why, ok := strings.Cut(said, ": "); ok {
		said = why
	}
	p := newProblem("malformed", said)
	switch {
	case strings.Contains(status, " "+strconv.Itoa(http.StatusRequestHeaderFieldsTooLarge)+" "):
		p = newProblem("headers_too_large", "the request line and the headers are larger than the limit")
		p.Limit = MaxHeaderBytes
	case strings.HasSuffix(status, said): // it says no more than the status
		p.Detail = "the request line or a header cannot be read: control characters and spaces in the path are escaped, and two hexadecimal digits follow each %"
	}
	p.Instance = newRequestID()
	s.metrics.refused(p.Code)
	body, err := json.Marshal(p)
	if err != nil {
		body = nil // not reached: a problem holds no type that JSON lacks
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n%s: %s\r\n\r\n%s",
		p.Status, http.StatusText(p.Status), p.ContentType(""), len(body), hdrRequestID, p.Instance, body)
}
