package boltstore

import (
	"strconv"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"berth/statestore"
)

func entries(t *testing.T, s *Store, bucket []byte) (n int) {
	t.Helper()
	if err := s.commits.view(func(tx *bolt.Tx) error {
		return tx.Bucket(bucket).ForEach(func(_, _ []byte) error { n++; return nil })
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// Sessions end in the order of their time, never before it, and leave nothing once
// their tombstones are over too (case T08, on the embedded store).
func TestSweepLeavesNothing(t *testing.T) {
	t.Parallel()
	wall := newFakeWall()
	s := openTest(t, Options{Clock: wall.read})
	const sessions = 300
	for i := range sessions {
		fill(t, s, "session "+strconv.Itoa(i), 10, 20)
	}
	wall.advance(lives.Retention - time.Minute)
	says(t, s, "session 7", "later", []byte("renews"))
	wall.advance(time.Minute)
	swept := 0
	for n := -1; n != 0; swept += n {
		var err error
		if n, err = s.Sweep(t.Context(), 100); err != nil || n > 100 {
			t.Fatalf("swept %d, %v", n, err)
		}
		checkFile(t, s)
	}
	if left := entries(t, s, bTurns); swept != sessions-1 || left != 3 {
		t.Errorf("swept %d of %d sessions, and %d turns are left", swept, sessions-1, left)
	}
	if v, err := s.Lookup(t.Context(), keyOf("session 8")); err != nil || v.Tombstone.Reason != statestore.Expired {
		t.Errorf("an expired session is %+v, %v", v, err)
	}
	wall.advance(2 * lives.Tombstone)
	for range 3 { // ends the last, waits for its tombstone, finds nothing
		if _, err := s.Sweep(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		wall.advance(lives.Tombstone)
	}
	for _, bucket := range [][]byte{bSessions, bTurns, bContexts, bParked, bPlacements, bOwned, bCounts, bDue} {
		if n := entries(t, s, bucket); n != 0 {
			t.Errorf("bucket %s has %d entries left", bucket, n)
		}
	}
}

// An append only moves the end away and leaves the due index alone, so that its
// cost does not grow with the number of sessions; the sweep files it again.
func TestAppendLeavesTheDueIndexAlone(t *testing.T) {
	t.Parallel()
	wall := newFakeWall()
	s := openTest(t, Options{Clock: wall.read})
	due := func() (at statestore.Millis) {
		_ = s.commits.view(func(tx *bolt.Tx) error {
			k, _ := tx.Bucket(bDue).Cursor().First()
			at = dueAt(k)
			return nil
		})
		return at
	}
	says(t, s, "a", "op1", []byte("x"))
	first := due()
	wall.advance(time.Hour)
	says(t, s, "a", "op2", []byte("x"))
	if due() != first || entries(t, s, bDue) != 1 {
		t.Error("an append filed its session again")
	}
	wall.advance(lives.Retention - time.Minute)
	if n, err := s.Sweep(t.Context(), 10); err != nil || n != 0 {
		t.Fatalf("swept %d that had time left, %v", n, err)
	}
	if got := due(); got != first.Add(time.Hour) {
		t.Errorf("filed for %d, want %d", got, first.Add(time.Hour))
	}
}
