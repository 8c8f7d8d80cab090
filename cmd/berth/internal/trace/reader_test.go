package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const goodLine = `{"timestamp": 1500, "input_length": 600, "output_length": 7, "hash_ids": [0, 18446744073709551615]}`

func readAll(t *testing.T, src io.Reader) ([]Request, error) {
	t.Helper()
	r, err := NewReader(src)
	if err != nil {
		return nil, err
	}
	var all []Request
	for {
		req, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, req)
	}
}

func zip(t *testing.T, text string) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func TestReaderReadsPlainAndGzip(t *testing.T) {
	t.Parallel()
	text := goodLine + "\r\n\n" + `{"hash_ids":[4],"output_length":0,"input_length":1023,"timestamp":2,"turn":9}`
	want := []Request{
		{At: 1500 * time.Millisecond, InputTokens: 600, OutputTokens: 7, Blocks: []uint64{0, 1<<64 - 1}},
		{At: 2 * time.Millisecond, InputTokens: 1023, Blocks: []uint64{4}},
	}
	for name, src := range map[string][]byte{"plain": []byte(text), "gzip": zip(t, text)} {
		got, err := readAll(t, bytes.NewReader(src))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.EqualFunc(got, want, equalRequests) {
			t.Errorf("%s: read %+v, want %+v", name, got, want)
		}
	}
}

func equalRequests(a, b Request) bool {
	return a.At == b.At && a.InputTokens == b.InputTokens && a.OutputTokens == b.OutputTokens &&
		slices.Equal(a.Blocks, b.Blocks)
}

func TestReaderNamesTheBadLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, line, want string }{
		{"not JSON", `timestamp,input`, "invalid character"},
		{"two values", goodLine + goodLine, "after top-level value"},
		{"array", `[1]`, "cannot unmarshal array"},
		{"null", `null`, "timestamp is missing"},
		{"no length", `{"timestamp":1,"output_length":1,"hash_ids":[1]}`, "input_length is missing"},
		{"no answer length", `{"timestamp":1,"input_length":1,"hash_ids":[1]}`, "output_length is missing"},
		{"no blocks", `{"timestamp":1,"input_length":513,"output_length":1}`, "0 blocks, a prompt of 513 tokens has 2"},
		{"blocks of 16", `{"timestamp":1,"input_length":40,"output_length":1,"hash_ids":[1,2,3]}`, "3 blocks, a prompt of 40 tokens has 1"},
		{"null block", `{"timestamp":1,"input_length":40,"output_length":1,"hash_ids":[null]}`, "hash_ids[0] is null"},
		{"negative block", `{"timestamp":1,"input_length":40,"output_length":1,"hash_ids":[-1]}`, "hash_ids"},
		{"text for a number", `{"timestamp":"1","input_length":40,"output_length":1,"hash_ids":[1]}`, "timestamp"},
		{"negative length", `{"timestamp":1,"input_length":-1,"output_length":1,"hash_ids":[]}`, "input_length is -1"},
		{"endless answer", `{"timestamp":1,"input_length":1,"output_length":99999999999,"hash_ids":[1]}`, "output_length is 99999999999"},
		{"overflowing time", `{"timestamp":9223372036854775807,"input_length":1,"output_length":1,"hash_ids":[1]}`, "timestamp is"},
		{"endless line", strings.Repeat(" ", maxLine+1), "longer than 4194304 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := readAll(t, strings.NewReader(goodLine+"\n\n"+tc.line+"\n"))
			if err == nil || !strings.HasPrefix(err.Error(), "trace line 3: ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one on line 3 with %q", err, tc.want)
			}
			if len(got) != 1 {
				t.Errorf("%d requests before the bad line, want 1", len(got))
			}
		})
	}
}

func TestReaderTellsDamagedGzip(t *testing.T) {
	t.Parallel()
	whole := zip(t, strings.Repeat(goodLine+"\n", 100))
	for name, damaged := range map[string][]byte{
		"header": whole[:5], "cut short": whole[:len(whole)/2], "checksum": append(slices.Clone(whole[:len(whole)-8]), make([]byte, 8)...),
	} {
		if _, err := readAll(t, bytes.NewReader(damaged)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(goodLine + "\n" + goodLine))
	f.Add([]byte(`{"timestamp":1e3,"input_length":40,"output_length":1,"hash_ids":[null,{}]}`))
	f.Add([]byte("\x1f\x8b\x08\x00"))
	namesLine := regexp.MustCompile(`^(trace line [1-9][0-9]*|unpack trace): .`)
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readAll(t, bytes.NewReader(data))
		if err != nil && !namesLine.MatchString(err.Error()) {
			t.Errorf("error does not name a line: %v", err)
		}
		for _, req := range got {
			uncovered := req.InputTokens - len(req.Blocks)*BlockTokens
			if req.At < 0 || req.OutputTokens < 0 || uncovered >= BlockTokens || uncovered <= -BlockTokens {
				t.Errorf("accepted %+v", req)
			}
		}
	})
}
