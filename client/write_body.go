package client

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// At says where an append goes.
type At string

// Places of an append.
const (
	// AtVersion appends after the version that the newest handle names, and is
	// refused with ErrVersionConflict if there has been another write since.
	AtVersion At = "version"
	// AtEnd appends after whatever is there: for parallel requests of one owner.
	AtEnd At = "end"
)

// Write is one write to the context of a session, by [Session.Append] or
// [Session.Replace].
type Write struct {
	// Op names the write: repeated with the same op it is one write. Empty
	// means a new one, 128 random bits; errors and receipts tell it.
	Op string
	// At is AtVersion when empty. Only for appends.
	At At
	// Base keeps that many leading turns and drops the rest, before the turns
	// of this write. Nil keeps all. Only for appends.
	Base *int
	// Recreate allows to begin anew after a delete.
	Recreate bool
	Turns    []Turn
	// Meta is JSON of up to MaxMetaBytes. It replaces what is there; nil
	// leaves it.
	Meta json.RawMessage
	// Usage is the engine's own usage object, unchanged.
	Usage json.RawMessage
	// KV says where KV cache for this context lies on the instance.
	KV []Placement
	// OnConflict is asked whether the write is still meant after another one
	// came first: after ErrVersionConflict, or after an ErrNotOwner that says
	// that this instance owns the session at a later epoch than it knew. If so
	// it goes after what is there, under the same op. Nil means yes for AtEnd;
	// otherwise the refusal is the answer. It must not call the Session.
	OnConflict func(Conflict) bool
}

// Conflict is what a write met in its place.
type Conflict struct {
	Op string
	// Now is the session as it is, read with [Session.Have]: Base leading turns
	// of the copy hold, then come Turns.
	Now *Recovery
}

// newOp is a name that nobody chooses twice.
func newOp() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// write is a checked Write that owns its bytes: it is sent again as it was, even
// when the caller has gone on to use the buffers.
type write struct {
	Write
	replaces bool
	kv       []byte // JSON; nil for none
	size     int    // of turns and meta, in bytes
}

func (w *write) act() string {
	if w.replaces {
		return "replace context"
	}
	return "append turns"
}

func newWrite(in Write, replaces bool) (*write, error) {
	w := &write{Write: in, replaces: replaces}
	if w.Op == "" {
		w.Op = newOp()
	}
	if replaces && (in.At != "" || in.Base != nil) {
		return w, errors.New("a replace has no place: it is the whole context")
	}
	w.Turns = slices.Clone(in.Turns)
	for i := range w.Turns {
		t := &w.Turns[i]
		if err := t.check(); err != nil {
			return w, fmt.Errorf("turn %d of the write: %w", i, err)
		}
		t.Value, t.Bytes = bytes.Clone(t.Value), bytes.Clone(t.Bytes)
		w.size += len(t.Value) + len(t.Bytes)
	}
	if w.size > MaxSessionBytes {
		return w, tooLarge("session", MaxSessionBytes, w.size)
	}
	if len(in.Meta) > MaxMetaBytes {
		return w, tooLarge("meta", MaxMetaBytes, len(in.Meta))
	}
	w.size += len(in.Meta)
	w.Meta, w.Usage = bytes.Clone(in.Meta), bytes.Clone(in.Usage)
	switch {
	case w.Meta != nil && !json.Valid(w.Meta):
		return w, errors.New("meta is not JSON")
	case w.Usage != nil && !json.Valid(w.Usage):
		return w, errors.New("usage is not JSON")
	case len(in.KV) == 0:
		return w, nil
	}
	var err error
	if w.kv, err = json.Marshal(in.KV); err != nil {
		err = fmt.Errorf("kv of the write: %w", err)
	}
	return w, err
}

// credentials are what changes between two sendings of a write.
type credentials struct {
	handle      Handle
	instance    string
	incarnation string
}

// call is the request that carries the write.
func (w *write) call(k call, by credentials) call {
	k.act, k.method = w.act(), http.MethodPost
	if w.replaces {
		k.method = http.MethodPut
	} else {
		k.path += "/turns"
	}
	if w.rawBytes() {
		k.contentType, k.body = typeBytes, w.Turns[0].Bytes
		k.set(headerOp, w.Op)
		k.set(headerHandle, string(by.handle))
		k.set(headerInstance, by.instance)
		k.set(headerIncarnation, by.incarnation)
		return k
	}
	k.contentType, k.body = typeJSON, w.body(by)
	return k
}

// rawBytes reports whether the write fits the form for raw bytes, which spares a
// third of the body: one turn, and nothing that has no header.
func (w *write) rawBytes() bool {
	return !w.replaces && len(w.Turns) == 1 && len(w.Turns[0].Bytes) > 0 && w.Turns[0].Tokens == 0 &&
		(w.At == "" || w.At == AtVersion) && w.Base == nil && !w.Recreate &&
		w.Meta == nil && w.Usage == nil && w.kv == nil
}

// body writes the JSON form by hand, so that every raw value keeps its bytes.
func (w *write) body(by credentials) []byte {
	b := make([]byte, 0, 512+w.size+w.size/2)
	b = appendMember(b, '{', "op", quoted(w.Op))
	b = appendMember(b, ',', "handle", quoted(string(by.handle)))
	b = appendMember(b, ',', "instance", quoted(by.instance))
	b = appendMember(b, ',', "incarnation", quoted(by.incarnation))
	if w.At != "" {
		b = appendMember(b, ',', "at", quoted(string(w.At)))
	}
	if w.Base != nil {
		b = fmt.Appendf(b, `,"base":%d`, *w.Base)
	}
	if w.Recreate {
		b = append(b, `,"recreate":true`...)
	}
	b = append(b, `,"turns":[`...)
	for i := range w.Turns {
		if i > 0 {
			b = append(b, ',')
		}
		b = w.Turns[i].append(b)
	}
	b = append(b, ']')
	if w.Meta != nil {
		b = appendMember(b, ',', "meta", w.Meta)
	}
	if w.Usage != nil {
		b = appendMember(b, ',', "usage", w.Usage)
	}
	if w.kv != nil {
		b = appendMember(b, ',', "kv", w.kv)
	}
	return append(b, '}')
}

func appendMember(b []byte, sep byte, name string, value []byte) []byte {
	b = append(b, sep, '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return append(b, value...)
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // a string always can be
	return b
}
