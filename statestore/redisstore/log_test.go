package redisstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"berth/integration/redistest"
	"berth/statestore"
	"berth/statestore/internal/frame"
)

func TestChunksFitTheAllocator(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 200_000), rapid.IntRange(0, 20_000_000)).Draw(t, "bytes")
		left := n
		for _, size := range chunkSizes(n) {
			_, class := classes(size + chunkSpare)
			if size > largeChunk || class-size-chunkSpare > class/wastedPart {
				t.Fatalf("chunk of %d in a class of %d", size, class)
			}
			left -= size
		}
		if left < 0 || left >= smallChunk {
			t.Fatalf("%d of %d bytes are left", left, n)
		}
	})
}

func TestClasses(t *testing.T) {
	t.Parallel()
	// The size classes of jemalloc, which Redis is built with.
	sorted := []int{4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384, 20480, 24576, 28672, 32768, 40960, 49152, 57344, 65536}
	for i, class := range sorted[1:] {
		for _, n := range []int{sorted[i] + 1, class - 1} {
			if below, above := classes(n); below != sorted[i] || above != class {
				t.Errorf("%d lies between %d and %d, want %d and %d", n, below, above, sorted[i], class)
			}
		}
		if below, above := classes(class); below != class || above != class {
			t.Errorf("%d is a class, not between %d and %d", class, below, above)
		}
	}
}

// Wherever a stream is cut into pieces, the same turns come out of it.
func TestDecoderBearsAnyCut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, 8).Draw(t, "values")
		var stream []byte
		for _, v := range values {
			stream = frame.Append(stream, statestore.Turn{Type: statestore.TurnBytes, Value: v, Tokens: 1 << 40})
		}
		from := rapid.IntRange(0, len(values)-1).Draw(t, "from")
		var got [][]byte
		d := &decoder{from: uint64(from), end: uint64(len(values)), yield: func(turn statestore.NumberedTurn, err error) bool {
			if err != nil || turn.N != uint64(from+len(got)) {
				t.Fatalf("turn %d after %d: %v", turn.N, len(got), err)
			}
			got = append(got, turn.Value)
			return true
		}}
		for rest := stream; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			if !d.feed(string(rest[:n])) {
				t.Fatal("the decoder wants no more")
			}
			rest = rest[n:]
		}
		if !slices.EqualFunc(got, values[from:], bytes.Equal) {
			t.Fatalf("got %d turns from %d, want %d", len(got), from, len(values)-from)
		}
	})
}

func TestDecoderTellsCorruption(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]string{
		"type":     "\x00\x00\x00\x00\x00\x00\x00\x00",
		"cut type": "\x01",
	} {
		var got error
		d := &decoder{end: 1, yield: func(_ statestore.NumberedTurn, err error) bool {
			got = err
			return true
		}}
		more := d.feed(stream[:1], stream[1:])
		if more == errors.Is(got, ErrDamaged) {
			t.Errorf("%s: told %v, wants more: %v", name, got, more)
		}
	}
}

// logModel is a session and the turns that it must hold.
type logModel struct {
	w     *writer
	turns [][]byte
}

// values draws turns of all the sizes at which a write takes another way: pieces,
// chunks that come with the call, staged chunks.
func (m *logModel) values(t *rapid.T) [][]byte {
	size := rapid.OneOf(
		rapid.IntRange(0, 700), rapid.IntRange(3000, 9000), rapid.IntRange(15_000, 40_000), rapid.IntRange(60_000, 150_000),
	)
	var values [][]byte
	for range rapid.IntRange(0, 3).Draw(t, "turns") {
		values = append(values, noise(size.Draw(t, "bytes")))
	}
	return values
}

