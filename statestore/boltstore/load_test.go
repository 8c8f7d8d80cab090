package boltstore

import (
	"bytes"
	"errors"
	"strconv"
	"testing"
	"time"

	"berth/statestore"
)

// fill makes a session of turns with the given sizes, in one write.
func fill(t *testing.T, s *Store, id string, sizes ...int) []statestore.Turn {
	t.Helper()
	turns := make([]statestore.Turn, len(sizes))
	for i, n := range sizes {
		turns[i] = statestore.Turn{Type: statestore.TurnBytes, Value: append(be64(uint64(i)), noiseOf(n)...), Tokens: uint64(i)} //nolint:gosec // an index
	}
	if _, err := s.Append(t.Context(), statestore.Append{
		Key: keyOf(id), By: i1, Handle: present(t, s, id), Op: "fill", Turns: turns, Lifetimes: lives,
	}); err != nil {
		t.Fatal(err)
	}
	return turns
}

func sizes(groups ...[2]int) (all []int) {
	for _, g := range groups {
		for range g[0] {
			all = append(all, g[1])
		}
	}
	return all
}

func TestPagesOfALoadMeet(t *testing.T) {
	t.Parallel()
	cases := map[string][]int{
		"one turn":           sizes([2]int{1, 5}),
		"a page of turns":    sizes([2]int{pageTurns, 5}),
		"a turn more":        sizes([2]int{pageTurns + 1, 5}),
		"a page of bytes":    sizes([2]int{4, pageBytes / 4}),
		"turns over a page":  sizes([2]int{3, 2 * pageBytes}),
		"small around large": sizes([2]int{3, 1}, [2]int{1, 3 * pageBytes}, [2]int{3, 1}),
	}
	for name, sizes := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openTest(t, Options{})
			want := fill(t, s, "a", sizes...)
			for _, from := range []int{0, 1, len(want) / 2, len(want), len(want) + 5} {
				r, err := s.Load(t.Context(), keyOf("a"), uint64(from)) //nolint:gosec // small
				if err != nil {
					t.Fatal(err)
				}
				n := from
				for turn, err := range r.Turns {
					if err != nil || turn.N != uint64(n) || !bytes.Equal(turn.Value, want[n].Value) { //nolint:gosec // small
						t.Fatalf("from %d: turn %d is turn %d, %v", from, n, turn.N, err)
					}
					n++
				}
				if n != max(from, len(want)) {
					t.Fatalf("from %d: ended after %d of %d", from, n, len(want))
				}
			}
		})
	}
}

// A reader that dawdles holds no transaction: writes that make the file grow,
// which no open transaction would let them, go on beside it, and what it began
// to read it reads to the end.
func TestSlowReaderHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	want := fill(t, s, "a", sizes([2]int{10, pageBytes})...)
	r, err := s.Load(t.Context(), keyOf("a"), 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for turn, err := range r.Turns {
		if err != nil || !bytes.Equal(turn.Value, want[n].Value) {
			t.Fatalf("turn %d: %v", n, err)
		}
		n++
		// The end of the same session, and much that is new.
		says(t, s, "a", "op"+strconv.Itoa(n), []byte("a late turn"))
		says(t, s, "b", "op"+strconv.Itoa(n), noiseOf(4<<20))
	}
	if n != len(want) {
		t.Errorf("%d turns of %d, as many as there were at the start", n, len(want))
	}
}

func TestLoadIsTornBetweenPages(t *testing.T) {
	t.Parallel()
	keep := uint64(9)
	cases := map[string]func(t *testing.T, s *Store, wall *fakeWall){
		"base": func(t *testing.T, s *Store, _ *fakeWall) {
			if _, err := s.Append(t.Context(), statestore.Append{
				Key: keyOf("a"), By: i1, Handle: present(t, s, "a"), Op: "base", Base: &keep, Turns: bytesTurn([]byte("x")), Lifetimes: lives,
			}); err != nil {
				t.Fatal(err)
			}
		},
		"replace": func(t *testing.T, s *Store, _ *fakeWall) {
			if _, err := s.Replace(t.Context(), statestore.Replace{
				Key: keyOf("a"), By: i1, Handle: present(t, s, "a"), Op: "replace", Turns: bytesTurn([]byte("x")), Lifetimes: lives,
			}); err != nil {
				t.Fatal(err)
			}
		},
		"delete": func(t *testing.T, s *Store, _ *fakeWall) { erase(t, s, "a") },
		"delete and re-creation": func(t *testing.T, s *Store, _ *fakeWall) {
			erase(t, s, "a")
			fill(t, s, "b", 1)
			if _, err := s.Append(t.Context(), statestore.Append{
				Key: keyOf("a"), By: i1, Handle: present(t, s, "a"), Op: "fill", Recreate: true, Lifetimes: lives,
				Turns: fill(t, s, "c", sizes([2]int{10, pageBytes})...),
			}); err != nil {
				t.Fatal(err)
			}
		},
		"expiry": func(_ *testing.T, _ *Store, wall *fakeWall) { wall.advance(lives.Retention) },
		"expiry and sweep": func(t *testing.T, s *Store, wall *fakeWall) {
			wall.advance(lives.Retention)
			if n, err := s.Sweep(t.Context(), 10); err != nil || n != 1 {
				t.Fatalf("swept %d, %v", n, err)
			}
		},
	}
	for name, tear := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wall := newFakeWall()
			s := openTest(t, Options{Clock: wall.read})
			fill(t, s, "a", sizes([2]int{10, pageBytes})...)
			r, err := s.Load(t.Context(), keyOf("a"), 0)
			if err != nil {
				t.Fatal(err)
			}
			var read int
			var last error
			for _, err := range r.Turns {
				if last = err; err != nil {
					continue
				}
				if read++; read == 2 {
					tear(t, s, wall)
				}
			}
			if !errors.Is(last, statestore.ErrChanged) || read != 2 {
				t.Errorf("read %d turns, then %v", read, last)
			}
		})
	}
}

func erase(t *testing.T, s *Store, id string) {
	t.Helper()
	if _, err := s.Delete(t.Context(), statestore.Delete{Key: keyOf(id), Lifetimes: lives}); err != nil {
		t.Fatal(err)
	}
}

// The end that one reader noticed is the end that all are told of.
func TestExpiryHasOneEpoch(t *testing.T) {
	t.Parallel()
	wall := newFakeWall()
	s := openTest(t, Options{Clock: wall.read})
	says(t, s, "a", "op1", []byte("x"))
	wall.advance(lives.Retention)
	first := present(t, s, "a")
	wall.advance(time.Minute)
	if second := present(t, s, "a"); second.Floor != first.Floor || first.Epoch == 0 {
		t.Errorf("told of %+v, then of %+v", first.Floor, second.Floor)
	}
}
