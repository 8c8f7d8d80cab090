package services

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// What net/http cannot read as a request, or what has headers beyond twice
// MaxHeaderBytes, it refuses itself, in plain text and before any handler. It gives no
// say in that, but writes each such answer at once and in one form, with a head that
// no handler's answer has (those have a date). So the connection puts a problem in its
// place: TestWhatIsNoRequestIsAProblem fails if that form ever changes.
const maxPlainRefusal = 512 // bytes; the longest is half of that, and most answers are longer

var (
	answerBegins = []byte("HTTP/1.") // parts of a longer answer do not
	plainRefusal = []byte("Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
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
			l.hand(accepted{conn: plainConn{conn, &readable{server: l.server}}})
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
	return secureConn{conn, &readable{server: l.server}}
}

type plainConn struct {
	net.Conn
	answers *readable
}

func (c plainConn) Read(p []byte) (int, error)  { return c.answers.read(c.Conn, p) }
func (c plainConn) Write(p []byte) (int, error) { return c.answers.write(c.Conn, p) }

type secureConn struct {
	*tls.Conn
	answers *readable
}

func (c secureConn) Read(p []byte) (int, error)  { return c.answers.read(c.Conn, p) }
func (c secureConn) Write(p []byte) (int, error) { return c.answers.write(c.Conn, p) }

// readable keeps a connection's refusals readable.
type readable struct {
	server *Server
	ended  atomic.Bool // the caller says no more, and net/http asked for more
}

// read tells an end alone, so that net/http meets it only where it needs more than came.
func (c *readable) read(r net.Conn, p []byte) (int, error) {
	n, err := r.Read(p)
	if errors.Is(err, io.EOF) {
		if n > 0 {
			return n, nil // the next read ends
		}
		c.ended.Store(true)
	}
	return n, err //nolint:wrapcheck // net/http compares them
}

// write writes p, or a problem in place of a refusal in plain text.
func (c *readable) write(w net.Conn, p []byte) (int, error) {
	if len(p) > maxPlainRefusal || !bytes.HasPrefix(p, answerBegins) {
		return w.Write(p)
	}
	status, rest, _ := bytes.Cut(p, []byte("\r\n"))
	said, ok := bytes.CutPrefix(rest, plainRefusal)
	if !ok {
		return w.Write(p)
	}
	if _, err := w.Write(c.unreadable(string(status), string(said))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// unknownFault is said where net/http says nothing but that it is a bad request.
const unknownFault = "this cannot be read as a request. One of these is wrong: " +
	"the first line (a method, a path without spaces and control characters in which two hexadecimal digits follow each %, and a version; nothing stands ahead of it), " +
	"a header (its name, or a control character), a Host that comes more than once, or the length of the body"

// unreadable is the whole answer to what is no request. What is said of it is net/http's
// own text, which quotes nothing of the request. A request of which only a part came
// mostly has nobody left to read the answer: nothing was refused, and nothing counts.
func (c *readable) unreadable(status, said string) []byte {
	_, why, told := strings.Cut(said, ": ")
	p, brokeOff := newProblem("malformed", unknownFault), false
	switch {
	case strings.Contains(status, " "+strconv.Itoa(http.StatusRequestHeaderFieldsTooLarge)+" "):
		p = newProblem("headers_too_large", "the request line and the headers are larger than the limit")
		p.Limit = MaxHeaderBytes
	case told:
		p.Detail = why
	case !strings.HasSuffix(status, said): // more than the status
		p.Detail = said
	case c.ended.Load():
		p.Detail, brokeOff = "the request ends before its headers do", true
	}
	p.Instance = newRequestID()
	if !brokeOff {
		c.server.metrics.refused(p.Code)
	}
	body, err := json.Marshal(p)
	if err != nil {
		body = nil // not reached: a problem holds no type that JSON lacks
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n%s: %s\r\n\r\n%s",
		p.Status, http.StatusText(p.Status), p.ContentType(""), len(body), hdrRequestID, p.Instance, body)
}
