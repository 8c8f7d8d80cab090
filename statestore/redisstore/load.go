package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/redis/go-redis/v9"

	"berth/statestore"
)

// What is read with the record: entries of the directory, enough for 16 MB in large
// writes, and pieces of the open tail, enough for a short session as a whole. More
// is read where there is more.
const (
	firstParts  = 256
	firstPieces = 256
)

// part is an entry of the directory: where in the stream a part begins, its chunk
// and its pieces, and the first turn that begins there or later.
type part struct {
	chunk  string // its name, "" for none
	ending string // of the write, after its last chunk; "" when that lies in pieces
	size   uint64 // of chunk and ending
	from   uint64 // byte of the stream
	pieces int    // place of its first piece in the open tail
	next   mark
}

// contents are a session as it was at one moment.
type contents struct {
	statestore.View
	extent
	parts      []part
	tail       []string // the first pieces
	meta       []byte
	placements map[string]string
	parked     map[string]string
}

// fetch reads the contents of a session.
func (s *Store) fetch(ctx context.Context, c call) (got contents, err error) {
	parts := firstParts
	for range maxRounds {
		whole := false
		err := s.ask(ctx, func() (err error) {
			got, whole, err = s.fetchOnce(ctx, c, parts)
			return err
		})
		switch {
		case err != nil:
			return contents{}, fmt.Errorf("read session: %w", err)
		case got.entries > parts:
			parts = got.entries
		case whole:
			return got, got.check()
		}
	}
	return contents{}, fmt.Errorf("the session changed %d times while it was read: %w", maxRounds, statestore.ErrUnavailable)
}

// fetchOnce reads all in one round trip, and the numbers of the record again at its
// end: every change of what was read between changes them. A transaction would
// do the same, but Redis refuses one while its memory is full.
func (s *Store) fetchOnce(ctx context.Context, c call, parts int) (got contents, whole bool, err error) {
	pipe := s.client.Pipeline()
	first := s.newCommand(ctx, lookupFn, []string{c.keys[keyRecord], c.keys[keyTombstone]}, nil)
	_ = pipe.Process(ctx, first)
	tail := pipe.LRange(ctx, c.keys[keyOpen], 0, firstPieces-1)
	directory := pipe.LRange(ctx, c.keys[keyDirectory], 0, int64(parts-1))
	meta := pipe.HMGet(ctx, c.keys[keyLog], "m")
	placed := pipe.HGetAll(ctx, c.keys[keyPlaced])
	parked := pipe.HGetAll(ctx, c.keys[keyParked])
	last := pipe.GetRange(ctx, c.keys[keyRecord], 0, numbersSize-1)
	_, err = pipe.Exec(ctx)
	if notLoaded(first.Err()) {
		if err := s.loadLibrary(ctx); err != nil {
			return got, false, err
		}
		return s.fetchOnce(ctx, c, parts)
	}
	if err != nil {
		return got, false, err
	}
	if got.View, got.extent, err = viewOf(first.Val()); err != nil || !got.Exists {
		return got, true, err
	}
	a, _ := answerOf(first.Val())
	whole = len(last.Val()) == numbersSize && strings.HasPrefix(a.text(1), last.Val())
	got.tail, got.placements, got.parked = tail.Val(), placed.Val(), parked.Val()
	if text, ok := meta.Val()[0].(string); ok {
		got.meta = []byte(text)
	}
	return got, whole, got.readDirectory(directory.Val())
}

// noChunk is the name in an entry without a chunk.
const noChunk = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// readDirectory reads the entries of the directory.
func (got *contents) readDirectory(entries []string) error {
	for _, e := range entries {
		f := &fields{s: e}
		p := part{chunk: f.take(len(noChunk)), from: f.uint(6), size: f.uint(4), pieces: f.int(4)}
		p.next = mark{turn: f.uint(6), at: f.uint(4) + p.from, bytes: f.uint(6), tokens: f.uint(8)}
		p.ending = f.take(len(f.s))
		if err := f.end("directory"); err != nil {
			return err
		}
		if p.chunk == noChunk {
			p.chunk = ""
		}
		got.parts = append(got.parts, p)
	}
	return nil
}

// check holds the directory against the record: it must describe the whole log.
// What was written before its first entry is a part as well.
func (got *contents) check() error {
	if !got.Exists {
		return nil
	}
	if len(got.parts) != got.entries {
		return fmt.Errorf("directory has %d entries, its record says %d: %w", len(got.parts), got.entries, ErrDamaged)
	}
	if len(got.parts) == 0 || got.parts[0].from > 0 {
		got.parts = slices.Insert(got.parts, 0, part{})
	}
	last := part{}
	for _, p := range append(got.parts[:len(got.parts):len(got.parts)], part{from: got.stream, pieces: got.pieces}) {
		if p.from < last.from+last.size || p.pieces < last.pieces || p.next.turn < last.next.turn && p.from < got.stream {
			return fmt.Errorf("directory goes back at byte %d: %w", p.from, ErrDamaged)
		}
		last = p
	}
	return nil
}

