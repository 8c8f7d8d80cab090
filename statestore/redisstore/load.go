package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"berth/statestore"
)

// firstPages is how many pages of the directory are read with the record: enough
// for 16 MB of context. More are read when there are more.
const firstPages = 4

// directoryPage is how many chunks a page of the directory lists.
const directoryPage = 64

// chunk is an entry of the directory: where in the stream a chunk lies, and the
// first turn that begins in it or after.
type chunk struct {
	name string
	from uint64
	size uint64
	next mark // its position is of the stream
}

// contents are a session as one transaction saw it, but for its sealed chunks.
type contents struct {
	statestore.View
	extent
	chunks     []chunk
	tail       string
	meta       []byte
	placements map[string]string
	parked     map[string]string
}

// fetch reads the contents of a session.
func (s *Store) fetch(ctx context.Context, c call) (got contents, err error) {
	for pages := firstPages; ; {
		err := s.ask(ctx, func() (err error) {
			got, err = s.fetchOnce(ctx, c, pages)
			return err
		})
		if err != nil {
			return contents{}, fmt.Errorf("read session: %w", err)
		}
		need := (got.extent.chunks + directoryPage - 1) / directoryPage
		if need <= pages {
			return got, nil
		}
		pages = need
	}
}

func (s *Store) fetchOnce(ctx context.Context, c call, pages int) (got contents, err error) {
	fields := []string{"m"}
	for i := range pages {
		fields = append(fields, fmt.Sprintf("d%d", i))
	}
	tx := s.client.TxPipeline()
	view := s.newCommand(ctx, lookupFn, []string{c.keys[keyRecord], c.keys[keyTombstone]}, nil)
	_ = tx.Process(ctx, view)
	tail := tx.LRange(ctx, c.keys[keyOpen], 0, -1)
	log := tx.HMGet(ctx, c.keys[keyLog], fields...)
	placed := tx.HGetAll(ctx, c.keys[keyPlaced])
	parked := tx.HGetAll(ctx, c.keys[keyParked])
	_, err = tx.Exec(ctx)
	if notLoaded(view.Err()) {
		if err := s.loadLibrary(ctx); err != nil {
			return got, err
		}
		return s.fetchOnce(ctx, c, pages)
	}
	if err != nil {
		return got, err
	}
	if got.View, got.extent, err = viewOf(view.Val()); err != nil {
		return got, err
	}
	got.tail, got.placements, got.parked = strings.Join(tail.Val(), ""), placed.Val(), parked.Val()
	return got, got.readLog(log.Val())
}

// readLog reads meta and the pages of the directory.
func (got *contents) readLog(values []any) error {
	if meta, ok := values[0].(string); ok {
		got.meta = []byte(meta)
	}
	for _, v := range values[1:] {
		page, _ := v.(string)
		for f := (&fields{s: page}); len(f.s) > 0; {
			c := chunk{name: f.take(12), from: f.uint(6), size: f.uint(4)}
			c.next = mark{turn: f.uint(6), at: f.uint(4) + c.from, bytes: f.uint(6), tokens: f.uint(8)}
			if f.bad {
				return fmt.Errorf("directory of chunks: %w", ErrDamaged)
			}
			got.chunks = append(got.chunks, c)
		}
	}
	return nil
}

// whole reports whether the directory describes the whole log.
func (got *contents) whole() error {
	at := uint64(0)
	for _, c := range got.chunks {
		if c.from != at {
			return fmt.Errorf("directory of chunks has a hole at byte %d: %w", at, ErrDamaged)
		}
		at += c.size
	}
	if len(got.chunks) != got.extent.chunks || at != got.sealed || uint64(len(got.tail)) != got.open {
		return fmt.Errorf("log has %d chunks, %d bytes and a tail of %d, its record says %d, %d and %d: %w",
			len(got.chunks), at, len(got.tail), got.extent.chunks, got.sealed, got.open, ErrDamaged)
	}
	return nil
}

// before finds the last place that the directory knows at which a turn no later
// than the k-th begins, and the chunk that it lies in; a chunk past the last is
// the tail.
func (got *contents) before(k uint64) (mark, int) {
	if tail := got.extent.next; got.open > 0 && tail.turn <= k {
		tail.at += got.sealed
		return tail, len(got.chunks)
	}
	i := sort.Search(len(got.chunks), func(i int) bool { return got.chunks[i].next.turn > k }) - 1
	if i < 0 {
		return mark{}, 0
	}
	return got.chunks[i].next, i
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
	if err := got.whole(); err != nil {
		return statestore.Reading{}, err
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

// readPage reads chunks, and then whether the session is still the one that the
// load began with: what was read before that answer belongs to it.
func (s *Store) readPage(ctx context.Context, c call, names []string, x extent, rewritten uint64) ([]string, error) {
	var values []any
	var head string
	err := s.ask(ctx, func() error {
		pipe := s.client.Pipeline()
		chunks := pipe.HMGet(ctx, c.keys[keyLog], names...)
		record := pipe.GetRange(ctx, c.keys[keyRecord], 0, headSize-1)
		_, err := pipe.Exec(ctx)
		values, head = chunks.Val(), record.Val()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read page: %w", err)
	}
	if f := (&fields{s: head}); len(head) != headSize || f.uint(1) != format || f.uint(6) != x.born || f.uint(6) != rewritten {
		return nil, statestore.ErrChanged
	}
	return texts(values)
}

// headSize is what stands first in a record: its format, the epoch that began
// this life, and the version of the last write that shortened or replaced.
const headSize = 1 + 6 + 6

// locate finds where the k-th turn begins, for a write that keeps the turns
// before it. It reads at most one chunk.
func (s *Store) locate(ctx context.Context, c call, k uint64) ([]byte, error) {
	got, err := s.fetch(ctx, c)
	if err != nil {
		return nil, err
	}
	if !got.Exists || k > got.Turns {
		return nil, nil // the function will say why
	}
	if err := got.whole(); err != nil {
		return nil, err
	}
	at, i := got.before(k)
	if at.turn < k {
		text, from := got.tail, got.sealed
		if i < len(got.chunks) {
			page, err := s.readPage(ctx, c, []string{got.chunks[i].name}, got.extent, got.Rewritten)
			if errors.Is(err, statestore.ErrChanged) {
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
			text, from = page[0], got.chunks[i].from
		}
		if at, err = skip(text, from, at, k); err != nil {
			return nil, err
		}
	}
	b := appendUint(nil, got.born, 6)
	b = appendUint(b, got.Rewritten, 6)
	b = appendUint(b, at.at, 6)
	b = appendUint(b, at.bytes, 6)
	return appendUint(b, at.tokens, 8), nil
}
