package services

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth/statestore"
)

// firstRead bounds what is set aside for a body before it has come: its declared
// length is only a claim.
const firstRead = 1 << 20

// checkBody refuses a body by what is said of it, before any of it is read.
func (c *requestContext) checkBody(limit int64) error {
	if coding := c.request.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return newProblem("unsupported_media", "a body comes as it is, without Content-Encoding")
	}
	if n := c.request.ContentLength; n > limit {
		c.writer.Header().Set("Connection", "close")                                          // the body is not worth reading
		return &statestore.TooLargeError{What: "body", Limit: uint64(limit), Size: uint64(n)} //nolint:gosec // neither is negative
	}
	return nil
}

// checkSmallBody is checkBody ahead of the bodies that huma reads. Huma compares
// media types as they are written; their case means nothing (RFC 9110, 8.3.1).
func (s *Server) checkSmallBody(ctx huma.Context, next func(huma.Context)) {
	c := contextOf(ctx.Context())
	if err := c.checkBody(ctx.Operation().MaxBodyBytes); err != nil {
		s.refuse(c.writer, c.request, err)
		return
	}
	if media := c.request.Header["Content-Type"]; len(media) == 1 {
		c.request.Header["Content-Type"] = []string{strings.ToLower(media[0])}
	}
	next(ctx)
}

// readContext reads the body of a write. It is read here and not by huma, because
// a context can be large, and is kept as the bytes that came.
func (s *Server) readContext(ctx context.Context) ([]byte, error) {
	c := contextOf(ctx)
	if err := c.checkBody(maxContextBody); err != nil {
		return nil, err
	}
	// net/http lifts the deadline where the body ends; after one that does not end,
	// it has to hold for the rest that net/http reads. A server without deadlines
	// reads as long as it takes.
	_ = http.NewResponseController(c.writer).SetReadDeadline(time.Now().Add(s.options.ContextTimeout))
	if n := c.request.ContentLength; 0 < n && n <= firstRead {
		body := make([]byte, n)
		if _, err := io.ReadFull(c.request.Body, body); err != nil {
			return nil, bodyProblem(err, n)
		}
		return body, nil
	}
	var buf bytes.Buffer
	buf.Grow(int(min(max(c.request.ContentLength, 0), firstRead)) + bytes.MinRead)
	if _, err := buf.ReadFrom(http.MaxBytesReader(c.writer, c.request.Body, maxContextBody)); err != nil {
		return nil, bodyProblem(err, c.request.ContentLength)
	}
	return buf.Bytes(), nil
}

// bodyProblem says why a body did not come whole.
func bodyProblem(err error, declared int64) error {
	var large *http.MaxBytesError
	var network net.Error
	switch {
	case errors.As(err, &large):
		size := max(declared, large.Limit+1)
		return &statestore.TooLargeError{What: "body", Limit: uint64(large.Limit), Size: uint64(size)} //nolint:gosec // not negative
	case errors.As(err, &network) && network.Timeout():
		return newProblem("timeout", "the body did not come in time")
	}
	return newProblem("malformed", "the body broke off")
}

// writeBody is the JSON form of a write.
type writeBody struct {
	Op          string            `json:"op" minLength:"1" maxLength:"128" doc:"chosen by the client; repeat it until there is an answer"`
	Handle      string            `json:"handle" doc:"the newest one held"`
	Instance    string            `json:"instance" doc:"who writes"`
	Incarnation string            `json:"incarnation" doc:"of the instance"`
	At          string            `json:"at,omitempty" enum:"version,end" doc:"version (default): the handle's must be current; end: after whatever is there"`
	Base        *uint64           `json:"base,omitempty" doc:"keep the first k turns, drop the rest"`
	Recreate    bool              `json:"recreate,omitempty" doc:"begin anew after a delete"`
	Turns       []turnBody        `json:"turns" doc:"in order; an append needs at least one"`
	Meta        json.RawMessage   `json:"meta,omitempty" doc:"replaces what is there; up to 64 KiB"`
	Usage       json.RawMessage   `json:"usage,omitempty" doc:"the engine's own object"`
	KV          []json.RawMessage `json:"kv,omitempty" doc:"placements, kv/1"`
}

// turnBody is a turn on its way in: one of value and base64.
type turnBody struct {
	Value  json.RawMessage `json:"value,omitempty" doc:"any JSON value; comes back as the bytes that came"`
	Base64 *string         `json:"base64,omitempty" doc:"raw bytes"`
	Tokens uint64          `json:"tokens,omitempty" maximum:"1000000000000" doc:"of this turn, by the engine; 0: unknown"`
}

