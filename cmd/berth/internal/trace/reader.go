package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// BlockTokens is how many prompt tokens one block id stands for. The last
// block of a prompt may hold fewer.
const BlockTokens = 512

// maxLine is the longest line a trace may have, in bytes. A prompt of a
// million tokens has about 2,000 block ids and needs 20 KB.
const maxLine = 4 << 20

// maxTokens bounds both lengths of a request, so that sums over a trace stay
// far from overflow.
const maxTokens = 1 << 30

// Request is one line of a trace.
type Request struct {
	At           time.Duration // since the trace began
	InputTokens  int           // length of the whole prompt
	OutputTokens int           // length of the answer
	Blocks       []uint64      // the prompt in blocks of BlockTokens, in order
}

// Reader streams the requests of a trace.
type Reader struct {
	lines *bufio.Scanner
	line  int
}

// NewReader reads a trace from src and unpacks it when it begins as gzip does.
// It fails when the gzip header is damaged.
func NewReader(src io.Reader) (*Reader, error) {
	buffered := bufio.NewReader(src)
	var text io.Reader = buffered
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("unpack trace: %w", err)
		}
		text = unpacked
	}
	lines := bufio.NewScanner(text)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	return &Reader{lines: lines}, nil
}

// Next returns the next request. At the end of the trace it returns io.EOF;
// every other error names the line. Blank lines are passed over.
func (r *Reader) Next() (Request, error) {
	for r.lines.Scan() {
		r.line++
		line := bytes.TrimSpace(r.lines.Bytes())
		if len(line) == 0 {
			continue
		}
		req, err := parse(line)
		if err != nil {
			return Request{}, fmt.Errorf("trace line %d: %w", r.line, err)
		}
		return req, nil
	}
	switch err := r.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return Request{}, fmt.Errorf("trace line %d: longer than %d bytes", r.line+1, maxLine)
	case err != nil:
		return Request{}, fmt.Errorf("trace line %d: %w", r.line+1, err)
	}
	return Request{}, io.EOF
}

// parse reads one line. Every member is a pointer because an absent length is
// a damaged trace and not a length of zero. Unknown members are ignored:
// traces of the same format carry more of them.
func parse(line []byte) (Request, error) {
	var raw struct {
		Timestamp    *int64    `json:"timestamp"`
		InputLength  *int64    `json:"input_length"`
		OutputLength *int64    `json:"output_length"`
		HashIDs      []*uint64 `json:"hash_ids"`
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return Request{}, err
	}
	for _, m := range []struct {
		name  string
		value *int64
		most  int64
	}{
		{"timestamp", raw.Timestamp, time.Duration(1<<63 - 1).Milliseconds()},
		{"input_length", raw.InputLength, maxTokens},
		{"output_length", raw.OutputLength, maxTokens},
	} {
		if m.value == nil {
			return Request{}, fmt.Errorf("%s is missing", m.name)
		}
		if *m.value < 0 || *m.value > m.most {
			return Request{}, fmt.Errorf("%s is %d, want 0 to %d", m.name, *m.value, m.most)
		}
	}
	blocks, err := blockIDs(raw.HashIDs, int(*raw.InputLength))
	if err != nil {
		return Request{}, err
	}
	return Request{
		At:           time.Duration(*raw.Timestamp) * time.Millisecond,
		InputTokens:  int(*raw.InputLength),
		OutputTokens: int(*raw.OutputLength),
		Blocks:       blocks,
	}, nil
}

// blockIDs checks that the ids cover the prompt, with or without its last,
// partly filled block. A trace cut into blocks of another size fails here
// instead of giving hit rates that mean nothing.
func blockIDs(ids []*uint64, tokens int) ([]uint64, error) {
	full, all := tokens/BlockTokens, (tokens+BlockTokens-1)/BlockTokens
	if len(ids) != full && len(ids) != all {
		return nil, fmt.Errorf("hash_ids has %d blocks, a prompt of %d tokens has %d of %d tokens",
			len(ids), tokens, all, BlockTokens)
	}
	blocks := make([]uint64, len(ids))
	for i, id := range ids {
		if id == nil {
			return nil, fmt.Errorf("hash_ids[%d] is null", i)
		}
		blocks[i] = *id
	}
	return blocks, nil
}
