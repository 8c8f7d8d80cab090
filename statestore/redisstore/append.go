package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"berth/statestore"
	"berth/statestore/internal/frame"
)

// What a write has in chunks travels in its call up to inlineBytes; more is staged
// before, which does not pass through Lua. A write above probeBytes is not even
// staged before it is judged.
const (
	inlineBytes = 16 << 10
	probeBytes  = 256 << 10
)

// pieceBytes is how the open tail is cut: pieces fill the nodes of a Redis list
// to within one of them. lua/log.lua cuts the same.
const pieceBytes = 500

// Append judges an append and stores its turns.
func (s *Store) Append(ctx context.Context, a statestore.Append) (statestore.Receipt, error) {
	w, err := newWrite(statestore.KindAppend, a.Key, a.By, a.Op, a.Turns, a.Meta)
	if err != nil {
		return statestore.Receipt{}, err
	}
	w.handle, w.at, w.base, w.recreate, w.lives = a.Handle, a.At, a.Base, a.Recreate, a.Lifetimes
	w.content = statestore.DigestContent(w.kind, a.Base, a.Turns)
	return s.writeContext(ctx, w, a.Require)
}

// Replace judges a replacement of the whole context and stores it.
func (s *Store) Replace(ctx context.Context, r statestore.Replace) (statestore.Receipt, error) {
	w, err := newWrite(statestore.KindReplace, r.Key, r.By, r.Op, r.Turns, r.Meta)
	if err != nil {
		return statestore.Receipt{}, err
	}
	w.handle, w.recreate, w.lives = r.Handle, r.Recreate, r.Lifetimes
	w.content = statestore.DigestContent(w.kind, nil, r.Turns)
	return s.writeContext(ctx, w, r.Require)
}

// write is an append or a replace, framed.
type write struct {
	kind     statestore.WriteKind
	key      statestore.SessionKey
	digest   statestore.SessionDigest // of key
	by       statestore.Owner
	op       string
	opDigest statestore.OpDigest
	content  statestore.ContentDigest
	handle   statestore.Presented
	at       statestore.At
	base     *uint64
	recreate bool
	lives    statestore.Lifetimes
	meta     []byte

	turns, tokens, bytes uint64
	stream               []byte // frame after frame
	marks                []mark // where each turn's frame begins, all relative to this write
	*layout
}

func newWrite(kind statestore.WriteKind, key statestore.SessionKey, by statestore.Owner, op string, turns []statestore.Turn, meta []byte) (*write, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	if err := checkOwner(by); err != nil {
		return nil, err
	}
	if err := statestore.ValidateOp(op); err != nil {
		return nil, err
	}
	if n := len(meta); n > statestore.MaxMetaBytes {
		return nil, &statestore.TooLargeError{What: "meta", Limit: statestore.MaxMetaBytes, Size: uint64(n)}
	}
	// A call that was given up may still be on its way when its caller goes on: what
	// it sends must be its own.
	w := &write{kind: kind, key: key, by: by, op: op, opDigest: statestore.DigestOp(op), meta: bytes.Clone(meta), turns: uint64(len(turns))}
	for _, t := range turns {
		size := uint64(len(t.Value))
		switch {
		case t.Type != statestore.TurnJSON && t.Type != statestore.TurnBytes:
			return nil, fmt.Errorf("turn of type %d: %w", t.Type, statestore.ErrInvalid)
		case size > statestore.MaxTurnBytes:
			return nil, &statestore.TooLargeError{What: "turn", Limit: statestore.MaxTurnBytes, Size: size}
		}
		w.tokens += t.Tokens
		w.bytes += size
	}
	if w.bytes <= statestore.MaxSessionBytes {
		w.frame(turns)
	}
	return w, nil
}

// frame lays the turns out in the stream. A write over the limit is not: it is
// judged too large, unless an earlier rule speaks.
func (w *write) frame(turns []statestore.Turn) {
	at := mark{}
	for _, t := range turns {
		w.marks = append(w.marks, at)
		w.stream = frame.Append(w.stream, t)
		at = mark{turn: at.turn + 1, at: uint64(len(w.stream)), bytes: at.bytes + uint64(len(t.Value)), tokens: at.tokens + t.Tokens}
	}
}

func checkOwner(o statestore.Owner) error {
	if o.Instance == "" || o.Incarnation == "" {
		return fmt.Errorf("an owner must name its instance and incarnation: %w", statestore.ErrInvalid)
	}
	return nil
}

