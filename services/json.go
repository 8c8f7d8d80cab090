package services

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"
)

// encoding/json changes what it lets through: bytes that are no UTF-8 and halves
// of surrogate pairs become U+FFFD, and of two members with one name the last
// wins. Two ids must not become one like that, so every body is held to I-JSON
// (RFC 7493) before it is decoded. Turns and meta are not decoded and may hold
// any JSON.

// strictFormats replaces huma's JSON.
var strictFormats = map[string]huma.Format{
	"application/json": {Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshalStrict},
	"json":             {Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshalStrict},
}

// unmarshalStrict checks a body when huma decodes it for validation, which it
// does before it decodes it into a struct.
func unmarshalStrict(body []byte, v any) error {
	if _, first := v.(*any); first {
		if err := checkJSON(body); err != nil {
			return err
		}
	}
	return typed(json.Unmarshal(body, v))
}

// checkJSON refuses what is not one value of I-JSON.
func checkJSON(body []byte) error {
	if err := wellFormed(body); err != nil {
		return err
	}
	s := scanner{b: body}
	return s.check()
}

// wellFormed refuses what is not one value of JSON in UTF-8.
func wellFormed(body []byte) error {
	if !utf8.Valid(body) {
		return errors.New("not UTF-8")
	}
	// It says what json.Valid says, at a sixth of the cost: strings are most of a body.
	if jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return nil
	}
	var whole json.RawMessage
	return json.Unmarshal(body, &whole) // says where it is wrong
}

// scanner walks JSON that is well-formed. It copies nothing.
type scanner struct {
	b []byte
	i int
}

// check walks one value and all that is in it.
func (s *scanner) check() error {
	s.space()
	switch s.b[s.i] {
	case '"':
		return wholeRunes(s.text())
	case '[':
		return s.array(s.check)
	case '{':
		return s.object(func(string) error { return s.check() })
	}
	s.value()
	return nil
}

// object calls member for every member, which has to pass its value.
func (s *scanner) object(member func(name string) error) error {
	s.space()
	if s.b[s.i] != '{' {
		return errors.New("want an object")
	}
	s.i++
	var seen names
	for s.more('}') {
		raw := s.text()
		if err := wholeRunes(raw); err != nil {
			return err
		}
		name := unquote(raw)
		if !seen.add(name) {
			return &duplicateError{name}
		}
		s.space()
		s.i++ // the colon
		s.space()
		if err := member(name); err != nil {
			return err
		}
	}
	return nil
}

// array calls element for every element, which has to pass it.
func (s *scanner) array(element func() error) error {
	s.space()
	if s.b[s.i] != '[' {
		return errors.New("want an array")
	}
	s.i++
	for s.more(']') {
		if err := element(); err != nil {
			return err
		}
	}
	return nil
}

// more passes what stands between two parts, or the end.
func (s *scanner) more(end byte) bool {
	s.space()
	if s.b[s.i] == ',' {
		s.i++
		s.space()
	}
	if s.b[s.i] == end {
		s.i++
		return false
	}
	return true
}

func (s *scanner) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\n' || s.b[s.i] == '\r' || s.b[s.i] == '\t') {
		s.i++
	}
}

// text passes a string and returns it with its quotes. Strings are most of a
// body, and are searched by words and not byte for byte.
func (s *scanner) text() []byte {
	start := s.i
	for s.i++; ; {
		end := bytes.IndexByte(s.b[s.i:], '"')
		escape := bytes.IndexByte(s.b[s.i:s.i+end], '\\')
		if escape < 0 {
			s.i += end + 1
			return s.b[start:s.i]
		}
		s.i += escape + 2
	}
}

// value passes a value of any kind and returns it as it stands.
func (s *scanner) value() []byte {
	s.space()
	start, depth := s.i, 0
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case '"':
			s.text()
		case '{', '[':
			depth++
			s.i++
		case '}', ']':
			if depth == 0 {
				return s.b[start:s.i] // the end of what a number or literal stands in
			}
			depth--
			s.i++
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return s.b[start:s.i]
			}
			s.i++
		default:
			s.i++
			continue
		}
		if depth == 0 {
			break
		}
	}
	return s.b[start:s.i]
}

// into passes a value and decodes it.
func (s *scanner) into(v any) error {
	raw := s.value()
	if text, ok := v.(*string); ok && raw[0] == '"' {
		*text = unquote(raw)
		return wholeRunes(raw)
	}
	return json.Unmarshal(raw, v)
}

// duplicateError is a name that an object has twice.
type duplicateError struct{ name string }

func (e *duplicateError) Error() string { return fmt.Sprintf("member %q stands there twice", e.name) }

// names is a set that is cheap while it is small.
type names struct {
	few  []string
	many map[string]struct{}
}

func (n *names) add(name string) bool {
	if n.many == nil && len(n.few) < 16 {
		if slices.Contains(n.few, name) {
			return false
		}
		n.few = append(n.few, name)
		return true
	}
	if n.many == nil {
		n.many = make(map[string]struct{}, 4*len(n.few))
		for _, f := range n.few {
			n.many[f] = struct{}{}
		}
	}
	_, there := n.many[name]
	n.many[name] = struct{}{}
	return !there
}

// unquote decodes a string that is well-formed.
func unquote(raw []byte) string {
	if plain := raw[1 : len(raw)-1]; bytes.IndexByte(plain, '\\') < 0 {
		return string(plain)
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return s
}

var errHalf = errors.New(`a string has a \u escape of half a surrogate pair`)

// wholeRunes refuses halves of surrogate pairs in a string with its quotes.
func wholeRunes(raw []byte) error {
	for i := 0; ; i++ {
		next := bytes.IndexByte(raw[i:], '\\')
		if next < 0 {
			return nil
		}
		i += next + 1
		if raw[i] != 'u' {
			continue
		}
		high := escape(raw[i+1:])
		i += 4
		switch {
		case high < 0xd800 || high > 0xdfff:
		case high > 0xdbff || len(raw) < i+7 || raw[i+1] != '\\' || raw[i+2] != 'u':
			return errHalf
		default:
			if low := escape(raw[i+3:]); low < 0xdc00 || low > 0xdfff {
				return errHalf
			}
			i += 6
		}
	}
}

// escape is the value of four hexadecimal digits.
func escape(b []byte) uint64 {
	v, _ := strconv.ParseUint(string(b[:4]), 16, 16) // well-formed JSON has them
	return v
}
