package services

import (
	"bytes"
	"io"
	"strconv"
	"sync"
)

// maxPlainBeat bounds a heartbeat that is read without huma.
const maxPlainBeat = 1 << 10

var beatBodies = sync.Pool{New: func() any { return new([maxPlainBeat]byte) }}

// rereadBody is a body of which some has been read already.
type rereadBody struct {
	io.Reader
	io.Closer
}

// scan reads a body that is a plain object: known names, each once, strings of
// ASCII without escapes, unsigned numbers of at most fifteen digits. Whatever else
// may be good as well is false, as is what is wrong.
func (in *heartbeatInput) scan(body []byte) bool {
	p := plainJSON{rest: body}
	b, seen := &in.Body, 0
	once := func(bit int) bool {
		first := seen&bit == 0
		seen |= bit
		return first
	}
	const incarnation, ready, running, waiting, most, usage, generation, queries, hits = 1, 2, 4, 8, 16, 32, 64, 128, 256
	const million = 1_000_000
	fits := p.object(func(name []byte) bool {
		switch string(name) {
		case "incarnation":
			text, ok := p.text()
			b.Incarnation = string(text)
			return ok && once(incarnation) && len(text) >= 1 && len(text) <= 128
		case "ready":
			var ok bool
			b.Ready, ok = p.flag()
			return ok && once(ready)
		case "running":
			return once(running) && p.count(&b.Running, million)
		case "waiting":
			return once(waiting) && p.count(&b.Waiting, million)
		case "max_running":
			return once(most) && p.count(&b.MaxRunning, million)
		case "kv_usage":
			var ok bool
			b.KVUsage, ok = p.fraction()
			return ok && once(usage) && b.KVUsage <= 1
		case "kv_generation":
			return once(generation) && p.number(&b.KVGeneration)
		case "prefix_queries":
			return once(queries) && p.number(&b.PrefixQueries)
		case "prefix_hits":
			return once(hits) && p.number(&b.PrefixHits)
		}
		return false
	})
	const needed = incarnation | running | waiting
	return fits && seen&needed == needed
}

// plainJSON reads the plain kind of JSON, front to back.
type plainJSON struct{ rest []byte }

func (p *plainJSON) space() {
	for len(p.rest) > 0 && (p.rest[0] == ' ' || p.rest[0] == '\n' || p.rest[0] == '\r' || p.rest[0] == '\t') {
		p.rest = p.rest[1:]
	}
}

// take passes one character, with the space around it.
func (p *plainJSON) take(c byte) bool {
	p.space()
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	p.space()
	return true
}

// object reads all of an object that has members.
func (p *plainJSON) object(member func(name []byte) bool) bool {
	if !p.take('{') {
		return false
	}
	for {
		name, ok := p.text()
		if !ok || !p.take(':') || !member(name) {
			return false
		}
		if p.take('}') {
			return len(p.rest) == 0
		}
		if !p.take(',') {
			return false
		}
	}
}

func (p *plainJSON) text() ([]byte, bool) {
	if len(p.rest) == 0 || p.rest[0] != '"' {
		return nil, false
	}
	for i, c := range p.rest[1:] {
		if c == '"' {
			text := p.rest[1 : 1+i]
			p.rest = p.rest[2+i:]
			return text, true
		}
		if c < ' ' || c > '~' || c == '\\' {
			break
		}
	}
	return nil, false
}

func (p *plainJSON) flag() (value, ok bool) {
	for _, word := range [...]string{"true", "false"} {
		if rest, found := bytes.CutPrefix(p.rest, []byte(word)); found {
			p.rest = rest
			return word == "true", true
		}
	}
	return false, false
}

// digits reads a whole number as JSON writes it. What follows is not looked at: it
// is no comma and no end if the number went on.
func (p *plainJSON) digits() ([]byte, bool) {
	n := 0
	for n < len(p.rest) && '0' <= p.rest[n] && p.rest[n] <= '9' {
		n++
	}
	digits := p.rest[:n]
	p.rest = p.rest[n:]
	return digits, n == 1 || n > 1 && n <= 15 && digits[0] != '0'
}

func (p *plainJSON) number(into *uint64) bool {
	digits, ok := p.digits()
	*into = 0
	for _, d := range digits {
		*into = *into*10 + uint64(d-'0')
	}
	return ok
}

func (p *plainJSON) count(into *int, most uint64) bool {
	var n uint64
	ok := p.number(&n) && n <= most
	*into = int(n) //nolint:gosec // at most most, or not used
	return ok
}

// fraction reads a number that may have decimals, but no exponent.
func (p *plainJSON) fraction() (float64, bool) {
	text := p.rest
	if _, ok := p.digits(); !ok {
		return 0, false
	}
	if len(p.rest) > 0 && p.rest[0] == '.' {
		p.rest = p.rest[1:]
		n := 0
		for n < len(p.rest) && '0' <= p.rest[n] && p.rest[n] <= '9' {
			n++
		}
		if n == 0 || n > 20 {
			return 0, false
		}
		p.rest = p.rest[n:]
	}
	f, err := strconv.ParseFloat(string(text[:len(text)-len(p.rest)]), 64)
	return f, err == nil
}
