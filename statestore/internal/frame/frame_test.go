package frame

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"berth/statestore"
)

// hard are values that text-minded code damages (case T11).
var hard = []string{
	"", "\x00", "a\x00b", `{"a":"\u0000"}`, `"\ud83d"`, "\U0001F469\u200D\U0001F469\u200D\U0001F467",
	"line\r\n$5\r\n", "\u2028\u2029", "\uFEFF{}", `[9007199254740993, 1e400]`, "\xff\xfe\xc0", " { } ",
	strings.Repeat("x", compressFrom), strings.Repeat("x", compressFrom+1), strings.Repeat("ab\x00", 5000),
}

func TestHardValuesComeBack(t *testing.T) {
	t.Parallel()
	for _, v := range hard {
		for _, kind := range []statestore.TurnType{statestore.TurnJSON, statestore.TurnBytes} {
			in := statestore.Turn{Type: kind, Value: []byte(v), Tokens: uint64(len(v))}
			out, n, err := Next(Append(nil, in))
			if err != nil || out.Type != kind || out.Tokens != in.Tokens || !bytes.Equal(out.Value, in.Value) {
				t.Errorf("%.20q type %d: got %.20q type %d (%d bytes), %v", v, kind, out.Value, out.Type, n, err)
			}
			if out.Value == nil {
				t.Errorf("%.20q: an empty value must not become nil", v)
			}
		}
	}
}

func drawTurn(t *rapid.T) statestore.Turn {
	value := rapid.OneOf(
		rapid.SliceOfN(rapid.Byte(), 0, 600),
		rapid.Map(rapid.SampledFrom(hard), func(s string) []byte { return []byte(s) }),
		rapid.Map(rapid.SliceOfN(rapid.StringMatching(`[a-f ]{1,9}`), 0, 300),
			func(s []string) []byte { return []byte(strings.Join(s, "\r\n")) }),
	).Draw(t, "value")
	return statestore.Turn{
		Type:   rapid.SampledFrom([]statestore.TurnType{statestore.TurnJSON, statestore.TurnBytes}).Draw(t, "type"),
		Value:  value,
		Tokens: rapid.Uint64().Draw(t, "tokens"),
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		turns := rapid.SliceOfN(rapid.Custom(drawTurn), 1, 5).Draw(t, "turns")
		var log []byte
		for _, turn := range turns {
			log = Append(log, turn)
		}
		for i, want := range turns {
			info, err := Measure(log)
			if err != nil || info.Tokens != want.Tokens || info.Bytes != uint64(len(want.Value)) {
				t.Fatalf("turn %d: measured %+v, %v", i, info, err)
			}
			got, n, err := Next(log)
			if err != nil || uint64(n) != info.Size {
				t.Fatalf("turn %d: read %d of %d bytes, %v", i, n, info.Size, err)
			}
			if got.Type != want.Type || got.Tokens != want.Tokens || !bytes.Equal(got.Value, want.Value) {
				t.Fatalf("turn %d: got %+v, want %+v", i, got, want)
			}
			log = log[n:]
		}
		if len(log) != 0 {
			t.Fatalf("%d bytes left", len(log))
		}
	})
}

func TestEveryCutIsShort(t *testing.T) {
	t.Parallel()
	for _, v := range hard {
		whole := Append(nil, statestore.Turn{Type: statestore.TurnJSON, Value: []byte(v), Tokens: 300})
		for i := range whole {
			if _, _, err := Next(whole[:i]); !errors.Is(err, ErrShort) {
				t.Fatalf("%.20q cut at %d of %d: %v", v, i, len(whole), err)
			}
		}
	}
}

// Any flipped bit is noticed: by the checks of the head, by zstd or by the CRC.
// The flip may also lengthen the frame, or change the tokens or the type, which
// nothing but the store covers.
func TestFlippedBitsNeverChangeTheValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawTurn(t)
		log := Append(nil, want)
		bit := rapid.IntRange(0, len(log)*8-1).Draw(t, "bit")
		log[bit/8] ^= 1 << (bit % 8)
		got, _, err := Next(log)
		if err == nil && !bytes.Equal(got.Value, want.Value) {
			t.Fatalf("bit %d: read %q as %q", bit, want.Value, got.Value)
		}
	})
}

func TestCorruptHeads(t *testing.T) {
	t.Parallel()
	head := func(flags byte, tokens, raw, stored uint64) []byte {
		b := binary.AppendUvarint([]byte{flags}, tokens)
		b = binary.AppendUvarint(b, raw)
		return append(binary.AppendUvarint(b, stored), 0, 0, 0, 0)
	}
	over := bytes.Repeat([]byte{0xff}, 11)
	cases := map[string][]byte{
		"no type":                 head(0, 0, 0, 0),
		"unknown type":            head(3, 0, 0, 0),
		"no type, compressed":     head(zstdBit, 0, 9, 1),
		"number over 64 bits":     append([]byte{1}, over...),
		"value over the limit":    head(1, 0, statestore.MaxTurnBytes+1, statestore.MaxTurnBytes+1),
		"absurd value":            head(1|zstdBit, 0, math.MaxUint64, 5),
		"payload shorter than it": head(1, 0, 5, 4),
		"zstd that saves nothing": head(1|zstdBit, 0, 5, 5),
	}
	for name, src := range cases {
		if _, _, err := Next(src); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: Next: %v", name, err)
		}
		if _, err := Measure(src); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: Measure: %v", name, err)
		}
	}
}

