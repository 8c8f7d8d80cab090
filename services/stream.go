package services

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"berth/statestore"
)

const (
	mediaJSON  = "application/json"
	mediaLines = "application/x-ndjson"
	mediaBytes = "application/octet-stream"

	mediaEvents = "text/event-stream"
)

// streamBuffer is what is held back before the status is sent, so that most
// failures still answer as a problem.
const streamBuffer = 64 << 10

func mediaType(t statestore.TurnType) string {
	if t == statestore.TurnBytes {
		return mediaBytes
	}
	return mediaJSON
}

// wantsLines reports whether the caller asks for a line a turn.
func wantsLines(accept string) bool { return strings.Contains(accept, mediaLines) }

// stream answers a document and the turns of a reading, as one JSON object with
// an array of turns or as lines. Turns are written as they are read, byte for
// byte: no part of a JSON turn goes through an encoder. ended, unless nil, is told how
// that went.
func (s *Server) stream(lines bool, doc any, reading *statestore.Reading, ended func(error)) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		ctx.SetHeader("Cache-Control", "no-store")
		out := &turnStream{lines: lines, w: bufio.NewWriterSize(ctx.BodyWriter(), streamBuffer)}
		ctx.SetHeader("Content-Type", out.mediaType())
		defer s.abort(ctx, out)
		err := http.ErrAbortHandler // unless run returns
		if ended != nil {
			defer func() { ended(err) }()
		}
		if err = out.run(doc, reading); err == nil {
			return
		}
		if !out.flushed() {
			_, w := humachi.Unwrap(ctx)
			sendProblem(w, s.refused(ctx.Context(), err))
			return
		}
		s.tear(ctx, out, err)
	}}
}

// abort cuts off an answer that has begun, if the rendering panics: a problem
// behind half an answer would be taken for part of it.
func (s *Server) abort(ctx huma.Context, out *turnStream) {
	p := recover()
	if p == nil {
		return
	}
	if p != http.ErrAbortHandler && out.flushed() { //nolint:errorlint // the sentinel itself is what is panicked with
		s.log.Error("load panicked", "request", requestID(ctx.Context()), "panic", p, "stack", string(debug.Stack()))
		p = http.ErrAbortHandler
	}
	panic(p)
}

// tear ends an answer that has begun and cannot be finished: lines say so, a
// JSON object can only be cut off.
func (s *Server) tear(ctx huma.Context, out *turnStream, err error) {
	if !out.lines {
		s.log.Warn("load torn", "request", requestID(ctx.Context()), "error", err)
		panic(http.ErrAbortHandler)
	}
	if errors.Is(err, statestore.ErrChanged) {
		_, _ = out.w.WriteString("{\"changed\":true}\n")
	} else {
		p := s.refused(ctx.Context(), err)
		line, _ := json.Marshal(map[string]*Problem{"error": p}) // a Problem always marshals
		_, _ = out.w.Write(append(line, '\n'))
	}
	_ = out.w.Flush() // the client is gone if this fails
}

// turnStream renders one answer.
type turnStream struct {
	lines bool
	w     *bufio.Writer
	wrote int
}

func (t *turnStream) mediaType() string {
	if t.lines {
		return mediaLines
	}
	return mediaJSON
}

// flushed reports whether part of the answer may have left already.
func (t *turnStream) flushed() bool { return t.wrote > t.w.Buffered() }

func (t *turnStream) run(doc any, reading *statestore.Reading) error {
	head, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("render the record: %w", err)
	}
	t.put(head[:len(head)-1])
	if reading.Meta != nil {
		t.put([]byte(`,"meta":`))
		t.putRaw(reading.Meta)
	}
	if t.lines {
		t.put([]byte("}\n"))
		err = t.turns(reading.Turns, "", "\n")
	} else {
		t.put([]byte(`,"turns":[`))
		if err = t.turns(reading.Turns, ",", ""); err == nil {
			t.put([]byte("]}\n"))
		}
	}
	if err != nil {
		return err
	}
	return t.w.Flush()
}

func (t *turnStream) turns(seq iter.Seq2[statestore.NumberedTurn, error], between, after string) error {
	if seq == nil {
		return nil
	}
	first := true
	for turn, err := range seq {
		if err != nil {
			return err
		}
		if !first {
			t.put([]byte(between))
		}
		first = false
		t.turn(&turn)
		t.put([]byte(after))
	}
	return nil
}

// turn renders one turn. In lines, a JSON value with a line break of its own
// travels as base64, because it must come back as the bytes that came.
func (t *turnStream) turn(turn *statestore.NumberedTurn) {
	t.put(strconv.AppendUint([]byte(`{"n":`), turn.N, 10))
	t.put([]byte(`,"type":"` + mediaType(turn.Type) + `"`))
	if turn.Tokens > 0 {
		t.put(strconv.AppendUint([]byte(`,"tokens":`), turn.Tokens, 10))
	}
	if turn.Type == statestore.TurnJSON && !(t.lines && bytes.ContainsAny(turn.Value, "\r\n")) {
		t.put([]byte(`,"value":`))
		t.put(turn.Value)
		t.put([]byte("}"))
		return
	}
	t.put([]byte(`,"base64":"`))
	enc := base64.NewEncoder(base64.StdEncoding, countingWriter{t})
	_, _ = enc.Write(turn.Value) // errors of the writer show at the flush
	_ = enc.Close()
	t.put([]byte(`"}`))
}

// putRaw writes a JSON value that is not a turn; in lines it must stay on one.
func (t *turnStream) putRaw(raw []byte) {
	if t.lines {
		var one bytes.Buffer
		if json.Compact(&one, raw) == nil {
			raw = one.Bytes()
		}
	}
	t.put(raw)
}

// put writes; an error stays in the writer and shows at the flush.
func (t *turnStream) put(b []byte) {
	n, _ := t.w.Write(b)
	t.wrote += n
}

type countingWriter struct{ t *turnStream }

func (c countingWriter) Write(b []byte) (int, error) {
	c.t.put(b)
	return len(b), nil
}

var _ io.Writer = countingWriter{}
