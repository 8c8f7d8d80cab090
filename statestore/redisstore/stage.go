package redisstore

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"berth/statestore"
)

// Chunks are cut so that a string of Redis, with its header, just fits a class of
// its allocator; lua/log.lua cuts the same.
const (
	largeChunk = 65520
	// chunkSpare is left free of a class for the header of the string.
	chunkSpare = 8
	// wasteBytes is what a chunk may leave unused of its class for want of a
	// better cut.
	wasteBytes = 512
)

// stageBatch is how many bytes of chunks go to Redis in one round trip.
const stageBatch = 512 << 10

// unstageTimeout bounds the removal of what a refused write has staged; a sweep
// removes what that misses.
const unstageTimeout = 2 * time.Second

// staged is a write whose chunks are in the log key, but not yet in the log.
type staged struct {
	tag   [8]byte
	sizes []int
	links []byte // as lua/append.lua takes it
}

// member is how the list of staged writes names it.
func (st *staged) member(c call) string {
	b := append(c.digest[:], st.tag[:]...)
	return string(binary.BigEndian.AppendUint32(b, uint32(len(st.sizes)))) //nolint:gosec // a few thousand
}

func stagedName(tag []byte, i int) string {
	return string(binary.BigEndian.AppendUint32(append([]byte(nil), tag...), uint32(i))) //nolint:gosec // as above
}

// chunkSizes cuts n bytes into chunks.
func chunkSizes(n int) (sizes []int) {
	for n > 0 {
		size := min(n, largeChunk)
		if size < largeChunk {
			if fits := classBelow(size+chunkSpare) - chunkSpare; size-fits > wasteBytes && fits > wasteBytes && classAbove(size+chunkSpare)-size > wasteBytes {
				size = fits
			}
		}
		sizes = append(sizes, size)
		n -= size
	}
	return sizes
}

// classBelow is the largest class of the allocator that n fills: four classes
// between a power of two and the next.
func classBelow(n int) int {
	step := 1
	for n/step >= 8 {
		step *= 2
	}
	return n / step * step
}

// classAbove is the smallest class that holds n.
func classAbove(n int) int {
	below := classBelow(n)
	if below == n {
		return n
	}
	step := 1
	for n/step >= 8 {
		step *= 2
	}
	return below + step
}

// stage writes the chunks of w to the log key, under a name of their own.
func (s *Store) stage(ctx context.Context, c call, w *write) error {
	if w.staged != nil {
		s.unstage(ctx, c, w.staged)
	}
	st := &staged{sizes: chunkSizes(len(w.stream))}
	// The first bit tells staged names from those that functions give, which begin
	// with an epoch.
	binary.BigEndian.PutUint64(st.tag[:], rand.Uint64()|1<<63) //nolint:gosec // tells writes apart, guards nothing
	st.link(w)
	w.staged = st
	rest := w.stream
	take := func(i int) []byte {
		chunk := rest[:st.sizes[i]]
		rest = rest[st.sizes[i]:]
		return chunk
	}
	args := []any{st.member(c), s.opts.Staging.Milliseconds(), stagedName(st.tag[:], 0), take(0)}
	err := s.settle(ctx, func() error {
		_, err := s.fcall(ctx, s.client, stageFn, []string{c.keys[keyStaged], c.keys[keyLog]}, args)
		return err
	})
	for i := 1; i < len(st.sizes) && err == nil; {
		fields := []any(nil)
		for size := 0; i < len(st.sizes) && size < stageBatch; i++ {
			chunk := take(i)
			fields = append(fields, stagedName(st.tag[:], i), chunk)
			size += len(chunk)
		}
		err = s.putChunks(ctx, c.keys[keyLog], fields)
	}
	if err != nil {
		s.unstage(ctx, c, st)
	}
	return err
}

// putChunks writes chunks, one command each: Redis serves others between two.
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

// link describes the chunks: each one's size, and the first turn that begins in
// it or after.
func (st *staged) link(w *write) {
	from, i := uint64(0), 0
	for _, size := range st.sizes {
		for i < len(w.marks) && w.marks[i].at < from {
			i++
		}
		next := mark{turn: w.turns, at: uint64(len(w.stream)), bytes: w.bytes, tokens: w.tokens}
		if i < len(w.marks) {
			next = w.marks[i]
		}
		st.links = appendUint(st.links, uint64(size), 4) //nolint:gosec // a chunk
		st.links = appendUint(st.links, next.turn, 4)
		st.links = appendUint(st.links, next.at-from, 4)
		st.links = appendUint(st.links, next.bytes, 4)
		st.links = appendUint(st.links, next.tokens, 8)
		from += uint64(size) //nolint:gosec // as above
	}
}

// unstage removes what no log links, if the store answers soon.
func (s *Store) unstage(ctx context.Context, c call, st *staged) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unstageTimeout)
	defer cancel()
	_, _ = s.dropStaged(ctx, c.keys, st.member(c)) // else a sweep does
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
