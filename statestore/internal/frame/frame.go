package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/zstd"

	"berth/statestore"
)

var (
	// ErrShort: the bytes end before the frame does.
	ErrShort = errors.New("the frame is cut off")
	// ErrCorrupt: the bytes are no frame, whatever followed them.
	ErrCorrupt = errors.New("the frame is corrupt")
)

const (
	typeMask = 0x7f
	zstdBit  = 0x80
	crcSize  = 4

	// Below compressFrom bytes zstd's own header eats what it saves; a saving
	// of less than 1/minSaving is not worth the time of every reader.
	compressFrom = 128
	minSaving    = 16

	// Of a value of sampleFrom bytes or more, sampleParts parts of sampleBytes are
	// tried before the whole is: images, audio and ciphertext, in base64 too, do not
	// shrink, and finding that out from all of their bytes would be most of what an
	// append costs this process.
	sampleFrom  = 2048
	sampleParts = 3
	sampleBytes = 256
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Info is what the head of a frame says. Sizes in bytes.
type Info struct {
	Tokens uint64
	Bytes  uint64 // of the value
	Size   uint64 // of the whole frame
}

// Append appends the frame of t to dst. The value must not pass
// [statestore.MaxTurnBytes] and the type must be a known one, or nobody will
// read the frame. It is safe for concurrent use.
func Append(dst []byte, t statestore.Turn) []byte {
	payload, flags := t.Value, byte(t.Type)
	scratch := scratches.Get().(*[]byte) //nolint:errcheck,forcetypeassert // only this package fills the pool
	defer scratches.Put(scratch)
	if len(t.Value) > compressFrom && promising(t.Value, scratch) {
		*scratch = encoder().EncodeAll(t.Value, (*scratch)[:0])
		if len(*scratch) <= len(t.Value)-len(t.Value)/minSaving {
			payload, flags = *scratch, flags|zstdBit
		}
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, t.Tokens)
	dst = binary.AppendUvarint(dst, uint64(len(t.Value)))
	dst = binary.AppendUvarint(dst, uint64(len(payload)))
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(t.Value, castagnoli))
	dst = append(dst, payload...)
	// One huge turn must not hold its memory for ever.
	if cap(*scratch) > maxScratch {
		*scratch = nil
	}
	return dst
}

// promising reports whether a value may shrink. A sample has less in common with
// itself than the whole has, so it only has to shrink at all.
func promising(value []byte, scratch *[]byte) bool {
	if len(value) < sampleFrom {
		return true
	}
	var sample [sampleParts * sampleBytes]byte
	for i := range sampleParts {
		at := i * (len(value) - sampleBytes) / (sampleParts - 1)
		copy(sample[i*sampleBytes:], value[at:at+sampleBytes])
	}
	*scratch = encoder().EncodeAll(sample[:], (*scratch)[:0])
	return len(*scratch) < len(sample)
}

// Next reads the frame at the start of src and says how many bytes it has. The
// turn's value shares no memory with src. It fails with [ErrShort] or
// [ErrCorrupt], and allocates no more than [statestore.MaxTurnBytes].
func Next(src []byte) (t statestore.Turn, n int, err error) {
	h, err := parse(src)
	if err != nil {
		return statestore.Turn{}, 0, err
	}
	if uint64(len(src)-h.size) < h.stored { //nolint:gosec // parse read h.size bytes of src
		return statestore.Turn{}, 0, ErrShort
	}
	n = h.size + int(h.stored) //nolint:gosec // bounded by len(src)
	value, err := h.value(src[h.size:n])
	if err != nil {
		return statestore.Turn{}, 0, err
	}
	return statestore.Turn{Type: h.kind, Value: value, Tokens: h.tokens}, n, nil
}

// Measure reads the head of the frame at the start of src; the payload need not
// be there. It fails with [ErrShort] or [ErrCorrupt].
func Measure(src []byte) (Info, error) {
	h, err := parse(src)
	if err != nil {
		return Info{}, err
	}
	return Info{Tokens: h.tokens, Bytes: h.raw, Size: uint64(h.size) + h.stored}, nil //nolint:gosec // small and positive
}

// head is what stands before a payload.
type head struct {
	kind                statestore.TurnType
	zstd                bool
	tokens, raw, stored uint64
	crc                 uint32
	size                int // of the head itself
}

func parse(src []byte) (head, error) {
	if len(src) == 0 {
		return head{}, ErrShort
	}
	h := head{kind: statestore.TurnType(src[0] & typeMask), zstd: src[0]&zstdBit != 0, size: 1}
	if h.kind != statestore.TurnJSON && h.kind != statestore.TurnBytes {
		return head{}, fmt.Errorf("type %d: %w", h.kind, ErrCorrupt)
	}
	for _, field := range [...]*uint64{&h.tokens, &h.raw, &h.stored} {
		v, n := binary.Uvarint(src[h.size:])
		switch {
		case n == 0:
			return head{}, ErrShort
		case n < 0:
			return head{}, fmt.Errorf("number over 64 bits: %w", ErrCorrupt)
		}
		*field, h.size = v, h.size+n
	}
	if err := h.check(); err != nil {
		return head{}, err
	}
	if len(src)-h.size < crcSize {
		return head{}, ErrShort
	}
	h.crc = binary.LittleEndian.Uint32(src[h.size:])
	h.size += crcSize
	return h, nil
}

// check refuses lengths that [Append] never writes, before anybody allocates by them.
func (h *head) check() error {
	switch {
	case h.raw > statestore.MaxTurnBytes:
		return fmt.Errorf("value of %d bytes: %w", h.raw, ErrCorrupt)
	case h.zstd && h.stored >= h.raw, !h.zstd && h.stored != h.raw:
		return fmt.Errorf("payload of %d bytes for a value of %d: %w", h.stored, h.raw, ErrCorrupt)
	}
	return nil
}

// value restores and verifies the value from its payload.
func (h *head) value(payload []byte) ([]byte, error) {
	v := make([]byte, 0, h.raw)
	if h.zstd {
		var err error
		if v, err = decoder().DecodeAll(payload, v); err != nil {
			return nil, fmt.Errorf("decompress: %w: %w", err, ErrCorrupt)
		}
		if uint64(len(v)) != h.raw {
			return nil, fmt.Errorf("%d bytes where %d were stored: %w", len(v), h.raw, ErrCorrupt)
		}
	} else {
		v = append(v, payload...)
	}
	if crc32.Checksum(v, castagnoli) != h.crc {
		return nil, fmt.Errorf("checksum: %w", ErrCorrupt)
	}
	return v, nil
}

const maxScratch = 256 << 10

var scratches = sync.Pool{New: func() any { return new([]byte) }}

// Encoder and decoder are shared: both keep a bounded set of states and lend one
// to each call. The frame has its own checksum, so zstd's is left out.
var (
	encoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false),
			zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // the options are constants
		}
		return e
	})
	decoder = sync.OnceValue(func() *zstd.Decoder {
		// The capacity of the destination, which is the value's length, bounds
		// what a hostile payload can make of itself.
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true),
			zstd.WithDecoderMaxMemory(statestore.MaxTurnBytes))
		if err != nil {
			panic(err) // the options are constants
		}
		return d
	})
)