// end is where the i-th part ends: the byte of the stream and the piece that belong
// to the next.
func (got *contents) end(i int) (at uint64, piece int) {
	if i+1 < len(got.parts) {
		return got.parts[i+1].from, got.parts[i+1].pieces
	}
	return got.stream, got.pieces
}

// before is the last part that begins no later than the k-th turn: the turn begins
// in it.
func (got *contents) before(k uint64) int {
	return max(0, sort.Search(len(got.parts), func(i int) bool { return got.parts[i].next.turn > k })-1)
}

// Load reads a record with what belongs to it, and its turns lazily.
func (s *Store) Load(ctx context.Context, key statestore.SessionKey, from uint64) (statestore.Reading, error) {
	if err := key.Validate(); err != nil {
		return statestore.Reading{}, err
	}
	c := s.newCall(key)
	got, err := s.fetch(ctx, c)
	if err != nil {
		return statestore.Reading{}, err
	}
	reading := statestore.Reading{View: got.View, Turns: func(func(statestore.NumberedTurn, error) bool) {}}
	if over(got.View) {
		if reading.View, _, err = s.expire(ctx, c); err != nil {
			return statestore.Reading{}, err
		}
		if reading.Exists {
			return s.Load(ctx, key, from)
		}
	}
	if !reading.Exists {
		return reading, nil
	}
	reading.Meta = got.meta
	if reading.Placements, err = decodePlacements(got.placements, got.Now); err != nil {
		return statestore.Reading{}, err
	}
	if reading.Parked, err = s.readParked(ctx, c, got.parked, got.Now); err != nil {
		return statestore.Reading{}, err
	}
	reading.Turns = (&load{store: s, call: c, contents: got}).turns(ctx, from)
	return reading, nil
}

// readChunks reads chunks by name. One that is gone is ErrChanged: names are
// never given twice.
func (s *Store) readChunks(ctx context.Context, c call, names []string) ([]string, error) {
	var values []any
	err := s.ask(ctx, func() (err error) {
		values, err = s.client.HMGet(ctx, c.keys[keyLog], names...).Result()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read chunks: %w", err)
	}
	return texts(values)
}

func texts(values []any) ([]string, error) {
	out := make([]string, len(values))
	for i, v := range values {
		text, ok := v.(string)
		if !ok {
			return nil, statestore.ErrChanged
		}
		out[i] = text
	}
	return out, nil
}

// span is some parts in a row, as one read asks for them.
type span struct {
	first, past int // parts
	names       []string
	from, to    int // pieces
}

// span begins at a part and ends with a page's worth of bytes, or with the parts.
func (got *contents) span(first int) span {
	sp := span{first: first, past: first, from: got.parts[first].pieces}
	for size := uint64(0); sp.past < len(got.parts) && size < pageBytes; sp.past++ {
		p := got.parts[sp.past]
		if p.chunk != "" {
			sp.names = append(sp.names, p.chunk)
		}
		var end uint64
		end, sp.to = got.end(sp.past)
		size += end - p.from
	}
	return sp
}

// readSpan reads chunks and pieces, and then whether the session is still the one
// that was read first: what was read before that answer belongs to it.
func (s *Store) readSpan(ctx context.Context, c call, got *contents, sp span) (chunks, pieces []string, err error) {
	if len(sp.names) == 0 && sp.to <= len(got.tail) {
		return nil, got.tail[sp.from:sp.to], nil
	}
	var values []any
	var head string
	err = s.ask(ctx, func() error {
		pipe := s.client.Pipeline()
		// With a name that is always there to ask for, the reply is always a list.
		wanted := pipe.HMGet(ctx, c.keys[keyLog], append(sp.names, "m")...)
		var tail *redis.StringSliceCmd
		if sp.to > sp.from {
			tail = pipe.LRange(ctx, c.keys[keyOpen], int64(sp.from), int64(sp.to-1))
		}
		record := pipe.GetRange(ctx, c.keys[keyRecord], 0, headSize-1)
		_, err := pipe.Exec(ctx)
		values, head = wanted.Val(), record.Val()
		if tail != nil {
			pieces = tail.Val()
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read page: %w", err)
	}
	if f := (&fields{s: head}); len(head) != headSize || f.uint(1) != format || f.uint(6) != got.born || f.uint(6) != got.Rewritten {
		return nil, nil, statestore.ErrChanged
	}
	if chunks, err = texts(values[:len(sp.names)]); err == nil && len(pieces) != sp.to-sp.from {
		err = fmt.Errorf("open tail has %d of the pieces %d to %d: %w", len(pieces), sp.from, sp.to, ErrDamaged)
	}
	return chunks, pieces, err
}

// headSize is what stands first in a record: its format, the epoch that began
// this life, and the version of the last write that shortened or replaced.
const headSize = 1 + 6 + 6