// maxTokens bounds what one turn may count, so that no sum of a session passes
// what a script in Redis counts exactly.
const maxTokens = 1_000_000_000_000

// decode reads the JSON form, or the raw form of one turn.
func (w *write) decode(in *writeInput, body []byte) error {
	media, _, err := mime.ParseMediaType(in.ContentType)
	if err != nil {
		media = in.ContentType
	}
	switch media {
	case mediaBytes:
		w.body.Op, w.body.Handle, w.body.Instance, w.body.Incarnation = in.Op, in.Handle, in.Instance, in.Incarnation
		w.body.Turns = []turnBody{{}}
		w.turns = []statestore.Turn{{Type: statestore.TurnBytes, Value: body}}
		return nil
	case "", mediaJSON:
		return w.decodeJSON(body)
	}
	return newProblem("unsupported_media", "want application/json or application/octet-stream")
}

func (w *write) decodeJSON(body []byte) error {
	if err := wellFormed(body); err != nil {
		return newProblem("malformed", "the body is not JSON: "+err.Error())
	}
	if err := w.body.read(body); err != nil {
		return err
	}
	w.turns = make([]statestore.Turn, len(w.body.Turns))
	for i := range w.body.Turns {
		t := &w.body.Turns[i]
		if (t.Base64 == nil) == (t.Value == nil) {
			return invalid(turnAt(i), "needs exactly one of value and base64")
		}
		if t.Tokens > maxTokens {
			return invalid(turnAt(i)+".tokens", "are more than any context has")
		}
		w.turns[i] = statestore.Turn{Type: statestore.TurnJSON, Value: t.Value, Tokens: t.Tokens}
		if t.Base64 == nil {
			continue
		}
		raw, err := base64.StdEncoding.Strict().DecodeString(*t.Base64)
		if err != nil {
			return invalid(turnAt(i)+".base64", "is not base64")
		}
		w.turns[i].Type, w.turns[i].Value = statestore.TurnBytes, raw
	}
	return nil
}

// read decodes a body that is well-formed. Names match as they stand, and
// unknown ones are refused.
func (b *writeBody) read(body []byte) error {
	s := scanner{b: body}
	err := s.object(func(name string) error {
		return located("body."+name, b.member(&s, name))
	})
	return located("body", err)
}

func (b *writeBody) member(s *scanner, name string) error {
	switch name {
	case "op":
		return s.into(&b.Op)
	case "handle":
		return s.into(&b.Handle)
	case "instance":
		return s.into(&b.Instance)
	case "incarnation":
		return s.into(&b.Incarnation)
	case "at":
		return s.into(&b.At)
	case "base":
		return s.into(&b.Base)
	case "recreate":
		return s.into(&b.Recreate)
	case "turns":
		return b.readTurns(s)
	case "meta":
		b.Meta = s.value()
	case "usage":
		var object map[string]json.RawMessage
		b.Usage = s.value()
		return json.Unmarshal(b.Usage, &object)
	case "kv":
		return s.into(&b.KV)
	default:
		return errUnknownMember
	}
	return nil
}

// readTurns leaves Turns nil only where the body has none: an empty list is one.
func (b *writeBody) readTurns(s *scanner) error {
	b.Turns = []turnBody{}
	return s.array(func() error {
		var t turnBody
		err := s.object(func(name string) error {
			err := t.member(s, name)
			if err != nil {
				err = located(turnAt(len(b.Turns))+"."+name, err)
			}
			return err
		})
		if err != nil {
			return located(turnAt(len(b.Turns)), err)
		}
		b.Turns = append(b.Turns, t)
		return nil
	})
}

func turnAt(i int) string { return fmt.Sprintf("body.turns[%d]", i) }

func (t *turnBody) member(s *scanner, name string) error {
	switch name {
	case "value":
		t.Value = s.value()
	case "base64":
		return s.into(&t.Base64)
	case "tokens":
		return s.into(&t.Tokens)
	default:
		return errUnknownMember
	}
	return nil
}

var errUnknownMember = errors.New("is not a member of this body")

// located is the refusal of what stands at a place of the body; the innermost
// place that was named stays.
func located(at string, err error) error {
	var p *Problem
	var wrong *json.UnmarshalTypeError
	var twice *duplicateError
	switch {
	case err == nil, errors.As(err, &p):
		return err
	case errors.As(err, &twice), errors.Is(err, errHalf):
		return newProblem("malformed", at+": "+err.Error())
	case errors.As(err, &wrong):
		return invalid(at, wanted(wrong))
	}
	return invalid(at, err.Error())
}