// writeContext sends the write until it is judged.
func (s *Store) writeContext(ctx context.Context, w *write, need statestore.Requirement) (statestore.Receipt, error) {
	w.layout = newLayout(w)
	c := s.newCall(w.key)
	w.digest = c.digest
	a, d, err := s.judge(ctx, c, w, need)
	if err != nil {
		return statestore.Receipt{}, fmt.Errorf("write to session: %w", err)
	}
	if a.text(0) == "too_large" {
		return statestore.Receipt{}, &statestore.TooLargeError{What: "session", Limit: a.uint(1), Size: a.uint(2)}
	}
	if err := a.refusal(); err != nil {
		return statestore.Receipt{}, err
	}
	receipt, err := a.receipt(d)
	if err != nil {
		return statestore.Receipt{}, err
	}
	s.lanes.images.passed(w.digest, receipt.Version)
	return receipt, met(need, receipt)
}

// maxRounds bounds how often a write looks again for its base, or is staged
// again, because others rewrote the session meanwhile.
const maxRounds = 10

// judge sends the write, after what its function found missing.
func (s *Store) judge(ctx context.Context, c call, w *write, need statestore.Requirement) (a answer, d statestore.Durability, err error) {
	var where []byte
	long, probe := w.chunked() > inlineBytes, w.chunked() > probeBytes
	if long && !probe {
		if err := s.stage(ctx, c, w); err != nil {
			return nil, d, err
		}
	}
	for range maxRounds {
		if a, d, err = s.sendWrite(ctx, c, w, where, probe, need); err != nil {
			return nil, d, err
		}
		switch state := a.text(0); {
		case state == "locate":
			where, err = s.locate(ctx, c, *w.base)
		case probe && (state == "full" || state == "not_owner" && w.kind == statestore.KindAppend && !a.flag(4)):
			probe = false
			err = s.stage(ctx, c, w)
		case state == "restage":
			err = s.stage(ctx, c, w)
		case state == movedOn: // and is judged in Redis now
		default:
			return a, d, nil
		}
		if err != nil {
			return nil, d, err
		}
	}
	return nil, d, fmt.Errorf("the session was rewritten %d times meanwhile: %w", maxRounds, statestore.ErrUnavailable)
}

// sendWrite calls the function. A write that is refused for lack of memory is
// judged all the same: it may have been stored before, or be refused for another
// reason.
func (s *Store) sendWrite(ctx context.Context, c call, w *write, where []byte, probe bool, need statestore.Requirement) (answer, statestore.Durability, error) {
	if !probe {
		a, d, err := s.change(ctx, need, appendFn, c.keys, c.args(w.args(where)...))
		if !errors.Is(err, statestore.ErrFull) {
			return a, d, err
		}
	}
	return s.change(ctx, need, judgeFn, c.keys, c.args(w.pack(true), packHandle(&w.handle), "", "", where))
}

// args is the write as lua/append.lua takes it.
func (w *write) args(where []byte) []any {
	rest := w.stream[w.chunked():]
	args := make([]any, 0, 6+len(w.sizes)+len(rest)/pieceBytes)
	args = append(args, writeArg{w, w.pack(false)}, packHandle(&w.handle), w.meta, w.links, where)
	if !w.staged {
		chunks := w.stream
		for _, size := range w.sizes {
			args = append(args, chunks[:size])
			chunks = chunks[size:]
		}
	}
	for len(rest) > 0 {
		n := min(pieceBytes, len(rest))
		args = append(args, rest[:n])
		rest = rest[n:]
	}
	return args
}

// writeArg is the packed write as an argument that knows what it packs.
type writeArg struct {
	*write
	packed []byte
}

// MarshalBinary is asked by go-redis.
func (a writeArg) MarshalBinary() ([]byte, error) { return a.packed, nil }

// Where the chunks of a write are when its function looks, and where the packed
// write says so.
const (
	chunksInCall = iota
	chunksStaged // announced, some time before
	chunksSent   // in the same transaction, just before
	whereChunks  = 4
)

// firstChunk is where the chunks, and then the pieces, begin in the arguments of
// lua/append.lua, the clock being 0.
const firstChunk = 7

func (w *write) pack(probe bool) []byte {
	b := make([]byte, 0, 256)
	b = append(b, byte(w.kind), byte(w.at), bit(w.recreate), bit(probe), bit(w.staged)*chunksStaged)
	b = appendUint(b, w.turns, 4)
	b = appendUint(b, w.bytes, 6)
	b = appendUint(b, w.tokens, 8)
	b = appendUint(b, uint64(len(w.stream)-w.chunked()), 4)
	b = appendUint(b, statestore.MaxSessionBytes, 6)
	b = appendUint(b, millis(w.lives.Affinity), 6)
	b = appendUint(b, millis(w.lives.Retention), 6)
	b = appendUint(b, millis(w.lives.Tombstone), 6)
	b = append(b, w.opDigest[:]...)
	b = append(b, w.content[:]...)
	base := uint64(0)
	if w.base != nil {
		base = *w.base + 1
	}
	b = appendUint(b, base, 6)
	b = append(b, w.handle.AffinityKey[:]...)
	b = append(b, w.tag[:]...)
	b = appendText(b, packOwner(w.by))
	b = appendText(b, w.op)
	return appendNames(b, w.key)
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}
