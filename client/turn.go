package client

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// Limits that Berth refuses to pass, in bytes. The client refuses a body that
// is over them before it sends it: a server that stops reading looks to a
// sender like a torn connection, which would be repeated.
const (
	MaxTurnBytes    = 16 << 20
	MaxSessionBytes = 64 << 20
	MaxMetaBytes    = 64 << 10
)

// Turn is one piece of context: either a JSON value or raw bytes. Both come back
// as the bytes that came, white space and escapes included.
type Turn struct {
	// N is the turn's place in the session, from 0. It is told by Berth and
	// ignored in writes.
	N int
	// Value is one JSON value, nil for raw bytes.
	Value json.RawMessage
	// Bytes are raw bytes, nil for a JSON value.
	Bytes []byte
	// Tokens is the writer's count, 0 if it does not tell.
	Tokens int
}

// JSON is a turn that holds one JSON value.
func JSON(value []byte) Turn { return Turn{Value: value} }

// Binary is a turn that holds raw bytes.
func Binary(b []byte) Turn {
	if b == nil {
		b = []byte{}
	}
	return Turn{Bytes: b}
}

// check reports whether the turn can be sent.
func (t *Turn) check() error {
	switch size := len(t.Value) + len(t.Bytes); {
	case (t.Value == nil) == (t.Bytes == nil):
		return errors.New("a turn is either a JSON value or raw bytes")
	case t.Value != nil && !json.Valid(t.Value):
		return errors.New("the value of a turn is not JSON")
	case size > MaxTurnBytes:
		return tooLarge("turn", MaxTurnBytes, size)
	}
	return nil
}

func tooLarge(what string, limit, size int) *Problem {
	return &Problem{
		Code: ErrTooLarge, Status: 413, What: what, Limit: int64(limit), Size: int64(size),
		Detail: fmt.Sprintf("%s of %d bytes, at most %d are allowed", what, size, limit),
	}
}

// append writes the turn as the API takes it. The value is copied as it is:
// encoding/json would compact it.
func (t *Turn) append(b []byte) []byte {
	if t.Value != nil {
		b = append(b, `{"value":`...)
		b = append(b, t.Value...)
	} else {
		b = append(b, `{"base64":"`...)
		b = base64.StdEncoding.AppendEncode(b, t.Bytes)
		b = append(b, '"')
	}
	if t.Tokens > 0 {
		b = fmt.Appendf(b, `,"tokens":%d`, t.Tokens)
	}
	return append(b, '}')
}

// wireTurn is a turn in an answer. A JSON value may come as base64 too, where the
// form of the answer would not keep its bytes; the type tells.
type wireTurn struct {
	N      int             `json:"n"`
	Type   string          `json:"type"`
	Value  json.RawMessage `json:"value"`
	Base64 *string         `json:"base64"`
	Tokens int             `json:"tokens"`
}

// turn checks and decodes. Errors quote nothing of the turn.
func (w *wireTurn) turn() (Turn, error) {
	t := Turn{N: w.N, Tokens: w.Tokens, Value: w.Value}
	if (w.Value == nil) == (w.Base64 == nil) {
		return t, fmt.Errorf("turn %d is neither a value nor bytes", w.N)
	}
	if w.Base64 == nil {
		return t, nil
	}
	b, err := base64.StdEncoding.DecodeString(*w.Base64)
	if err != nil {
		return t, fmt.Errorf("turn %d: base64: %w", w.N, err)
	}
	if w.Type == typeJSON {
		t.Value = b
	} else {
		t.Bytes = b
	}
	return t, nil
}
