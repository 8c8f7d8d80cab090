package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
)

// errEndless is an answer of which nobody could tell an end from a break: it is
// neither chunked nor of a known length. A proxy that speaks HTTP/1.0 makes it.
var errEndless = errors.New("the stream's end cannot be told from a break: neither chunked nor of known length")

// turnStream reads the turns of an answer, JSON or NDJSON. NDJSON is a record
// and then a turn a line; a white space inside a value may be a line break, so
// values are read, not lines. A stream that Berth could not finish ends with a
// line that says so.
type turnStream struct {
	dec   *json.Decoder
	whole []wireTurn // of a JSON answer, which has all turns in it
	next  int        // place of the next turn
	count *int       // turns of the session, where the record tells them and all were asked for
	ended bool       // all turns were read
	err   error
}

// openTurns reads the record into head, whatever the form of the answer.
func openTurns(res *http.Response, head any) (*turnStream, error) {
	delimited := res.ContentLength >= 0 || len(res.TransferEncoding) > 0 || res.ProtoMajor >= 2 || res.Uncompressed
	if !delimited {
		return nil, &permanentError{errEndless}
	}
	// Fails at the bound, where io.LimitReader would pretend an end.
	t := &turnStream{dec: json.NewDecoder(http.MaxBytesReader(nil, res.Body, maxAnswerBytes))}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind == typeNDJSON {
		if err := t.dec.Decode(head); err != nil {
			return nil, fmt.Errorf("read the record: %w", unexpected(err))
		}
		return t, nil
	}
	var raw json.RawMessage
	if err := t.dec.Decode(&raw); err != nil {
		return nil, fmt.Errorf("read the answer: %w", unexpected(err))
	}
	var turns struct {
		Turns []wireTurn `json:"turns"`
	}
	if err := errors.Join(json.Unmarshal(raw, head), json.Unmarshal(raw, &turns)); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	t.whole, t.dec = turns.Turns, nil
	return t, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// expect says which place the first turn has and, unless nil, how many turns the
// session has, so that an answer which was cut cleanly is noticed.
func (t *turnStream) expect(first int, count *int) { t.next, t.count = first, count }

// all yields the turns in order. After an error there is no further turn.
func (t *turnStream) all() iter.Seq2[Turn, error] {
	return func(yield func(Turn, error) bool) {
		for !t.ended && t.err == nil {
			turn, err := t.read()
			if t.ended {
				return
			}
			t.err = err
			if !yield(turn, err) {
				return
			}
		}
	}
}

// read takes the next turn, or sets ended.
func (t *turnStream) read() (Turn, error) {
	line, err := t.line()
	switch {
	case t.ended && t.count != nil && t.next < *t.count:
		t.ended = false
		return Turn{}, &permanentError{fmt.Errorf("the answer ended after %d of %d turns", t.next, *t.count)}
	case t.ended || err != nil:
		return Turn{}, err
	case line.Error != nil:
		return Turn{}, line.Error.orUnspecified()
	case line.Changed:
		return Turn{}, &Problem{Code: ErrChanged, Status: http.StatusConflict, Detail: "the context was rewritten while it was read"}
	case line.N != t.next:
		return Turn{}, &permanentError{fmt.Errorf("turn %d came in the place of turn %d", line.N, t.next)}
	}
	t.next++
	turn, err := line.turn()
	if err != nil {
		return Turn{}, &permanentError{err}
	}
	return turn, nil
}

// wireLine is a line of a stream after the first.
type wireLine struct {
	wireTurn
	Changed bool     `json:"changed"`
	Error   *Problem `json:"error"`
}

func (t *turnStream) line() (line wireLine, err error) {
	if t.dec == nil {
		if t.ended = len(t.whole) == 0; !t.ended {
			line.wireTurn, t.whole = t.whole[0], t.whole[1:]
		}
		return line, nil
	}
	switch err := t.dec.Decode(&line); {
	case errors.Is(err, io.EOF):
		t.ended = true
		return line, nil
	case err != nil:
		return line, fmt.Errorf("read turn %d: %w", t.next, err)
	}
	return line, nil
}

// orUnspecified completes a problem that came inside a stream.
func (p *Problem) orUnspecified() *Problem {
	if p.Code == "" {
		p.Code = codeUnspecified
	}
	if p.Status == 0 {
		p.Status = http.StatusInternalServerError
	}
	return p
}
