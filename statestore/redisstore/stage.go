package redisstore

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"berth/statestore"
)

// Chunks are cut so that a string of Redis, with its header, just fits a class of
// its allocator. What is left of a write is too small for that: it joins the pieces
// of the open tail, which Redis packs.
const (
	largeChunk = 65520
	smallChunk = 4088
	// chunkSpare is left free of a class for the header of the string.
	chunkSpare = 8
	// A chunk may leave one part in wastedPart of its class unused.
	wastedPart = 50
)

// stageBatch is how many bytes of chunks go to Redis in one round trip.
const stageBatch = 512 << 10

// unstageTimeout bounds the removal of what a write has staged that was not
// answered; a sweep removes what that misses.
const unstageTimeout = 2 * time.Second

// chunkSizes cuts the first of n bytes into chunks; the rest becomes pieces.
func chunkSizes(n int) (sizes []int) {
	for n >= smallChunk {
		size := min(n, largeChunk)
		below, above := classes(size + chunkSpare)
		if above-(size+chunkSpare) > above/wastedPart {
			size = below - chunkSpare
		}
		sizes = append(sizes, size)
		n -= size
	}
	return sizes
}

// classes are the largest class of the allocator that n bytes fill and the smallest
// that holds them: there are four between a power of two and the next.
func classes(n int) (below, above int) {
	step := 1
	for n/step >= 8 {
		step *= 2
	}
	below = n / step * step
	if below == n {
		return n, n
	}
	return below, below + step
}

// layout is how a write lies in Redis: its first bytes in chunks, under names of
// its own, and the rest in pieces.
type layout struct {
	tag    [8]byte
	sizes  []int // of the chunks
	links  []byte
	staged bool // the chunks are in the log key already, and announced
}

// newLayout cuts the stream of w.
func newLayout(w *write) *layout {
	l := &layout{sizes: chunkSizes(len(w.stream))}
	l.rename()
	from, i := uint64(0), 0
	for _, size := range l.sizes {
		for i < len(w.marks) && w.marks[i].at < from {
			i++
		}
		next := mark{turn: w.turns, at: uint64(len(w.stream)), bytes: w.bytes, tokens: w.tokens}
		if i < len(w.marks) {
			next = w.marks[i]
		}
		l.links = appendUint(l.links, uint64(size), 4) //nolint:gosec // a chunk
		l.links = appendUint(l.links, next.turn, 4)
		l.links = appendUint(l.links, next.at-from, 4)
		l.links = appendUint(l.links, next.bytes, 4)
		l.links = appendUint(l.links, next.tokens, 8)
		from += uint64(size) //nolint:gosec // as above
	}
	return l
}

// rename gives the chunks names that were never given. It tells writes apart and
// guards nothing.
func (l *layout) rename() {
	binary.BigEndian.PutUint64(l.tag[:], rand.Uint64()) //nolint:gosec // see above
	l.staged = false
}

func chunkName(tag []byte, i int) string {
	return string(binary.BigEndian.AppendUint32(append([]byte(nil), tag...), uint32(i))) //nolint:gosec // a few thousand
}

// chunked is how many bytes lie in chunks.
func (l *layout) chunked() (n int) {
	for _, size := range l.sizes {
		n += size
	}
	return n
}

// fields are the names and values of the chunks in turn.
func (l *layout) fields(stream []byte) []any {
	fields := make([]any, 0, 2*len(l.sizes))
	for i, size := range l.sizes {
		fields = append(fields, chunkName(l.tag[:], i), stream[:size])
		stream = stream[size:]
	}
	return fields
}

// member is how the list of staged writes names the write.
func (l *layout) member(c call) string {
	b := slices.Concat(c.digest[:], l.tag[:])
	return string(binary.BigEndian.AppendUint32(b, uint32(len(l.sizes)))) //nolint:gosec // a few thousand
}

// stage writes the chunks of w to the log key, announced and in several round
// trips, so that Redis serves others between them.
func (s *Store) stage(ctx context.Context, c call, w *write) error {
	l := w.layout
	if l.staged {
		s.unstage(ctx, c, l)
		l.rename()
	}
	l.staged = true
	fields := l.fields(w.stream)
	args := []any{l.member(c), s.opts.Staging.Milliseconds(), fields[0], fields[1]}
	err := s.settle(ctx, func() error {
		_, err := s.fcall(ctx, s.client, stageFn, []string{c.keys[keyStaged], c.keys[keyLog]}, args)
		return err
	})
	for from := 2; from < len(fields) && err == nil; {
		to, size := from, 0
		for ; to < len(fields) && size < stageBatch; to += 2 {
			size += l.sizes[to/2]
		}
		err = s.putChunks(ctx, c.keys[keyLog], fields[from:to])
		from = to
	}
	if err != nil {
		s.unstage(ctx, c, l)
	}
	return err
}

// putChunks writes chunks, one command each.
func (s *Store) putChunks(ctx context.Context, key string, fields []any) error {
	return s.settle(ctx, func() error {
		pipe := s.client.Pipeline()
		for i := 0; i < len(fields); i += 2 {
			pipe.HSet(ctx, key, fields[i], fields[i+1])
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}

// unstage removes what no log links, if the store answers soon.
func (s *Store) unstage(ctx context.Context, c call, l *layout) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unstageTimeout)
	defer cancel()
	_, _ = s.dropStaged(ctx, c.keys, l.member(c)) // else a sweep does
}

// dropStaged removes a staged write, unless a log links it, and reports whether
// it did.
func (s *Store) dropStaged(ctx context.Context, keys []string, member string) (dropped bool, err error) {
	err = s.ask(ctx, func() error {
		reply, err := s.fcall(ctx, s.client, unstageFn, []string{keys[keyStaged], keys[keyLog]}, []any{member})
		dropped = dropped || reply == int64(1)
		return err
	})
	return dropped, err
}

// stagedDigest is the session that a staged write is for.
func stagedDigest(member string) (d statestore.SessionDigest, ok bool) {
	if len(member) != len(d)+8+4 {
		return d, false
	}
	copy(d[:], member)
	return d, true
}