// A small frame whose zstd payload grows past the length it states is refused
// by that length, not by the memory it would take.
func TestBombIsRefused(t *testing.T) {
	t.Parallel()
	bomb := encoder().EncodeAll(make([]byte, 8<<20), nil)
	src := append(binary.AppendUvarint(binary.AppendUvarint([]byte{1 | zstdBit, 0}, 4096), uint64(len(bomb))), 0, 0, 0, 0)
	if _, _, err := Next(append(src, bomb...)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
}

func TestCompressesOnlyWhatPays(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 4096)
	for i, x := 0, uint64(1); i < len(noise); i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		noise[i] = byte(x >> 24)
	}
	cases := []struct {
		name  string
		value []byte
		zstd  bool
	}{
		{"short", bytes.Repeat([]byte("a"), compressFrom), false},
		{"text", bytes.Repeat([]byte("the same words again "), 200), true},
		{"noise", noise, false},
	}
	for _, c := range cases {
		log := Append(nil, statestore.Turn{Type: statestore.TurnBytes, Value: c.value})
		if got := log[0]&zstdBit != 0; got != c.zstd {
			t.Errorf("%s: compressed %v (%d bytes of %d)", c.name, got, len(log), len(c.value))
		}
		if len(log) > len(c.value)+16 {
			t.Errorf("%s: %d bytes became %d", c.name, len(c.value), len(log))
		}
	}
}

func TestLargestTurn(t *testing.T) {
	t.Parallel()
	in := statestore.Turn{Type: statestore.TurnBytes, Value: bytes.Repeat([]byte("0123456789abcdef"), statestore.MaxTurnBytes/16)}
	out, _, err := Next(Append(nil, in))
	if err != nil || !bytes.Equal(out.Value, in.Value) {
		t.Fatalf("%d bytes came back as %d: %v", len(in.Value), len(out.Value), err)
	}
}

func seeds(f *testing.F) {
	for _, v := range hard {
		log := Append(nil, statestore.Turn{Type: statestore.TurnJSON, Value: []byte(v), Tokens: 7})
		f.Add(log)
		f.Add(log[:len(log)/2])
	}
	f.Add(append([]byte{1 | zstdBit, 0, 200, 1, 9, 1, 2, 3, 4}, "(\xb5/\xfd\x00\x00\x00\x00\x00"...))
}

// What is read can be written again and is then the same, and is no longer than
// a turn may be.
func FuzzNext(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		turn, n, err := Next(src)
		if err != nil {
			if !errors.Is(err, ErrShort) && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if n > len(src) || len(turn.Value) > statestore.MaxTurnBytes {
			t.Fatalf("read %d of %d bytes, a value of %d", n, len(src), len(turn.Value))
		}
		again, _, err := Next(Append(nil, turn))
		if err != nil || again.Type != turn.Type || again.Tokens != turn.Tokens || !bytes.Equal(again.Value, turn.Value) {
			t.Fatalf("read %+v, then %+v, %v", turn, again, err)
		}
	})
}

// Measure agrees with Next wherever Next succeeds.
func FuzzMeasure(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		info, err := Measure(src)
		if err != nil && !errors.Is(err, ErrShort) && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("untyped error %v", err)
		}
		turn, n, nextErr := Next(src)
		if nextErr != nil {
			return
		}
		if err != nil || info != (Info{Tokens: turn.Tokens, Bytes: uint64(len(turn.Value)), Size: uint64(n)}) {
			t.Fatalf("measured %+v, %v; read %d bytes for %d", info, err, n, len(turn.Value))
		}
	})
}

func BenchmarkAppend4KiB(b *testing.B) {
	turn := statestore.Turn{Type: statestore.TurnJSON, Value: bytes.Repeat([]byte(`{"role":"user","content":"hello"}`), 124)}
	buf := make([]byte, 0, 8192)
	b.SetBytes(int64(len(turn.Value)))
	b.ReportAllocs()
	for b.Loop() {
		buf = Append(buf[:0], turn)
	}
}

func BenchmarkNext4KiB(b *testing.B) {
	log := Append(nil, statestore.Turn{Type: statestore.TurnJSON, Value: bytes.Repeat([]byte(`{"role":"user","content":"hello"}`), 124)})
	b.SetBytes(int64(len(log)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Next(log); err != nil {
			b.Fatal(err)
		}
	}
}

// What a sample promises is what the whole keeps: text of every kind is stored
// smaller, and noise costs no more than the sample.
func TestSampleTellsTextFromNoise(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 48<<10)
	pick := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for i := range noise {
		noise[i] = byte(pick.Uint32())
	}
	image := base64.StdEncoding.EncodeToString(noise)
	for _, c := range []struct {
		name    string
		value   string
		shrinks bool
	}{
		{"prose", strings.Repeat("The kettle had boiled dry before anybody noticed. ", 100), true},
		{"json", strings.Repeat(`{"role":"tool","content":[{"type":"text","n":17}]},`, 100), true},
		{"cyrillic", strings.Repeat("Никто не заметил, что чайник выкипел. ", 100), true},
		{"text, then an image", strings.Repeat("What is in this picture? ", 100) + image, true},
		{"an image between text", strings.Repeat("Look: ", 1000) + image[:4096] + strings.Repeat(" and say what it is.", 1000), true},
		{"base64", image, false},
		{"noise", string(noise), false},
	} {
		got := Append(nil, statestore.Turn{Type: statestore.TurnBytes, Value: []byte(c.value)})
		if shrunk := got[0]&zstdBit != 0; shrunk != c.shrinks {
			t.Errorf("%s: stored in %d bytes of %d, compressed %v", c.name, len(got), len(c.value), shrunk)
		}
	}
}