func (m *logModel) write(t *rapid.T, base *uint64, values [][]byte) {
	w := m.w
	w.n++
	a := statestore.Append{Key: w.key, By: w.by, Handle: w.handle, Op: fmt.Sprintf("op-%d", w.n), Base: base, Lifetimes: lives}
	for _, v := range values {
		a.Turns = append(a.Turns, statestore.Turn{Type: statestore.TurnBytes, Value: v, Tokens: uint64(len(v))})
	}
	r, err := w.s.Append(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	w.handle.Floor = r.Floor
	if base != nil {
		m.turns = m.turns[:*base]
	}
	m.turns = append(m.turns, values...)
	m.check(t, r)
}

// check compares what the receipt and the record count.
func (m *logModel) check(t *rapid.T, r statestore.Receipt) {
	var size uint64
	for _, v := range m.turns {
		size += uint64(len(v))
	}
	if r.Turns != uint64(len(m.turns)) || r.Bytes != size {
		t.Fatalf("receipt says %d turns of %d bytes, want %d of %d", r.Turns, r.Bytes, len(m.turns), size)
	}
	v, err := m.w.s.Lookup(t.Context(), m.w.key)
	if err != nil || v.Tokens != size {
		t.Fatalf("record says %d tokens, want %d (%v)", v.Tokens, size, err)
	}
}

func (m *logModel) load(t *rapid.T) {
	from := rapid.IntRange(0, len(m.turns)).Draw(t, "from")
	r, err := m.w.s.Load(t.Context(), m.w.key, uint64(from))
	if err != nil {
		t.Fatal(err)
	}
	var got [][]byte
	for turn, err := range r.Turns {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, turn.Value)
	}
	if !slices.EqualFunc(got, m.turns[from:], bytes.Equal) {
		t.Fatalf("%d turns from the %d-th are not the %d that were written", len(got), from, len(m.turns)-from)
	}
}

// Whatever is appended, cut off and replaced, a load reads what is left, from any
// turn on.
func TestLogHoldsWhatWasWritten(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Standalone(t).URL)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		m := &logModel{w: newWriter(s, fmt.Sprint(n))}
		m.write(t, nil, m.values(t))
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) { m.write(t, nil, m.values(t)) },
			"many in pieces": func(t *rapid.T) { // so that entries without a chunk are made
				for range rapid.IntRange(1, 25).Draw(t, "writes") {
					m.write(t, nil, [][]byte{noise(1000), noise(2000)})
				}
			},
			"base": func(t *rapid.T) {
				base := uint64(rapid.IntRange(0, len(m.turns)).Draw(t, "base")) //nolint:gosec // not negative
				m.write(t, &base, m.values(t))
			},
			"replace": func(t *rapid.T) {
				m.turns = m.values(t)
				r, err := m.w.replace(t.Context(), m.turns...)
				if err != nil {
					t.Fatal(err)
				}
				m.check(t, r)
			},
			"": m.load, // after each
		})
	})
}

// A load that began before a base or a replace ends with changed, at whichever
// page it is then.
func TestTornLoadEndsWithChanged(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Standalone(t).URL)
	for name, tear := range map[string]func(*writer) error{
		"base": func(w *writer) error {
			base := uint64(1)
			w.n++
			_, err := s.Append(t.Context(), statestore.Append{
				Key: w.key, By: w.by, Handle: w.handle, Op: "base", Base: &base, Lifetimes: lives,
				Turns: []statestore.Turn{{Type: statestore.TurnBytes, Value: noise(10)}},
			})
			return err
		},
		"replace": func(w *writer) error {
			_, err := w.replace(t.Context(), noise(3_000_000))
			return err
		},
		"delete": func(w *writer) error {
			_, err := s.Delete(t.Context(), statestore.Delete{Key: w.key, Lifetimes: lives})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(s, "torn by "+name)
			for range 40 {
				w.append(t, noise(100_000))
			}
			r, err := s.Load(t.Context(), w.key, 0)
			if err != nil {
				t.Fatal(err)
			}
			seen := 0
			for _, err = range r.Turns {
				if err != nil {
					break
				}
				if seen++; seen == 1 {
					if err := tear(w); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !errors.Is(err, statestore.ErrChanged) {
				t.Fatalf("%d turns and then %v, want changed", seen, err)
			}
		})
	}
}
