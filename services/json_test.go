package services

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestBodiesAreIJSON(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001)
	many := new(strings.Builder)
	for i := range 40 {
		fmt.Fprintf(many, `"m%d":%d,`, i, i)
	}
	cases := []struct {
		name, body string
		good       bool
	}{
		{"an object", `{"a":1,"b":[true,null,"x"],"c":{"a":2}}`, true},
		{"a pair of surrogates", `"\ud83d\ude00"`, true},
		{"an escaped backslash before u", `"\\ud83d"`, true},
		{"many members", `{` + many.String() + `"last":0}`, true},
		{"nothing", ``, false},
		{"only space", ` `, false},
		{"two values", `{} {}`, false},
		{"a half of a pair", `"\ud83d"`, false},
		{"the lower half alone", `"\ude00"`, false},
		{"two upper halves", `"\ud83d\ud83d"`, false},
		{"an upper half before another escape", `"\ud83d\n"`, false},
		{"a half of a pair as a name", `{"\ud83d":1}`, false},
		{"bytes that are no UTF-8", "\"\xff\"", false},
		{"a member twice", `{"a":1,"b":2,"a":1}`, false},
		{"a member twice, spelled differently", `{"a":1,"\u0061":1}`, false},
		{"a member twice, deep down", `[{"x":[{"a":1,"a":1}]}]`, false},
		{"a member twice among many", `{` + many.String() + `"m39":0}`, false},
		{"nested too deep", deep, false},
		{"a byte order mark", "\ufeff{}", false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if err := checkJSON([]byte(tc.body)); (err == nil) != tc.good {
				t.Fatalf("%.80s: %v", tc.body, err)
			}
		})
	}
}

// The deepest nesting that is allowed costs one pass, not one a level.
func TestDeepNestingIsWalkedOnce(t *testing.T) {
	t.Parallel()
	const depth = 9_999
	body := strings.Repeat(`{"a":`, depth) + `1` + strings.Repeat(`}`, depth)
	s := scanner{b: []byte(body)}
	if err := s.check(); err != nil || s.i != len(body) {
		t.Fatalf("%v at %d of %d", err, s.i, len(body))
	}
}

func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":[{}]}`, `"\ud83d\ude00"`, `[1,2 , 3]`, `{"a":{"a":"a"}}`, `-1.5e3`, `{"":""}`, "\"\ufffd\""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := checkJSON(body)
		if !utf8.Valid(body) || !json.Valid(body) {
			if err == nil {
				t.Fatal("accepted what is not JSON in UTF-8")
			}
			return
		}
		twice, replaced := judgeByTokens(t, body)
		if want := !twice && !replaced; (err == nil) != want {
			t.Fatalf("%v, but a member twice %v, characters replaced %v", err, twice, replaced)
		}
	})
}

// judgeByTokens finds with the standard decoder what checkJSON refuses: an object
// with one name twice, and a string that does not survive being decoded.
func judgeByTokens(t *testing.T, body []byte) (twice, replaced bool) {
	type level struct {
		object, value bool
		names         map[string]bool
	}
	var open []*level
	dec := json.NewDecoder(bytes.NewReader(body))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		top := &level{}
		if len(open) > 0 {
			top = open[len(open)-1]
		}
		if d, ok := token.(json.Delim); ok && (d == '}' || d == ']') {
			open = open[:len(open)-1]
			continue
		}
		if name, ok := token.(string); ok && top.object && !top.value {
			twice = twice || top.names[name]
			top.names[name], top.value = true, true
			continue
		}
		top.value = false
		if d, ok := token.(json.Delim); ok {
			open = append(open, &level{object: d == '{', names: map[string]bool{}})
		}
	}
	// Every escape of a half shows as U+FFFD that nobody wrote.
	var whole any
	if json.Unmarshal(body, &whole) != nil {
		return twice, false // a number out of range, which no string is part of
	}
	halves := json.RawMessage(body)
	return twice, countReplaced(halves) > bytes.Count(body, []byte("\ufffd"))+countEscaped(body)
}

// countReplaced counts U+FFFD in all decoded strings, names among them.
func countReplaced(body []byte) (n int) {
	dec := json.NewDecoder(bytes.NewReader(body))
	for {
		token, err := dec.Token()
		if err != nil {
			return n
		}
		if s, ok := token.(string); ok {
			n += strings.Count(s, "\ufffd")
		}
	}
}

// countEscaped counts escapes that mean U+FFFD itself.
func countEscaped(body []byte) (n int) {
	for i := 0; i < len(body)-1; i++ {
		if body[i] != '\\' {
			continue
		}
		i++
		if body[i] == 'u' && len(body) >= i+5 && strings.EqualFold(string(body[i+1:i+5]), "fffd") {
			n++
		}
	}
	return n
}

func FuzzWriteBody(f *testing.F) {
	for _, seed := range []string{
		`{"op":"a","handle":"h","instance":"i1","incarnation":"x","turns":[{"value": {"role":"user"} ,"tokens":3},{"base64":"AAE="}]}`,
		`{"turns":[],"meta":{"a":[1]},"usage":{"prompt_tokens":1},"kv":[{"tier":"gpu"}],"base":0,"at":"end","recreate":true}`,
		`{"op":null,"base":null,"turns":[{"value":null}]}`,
		`{"op":"a","op":"b"}`, `{"Op":"a"}`, `{"turns":[{"value":"\ud83d"}]}`, `{"turns":{}}`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var w write
		err := w.decodeJSON(body)
		if err != nil {
			var p *Problem
			if !errors.As(err, &p) || p.Status != 400 && p.Status != 422 || p.Detail == "" {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		var want writeBody
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("accepted what the standard decoder refuses: %v", err)
		}
		if got := w.body; got.Op != want.Op || got.Handle != want.Handle || got.At != want.At || got.Recreate != want.Recreate ||
			len(got.Turns) != len(want.Turns) || !bytes.Equal(got.Meta, want.Meta) || !bytes.Equal(got.Usage, want.Usage) {
			t.Fatalf("read %+v, want %+v", got, want)
		}
		for i := range want.Turns {
			if !bytes.Equal(w.body.Turns[i].Value, want.Turns[i].Value) || w.body.Turns[i].Tokens != want.Turns[i].Tokens {
				t.Fatalf("turn %d: read %+v, want %+v", i, w.body.Turns[i], want.Turns[i])
			}
		}
	})
}
