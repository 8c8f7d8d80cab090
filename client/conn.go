package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Headers of the API.
const (
	headerSession     = "X-Session-ID"
	headerHandle      = "X-Berth-Handle"
	headerTenant      = "X-Berth-Tenant"
	headerPool        = "X-Berth-Pool"
	headerEpoch       = "X-Berth-Epoch"
	headerVersion     = "X-Berth-Version"
	headerNew         = "X-Berth-New"
	headerInstance    = "X-Berth-Instance"
	headerIncarnation = "X-Berth-Incarnation"
	headerForwarded   = "X-Berth-Forwarded"
	headerEndpoint    = "X-Gateway-Destination-Endpoint"
	headerRank        = "X-Data-Parallel-Rank"
	headerOp          = "Idempotency-Key"
)

const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
	typeBytes  = "application/octet-stream"
)

// maxAnswerBytes bounds a JSON answer: a session of 64 MiB in base64 and its
// descriptors fit.
const maxAnswerBytes = 128 << 20

// call is one request, in a form that can be sent again byte for byte.
type call struct {
	act         string // what it does, for errors: "append turns"
	method      string
	path        string // escaped
	query       url.Values
	header      http.Header
	contentType string
	body        []byte
	streams     bool          // read consumes the body at the caller's pace
	wait        time.Duration // how long the server may take on purpose
	hurry       time.Duration // bounds an attempt below Config.AttemptTimeout; 0: not
	// read consumes the body of a 2xx answer; nil ignores it.
	read func(*http.Response) error
}

// into makes the call decode its answer into out.
func (c call) into(out any) call {
	c.read = func(res *http.Response) error {
		dec := json.NewDecoder(io.LimitReader(res.Body, maxAnswerBytes))
		if err := dec.Decode(out); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		return nil
	}
	return c
}

// withJSON gives the call a JSON body. The bodies that carry turns are written
// by hand instead (body.go): encoding/json would reformat them.
func (c call) withJSON(in any) (call, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(in); err != nil {
		return c, fmt.Errorf("%s: %w", c.act, err)
	}
	c.contentType, c.body = typeJSON, buf.Bytes()
	return c, nil
}

// set adds a header to the call, unless it is empty.
func (c *call) set(name, value string) {
	if value == "" {
		return
	}
	if c.header == nil {
		c.header = http.Header{}
	}
	c.header.Set(name, value)
}

// conn sends calls to the berth processes. All of them speak for one store, so
// a call that fails on one may be sent to the next.
type conn struct {
	cfg Config
	cur atomic.Uint32 // index of the process in use
}

func dial(cfg Config) (*conn, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("client configuration: %w", err)
	}
	return &conn{cfg: cfg}, nil
}

func (c *conn) log() *slog.Logger { return c.cfg.Logger }

// leave turns to the next process, unless another call already has.
func (c *conn) leave(from uint32) {
	if len(c.cfg.BaseURLs) > 1 {
		c.cur.CompareAndSwap(from, (from+1)%uint32(len(c.cfg.BaseURLs))) //nolint:gosec // a handful
	}
}

// transportError is a call that got no readable answer: nobody knows what became
// of it.
type transportError struct{ err error }

func (e *transportError) Error() string { return e.err.Error() }
func (e *transportError) Unwrap() error { return e.err }

// errSlow is an attempt that took longer than Config.AttemptTimeout.
var errSlow = errors.New("no answer within the attempt's time")

// permanentError is the caller's own, met while an answer was read: the same
// call again would not help.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// attempt sends the call once, to the process in use, and turns to the next
// where that may help. A refusal is a *Problem, no readable answer a
// *transportError.
func (c *conn) attempt(ctx context.Context, k call) error {
	cur := c.cur.Load()
	err := c.send(ctx, k, c.cfg.BaseURLs[cur])
	if elsewhere(err) && ctx.Err() == nil {
		c.leave(cur)
	}
	return err
}

// elsewhere reports whether another process may do better.
func elsewhere(err error) bool {
	var t *transportError
	p := refusal(err)
	return errors.As(err, &t) || (p != nil && p.elsewhere())
}

func (c *conn) send(ctx context.Context, k call, base string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A timer instead of a deadline: it stops when the head of a stream is here.
	slow := time.AfterFunc(min(c.cfg.AttemptTimeout, positive(k.hurry, c.cfg.AttemptTimeout))+k.wait, func() { cancel(errSlow) })
	defer slow.Stop()
	req, err := c.request(ctx, k, base)
	if err != nil {
		return err
	}
	res, err := c.cfg.HTTPClient.Do(req)
	if err != nil {
		if errors.Is(context.Cause(ctx), errSlow) {
			err = errSlow
		}
		return &transportError{bare(err)}
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return readProblem(res)
	}
	if k.streams {
		slow.Stop()
	}
	if k.read != nil {
		if err := consume(k, res); err != nil {
			return err
		}
	}
	// Only a connection that was read to its end is used again.
	_, _ = io.CopyN(io.Discard, res.Body, maxProblemBytes)
	return nil
}

func (c *conn) request(ctx context.Context, k call, base string) (*http.Request, error) {
	target := base + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, bytes.NewReader(k.body))
	if err != nil {
		return nil, &permanentError{fmt.Errorf("%s: build the request: %w", k.act, bare(err))}
	}
	for name, values := range k.header {
		req.Header[name] = values
	}
	if k.contentType != "" {
		req.Header.Set("Content-Type", k.contentType)
	}
	if c.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	if c.cfg.Tenant != "" && req.Header.Get(headerTenant) == "" {
		req.Header.Set(headerTenant, c.cfg.Tenant)
	}
	return req, nil
}

// consume reads a good answer. What the reader of a stream returns of its own
// keeps its type; everything else is an answer that did not arrive.
func consume(k call, res *http.Response) error {
	err := k.read(res)
	var own *permanentError
	var p *Problem
	if err == nil || errors.As(err, &own) || errors.As(err, &p) {
		return err
	}
	return &transportError{bare(err)}
}

// bare takes the URL out of an error of net/http: it names the session.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// once sends the call to each process at most once, without waiting between
// them: for calls on a hot path, and for those whose caller repeats by itself.
func (c *conn) once(ctx context.Context, k call) error {
	var err error
	for range c.cfg.BaseURLs {
		if err = c.attempt(ctx, k); !elsewhere(err) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", k.act, err)
	}
	return nil
}

// sessionPath is where a session's id goes: into the path as it is when no
// proxy could mangle it, else into a header, else, where a header would lose
// bytes of it, percent-encoded into the path.
func sessionPath(id string) (segment, header string) {
	plain := strings.Trim(id, ".-") != "" && strings.IndexFunc(id, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && r != '-' && r != '_' && r != '.' && r != '~'
	}) < 0
	switch {
	case plain:
		return id, ""
	case strings.TrimSpace(id) == id:
		return "-", id
	}
	return strings.ReplaceAll(url.PathEscape(id), ".", "%2E"), ""
}
