package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// answerTimeout bounds one exchange, so that a hung server ends the run.
const answerTimeout = 10 * time.Second

// Conn is one keep-alive HTTP/1.1 connection. It is for one goroutine.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader
	body []byte
}

// Dial connects to a server at host:port.
func Dial(ctx context.Context, address string) (*Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return &Conn{conn: c, r: bufio.NewReaderSize(c, 16<<10)}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Do sends a whole request and returns the answer's status and body. The body is
// good until the next call.
func (c *Conn) Do(request []byte) (int, []byte, error) {
	if err := c.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return 0, nil, fmt.Errorf("set a deadline: %w", err)
	}
	if _, err := c.conn.Write(request); err != nil {
		return 0, nil, fmt.Errorf("send: %w", err)
	}
	status, length, err := c.head()
	if err != nil {
		return 0, nil, err
	}
	if length < 0 {
		return status, nil, errors.New("the answer has no Content-Length")
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	c.body = c.body[:length]
	if _, err := io.ReadFull(c.r, c.body); err != nil {
		return status, nil, fmt.Errorf("read the body: %w", err)
	}
	return status, c.body, nil
}

var contentLength = []byte("content-length:")

// head reads the status line and finds the length; -1 if there is none.
func (c *Conn) head() (status, length int, err error) {
	length = -1
	for first := true; ; first = false {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, 0, fmt.Errorf("read the head: %w", err)
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first:
			if len(line) < 12 {
				return 0, 0, fmt.Errorf("not a status line: %q", line)
			}
			if status, err = strconv.Atoi(string(line[9:12])); err != nil {
				return 0, 0, fmt.Errorf("not a status line: %w", err)
			}
		case len(line) == 0:
			return status, length, nil
		case len(line) > len(contentLength) && bytes.EqualFold(line[:len(contentLength)], contentLength):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(contentLength):]))); err != nil {
				return 0, 0, fmt.Errorf("content length: %w", err)
			}
		}
	}
}
