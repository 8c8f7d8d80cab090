package boltstore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"berth/statestore"
	"berth/statestore/internal/frame"
)

// fakeWall is a clock that only the test moves.
type fakeWall struct {
	mu  sync.Mutex
	now time.Time
}

func newFakeWall() *fakeWall { return &fakeWall{now: time.UnixMilli(1_700_000_000_000)} }

func (w *fakeWall) read() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *fakeWall) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func openTest(t testing.TB, opts Options) *Store {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "store"), opts)
}

func openAt(t testing.TB, path string, opts Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

var (
	lives = statestore.Lifetimes{Affinity: 30 * time.Minute, Retention: 24 * time.Hour, Tombstone: 25 * time.Hour}
	i1    = statestore.Owner{Instance: "i1", Incarnation: "boot1"}
	i2    = statestore.Owner{Instance: "i2", Incarnation: "boot1"}
)

func keyOf(id string) statestore.SessionKey {
	return statestore.SessionKey{Tenant: "default", Pool: "default", ID: id}
}

func bytesTurn(b []byte) []statestore.Turn {
	return []statestore.Turn{{Type: statestore.TurnBytes, Value: b, Tokens: uint64(len(b))}}
}

func noiseOf(n int) []byte {
	r := rand.New(rand.NewPCG(7, uint64(n))) //nolint:gosec // not for secrets
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// present is the handle that a route would answer now.
func present(t testing.TB, s *Store, id string) statestore.Presented {
	t.Helper()
	v, err := s.Lookup(t.Context(), keyOf(id))
	if err != nil {
		t.Fatal(err)
	}
	return statestore.Presented{Floor: v.Floor(), Named: true}
}

// says appends one turn as i1, with the newest handle.
func says(t testing.TB, s *Store, id, op string, value []byte) statestore.Receipt {
	t.Helper()
	r, err := s.Append(t.Context(), statestore.Append{
		Key: keyOf(id), By: i1, Handle: present(t, s, id), Op: op, Turns: bytesTurn(value), Lifetimes: lives, Recreate: true,
	})
	if err != nil {
		t.Fatalf("append %s to %s: %v", op, id, err)
	}
	return r
}

// checkFile reads the whole file and fails unless every index agrees with the
// sessions and nothing is left of those that ended.
func checkFile(t interface {
	Helper()
	Fatalf(string, ...any)
}, s *Store,
) {
	t.Helper()
	if err := s.commits.view(func(tx *bolt.Tx) error {
		c := &fileCheck{r: &reader{tx: tx, now: s.clock.now()}, want: map[string][]string{}}
		return c.run()
	}); err != nil {
		t.Fatalf("the file contradicts itself: %v", err)
	}
}

// fileCheck collects the keys that each bucket must have.
type fileCheck struct {
	r    *reader
	want map[string][]string
}

func (c *fileCheck) run() error {
	counts := map[string]uint64{}
	err := c.r.each(bSessions, nil, func(k, v []byte) (bool, error) {
		s, err := decodeSlot(v)
		if err != nil {
			return false, err
		}
		d := statestore.SessionDigest(k)
		c.expect(bDue, dueKey(s.due, d[:]))
		r := s.Record
		if r == nil {
			return s.due <= s.until, nil
		}
		if s.due > r.Expires {
			return false, fmt.Errorf("%s is filed after its end", r.Key.ID)
		}
		if r.Owner.Instance != "" {
			c.expect(bOwned, ownedKey(r.Key.Pool, r.Owner.Instance, d))
			counts[string(joined(r.Key.Pool, r.Owner.Instance))]++
		}
		return true, c.session(d, s)
	})
	if err != nil {
		return err
	}
	for k, n := range counts {
		c.expect(bCounts, []byte(k))
		if got := fromBE64(c.r.get(bCounts, []byte(k))); got != n {
			return fmt.Errorf("%q has %d sessions, and the counter says %d", k, n, got)
		}
	}
	return c.compare()
}

func (c *fileCheck) expect(bucket, key []byte) {
	c.want[string(bucket)] = append(c.want[string(bucket)], string(key))
}

// session holds the turns and parked writes against the record.
func (c *fileCheck) session(d statestore.SessionDigest, s *slot) error {
	var tokens, size uint64
	for n := range s.Record.Turns {
		c.expect(bTurns, turnKey(d, n))
		t, _, err := frame.Next(c.r.get(bTurns, turnKey(d, n)))
		if err != nil {
			return fmt.Errorf("turn %d of %s: %w", n, s.Record.Key.ID, err)
		}
		tokens += t.Tokens
		size += uint64(len(t.Value))
	}
	if tokens != s.Record.Tokens || size != s.Record.Bytes {
		return fmt.Errorf("%s holds %d tokens and %d bytes, and says %d and %d", s.Record.Key.ID, tokens, size, s.Record.Tokens, s.Record.Bytes)
	}
	parked, err := c.r.parked(d)
	if err != nil || uint64(len(parked)) != s.parked {
		return fmt.Errorf("%d writes are parked, and the slot says %d (%w)", len(parked), s.parked, err)
	}
	for _, p := range parked {
		c.expect(bParked, parkedKey(d, statestore.DigestOp(p.Op)))
	}
	return nil
}

// compare fails on a key too many or too few in the buckets that sessions fill.
func (c *fileCheck) compare() error {
	for _, bucket := range [][]byte{bDue, bOwned, bCounts, bTurns, bParked} {
		want := map[string]bool{}
		for _, k := range c.want[string(bucket)] {
			want[k] = true
		}
		got := 0
		err := c.r.each(bucket, nil, func(k, _ []byte) (bool, error) {
			got++
			if !want[string(k)] {
				return false, fmt.Errorf("bucket %s has an orphan %x", bucket, k)
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		if got != len(want) {
			return fmt.Errorf("bucket %s has %d entries of %d", bucket, got, len(want))
		}
	}
	for _, bucket := range [][]byte{bContexts, bPlacements} {
		err := c.r.each(bucket, nil, func(k, _ []byte) (bool, error) {
			s, err := decodeSlot(bytes.Clone(c.r.get(bSessions, k[:16])))
			if err == nil && s.Record == nil {
				err = fmt.Errorf("bucket %s has something of an ended session", bucket)
			}
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mayhem is random writes to a few sessions, most of them with current handles.
type mayhem struct {
	s    *Store
	wall *fakeWall
	n    int
}

func (m *mayhem) id(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
}

func (m *mayhem) owner(t *rapid.T) statestore.Owner {
	return rapid.SampledFrom([]statestore.Owner{i1, i2, {Instance: "i1", Incarnation: "boot2"}}).Draw(t, "owner")
}

// outcome lets refusals pass: which of them is right is the suite's business.
func (m *mayhem) outcome(t *rapid.T, err error) {
	if err != nil {
		t.Logf("refused: %v", err)
	}
}

func (m *mayhem) actions(tb testing.TB) map[string]func(*rapid.T) {
	ctx := tb.Context()
	handle := func(id string) statestore.Presented { return present(tb, m.s, id) }
	turns := func(t *rapid.T) []statestore.Turn {
		m.n++
		return bytesTurn(noiseOf(rapid.SampledFrom([]int{0, 10, 5000}).Draw(t, "size")))
	}
	op := func() string { return "op-" + strconv.Itoa(m.n) }
	return map[string]func(*rapid.T){
		"append": func(t *rapid.T) {
			id := m.id(t)
			a := statestore.Append{Key: keyOf(id), By: m.owner(t), Handle: handle(id), Turns: turns(t), Lifetimes: lives, Recreate: true}
			a.Op = op()
			if rapid.Bool().Draw(t, "with a base") {
				base := rapid.Uint64Range(0, 5).Draw(t, "base")
				a.Base = &base
			}
			if rapid.Bool().Draw(t, "with meta") {
				a.Meta = []byte(`{"tools":[]}`)
			}
			_, err := m.s.Append(ctx, a)
			m.outcome(t, err)
		},
		"adopt": func(t *rapid.T) {
			r, err := m.s.Load(ctx, keyOf(m.id(t)), 0)
			if err != nil || len(r.Parked) == 0 {
				t.Skip("nothing to adopt")
			}
			got, err := m.s.Append(ctx, statestore.Append{
				Key: r.Key, By: r.Owner, Handle: handle(r.Key.ID), Op: r.Parked[0].Op, Turns: r.Parked[0].Turns, Lifetimes: lives,
			})
			if err == nil && !got.Parked {
				t.Fatalf("adopted %s without a word: %+v", r.Parked[0].Op, got)
			}
			m.outcome(t, err)
		},
		"replace": func(t *rapid.T) {
			id := m.id(t)
			r := statestore.Replace{Key: keyOf(id), By: m.owner(t), Handle: handle(id), Turns: turns(t), Lifetimes: lives}
			r.Op = op()
			_, err := m.s.Replace(ctx, r)
			m.outcome(t, err)
		},
		"claim": func(t *rapid.T) {
			id := m.id(t)
			h := handle(id)
			_, err := m.s.Claim(ctx, statestore.Claim{Key: keyOf(id), By: m.owner(t), Handle: &h, Lifetimes: lives})
			m.outcome(t, err)
		},
		"move": func(t *rapid.T) {
			v, err := m.s.Lookup(ctx, keyOf(m.id(t)))
			if err != nil || !v.Exists {
				t.Skip("nothing to move")
			}
			_, err = m.s.Move(ctx, statestore.Move{Key: v.Key, From: v.Owner, Epoch: v.Epoch, To: m.owner(t), Lifetimes: lives})
			m.outcome(t, err)
		},
		"finish": func(t *rapid.T) {
			id := m.id(t)
			_, err := m.s.Finish(ctx, statestore.Finish{Key: keyOf(id), By: m.owner(t), Handle: handle(id), Lifetimes: lives})
			m.outcome(t, err)
		},
		"bind": func(t *rapid.T) {
			id := m.id(t)
			_, err := m.s.Bind(ctx, statestore.Bind{Key: keyOf(id), Owner: m.owner(t), Handle: handle(id), Lifetimes: lives})
			m.outcome(t, err)
		},
		"delete": func(t *rapid.T) {
			_, err := m.s.Delete(ctx, statestore.Delete{Key: keyOf(m.id(t)), Lifetimes: lives})
			m.outcome(t, err)
		},
		"placements": func(t *rapid.T) {
			set := rapid.SampledFrom([]string{`[]`, `[{"tier":"gpu"}]`}).Draw(t, "set")
			m.outcome(t, m.s.PutPlacements(ctx, keyOf(m.id(t)), m.owner(t), []byte(set)))
		},
		"time": func(t *rapid.T) {
			m.wall.advance(rapid.SampledFrom([]time.Duration{time.Second, time.Hour, 26 * time.Hour}).Draw(t, "passes"))
		},
		"sweep": func(t *rapid.T) {
			if _, err := m.s.Sweep(ctx, rapid.IntRange(1, 3).Draw(t, "limit")); err != nil {
				t.Fatal(err)
			}
		},
		"": func(t *rapid.T) { checkFile(t, m.s) },
	}
}

func TestIndexesAgreeWithSessions(t *testing.T) {
	t.Parallel()
	dir, n := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		wall := newFakeWall()
		s := openAt(t, filepath.Join(dir, strconv.Itoa(n)), Options{Clock: wall.read})
		defer s.Close()
		s.db.NoSync = true // the disk is not what is tested
		m := &mayhem{s: s, wall: wall}
		rt.Repeat(m.actions(t))
	})
}
