package redisstore

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/integration/redistest"
	"berth/statestore"
)

// sessionKeys are the keys of one session that exist.
func sessionKeys(t *testing.T, client redis.UniversalClient, s *Store, key statestore.SessionKey) (found []string) {
	t.Helper()
	for _, k := range s.keys.session(key.Digest())[:len(kinds)] {
		if client.Exists(t.Context(), k).Val() == 1 {
			found = append(found, k)
		}
	}
	return found
}

// full makes a session with something in every one of its keys.
func full(t *testing.T, s *Store, id string) *writer {
	t.Helper()
	w := newWriter(s, id)
	w.append(t, noise(9000), noise(100))
	w.append(t, noise(300_000))
	if err := s.PutPlacements(t.Context(), w.key, w.by, []byte(`[{"tier":"gpu"}]`)); err != nil {
		t.Fatal(err)
	}
	late := *w
	late.by.Instance = "i9"
	for _, size := range []int{10, 9000, 300_000} {
		late.n++
		_, err := s.Append(t.Context(), statestore.Append{
			Key: w.key, By: late.by, Handle: w.handle, Op: fmt.Sprint("late-", size), Lifetimes: lives,
			Turns: []statestore.Turn{{Type: statestore.TurnBytes, Value: noise(size)}},
		})
		if err == nil {
			t.Fatal("an append by another than the owner was accepted")
		}
	}
	r, err := s.Load(t.Context(), w.key, 0)
	if err != nil || len(r.Parked) != 3 || len(r.Placements) != 1 {
		t.Fatalf("%d parked, %d placements, %v", len(r.Parked), len(r.Placements), err)
	}
	return w
}

// endTogether fails unless all keys of the session end at once, and not before the
// session may be forgotten.
func endTogether(t *testing.T, client redis.UniversalClient, s *Store, key statestore.SessionKey) (keys int) {
	t.Helper()
	now := client.Time(t.Context()).Val()
	ends := map[string]time.Duration{}
	for _, k := range sessionKeys(t, client, s, key) {
		ends[k] = time.UnixMilli(client.PExpireTime(t.Context(), k).Val().Milliseconds()).Sub(now)
	}
	times := slices.Sorted(maps.Values(ends))
	if first, last := times[0], times[len(times)-1]; last-first > time.Second || first < lives.Retention+lives.Tombstone-time.Minute {
		t.Fatalf("keys end at different times, or before %v: %v", lives.Retention+lives.Tombstone, ends)
	}
	return len(ends)
}

// Case T06: parts of a session end before others, or never.
func TestAllKeysOfASessionEndTogether(t *testing.T) {
	t.Parallel()
	url := redistest.Standalone(t).URL
	s, client := open(t, url), dial(t, url)
	w := full(t, s, "together")
	for range 3 {
		// Just short of the time after which the session would have ended.
		s.skew.Add((lives.Retention - time.Minute).Milliseconds())
		w.append(t, noise(20_000))
		if n := endTogether(t, client, s, w.key); n != len(kinds)-1 { // all but the tombstone
			t.Fatalf("%d keys", n)
		}
	}
	if got := allTexts(t, s, w.key); len(got) != 6 {
		t.Fatalf("%d turns, want 6", len(got))
	}
}

// A key that a later write makes ends with those that were there.
func TestNewKeysEndWithTheOld(t *testing.T) {
	t.Parallel()
	url := redistest.Standalone(t).URL
	s, client := open(t, url), dial(t, url)
	w := newWriter(s, "grows")
	replaced := func(size int) {
		if _, err := w.replace(t.Context(), noise(size)); err != nil {
			t.Fatal(err)
		}
	}
	for i, act := range []func(){
		func() { w.append(t, noise(10)) },
		func() { w.append(t, noise(smallChunk)) },
		func() { replaced(10) },
		func() { replaced(100_000) },
		func() { replaced(10) },
		func() { w.append(t, noise(100_000)) },
		func() {
			if err := s.PutPlacements(t.Context(), w.key, w.by, []byte(`[{"tier":"gpu"}]`)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		act()
		endTogether(t, client, s, w.key)
		if t.Failed() {
			t.Fatalf("after step %d", i)
		}
	}
}

// After each end nothing of the session is left but its tombstone, which ends by
// itself.
func TestNoKeyOfASessionSurvivesItsEnd(t *testing.T) {
	t.Parallel()
	url := redistest.Standalone(t).URL
	client := dial(t, url)
	ends := map[string]func(*Store, *writer) error{
		"delete": func(s *Store, w *writer) error {
			_, err := s.Delete(t.Context(), statestore.Delete{Key: w.key, Handle: &w.handle, Lifetimes: lives})
			return err
		},
		"sweep": func(s *Store, _ *writer) error {
			s.skew.Add(lives.Retention.Milliseconds())
			n, err := s.Sweep(t.Context(), 10)
			if err == nil && n != 1 {
				err = fmt.Errorf("the sweep ended %d", n)
			}
			return err
		},
		"lookup after its time": func(s *Store, w *writer) error {
			s.skew.Add(lives.Retention.Milliseconds())
			_, err := s.Lookup(t.Context(), w.key)
			return err
		},
		"load after its time": func(s *Store, w *writer) error {
			s.skew.Add(lives.Retention.Milliseconds())
			_, err := s.Load(t.Context(), w.key, 0)
			return err
		},
		"append after its time": func(s *Store, w *writer) error {
			s.skew.Add(lives.Retention.Milliseconds())
			_, err := s.Append(t.Context(), statestore.Append{
				Key: w.key, By: w.by, Handle: w.handle, Op: "late", Lifetimes: lives,
				Turns: []statestore.Turn{{Type: statestore.TurnBytes, Value: noise(300_000)}},
			})
			if err == nil {
				return fmt.Errorf("it was accepted")
			}
			return nil
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			s := open(t, url)
			w := full(t, s, "ends by "+name)
			if err := end(s, w); err != nil {
				t.Fatal(err)
			}
			tomb := s.keys.session(w.key.Digest())[keyTombstone]
			for _, k := range keysOf(t, client, s.opts.Prefix) {
				if k != tomb && k != s.keys.fleet("store") {
					t.Errorf("%s is left", k)
				}
			}
			if ttl := client.PTTL(t.Context(), tomb).Val(); ttl <= 0 || ttl > lives.Tombstone {
				t.Errorf("the tombstone ends in %v, want at most %v", ttl, lives.Tombstone)
			}
		})
	}
}

// No key that a session or a call makes lacks an end; those of the partitions and
// of the fleet stay.
func TestEveryKeyOfASessionHasAnEnd(t *testing.T) {
	t.Parallel()
	url := redistest.Standalone(t).URL
	s, client := open(t, url), dial(t, url)
	w := full(t, s, "ending")
	if _, err := s.Bind(t.Context(), statestore.Bind{
		Key: statestore.SessionKey{Tenant: "acme", Pool: "llama", ID: "reported"}, Owner: w.by, Lifetimes: lives,
	}); err != nil {
		t.Fatal(err)
	}
	c := s.newCall(statestore.SessionKey{Tenant: "acme", Pool: "llama", ID: "given up"})
	given := &write{stream: noise(300_000)}
	given.layout = newLayout(given)
	if err := s.stage(t.Context(), c, given); err != nil {
		t.Fatal(err)
	}
	stay := []string{s.keys.fleet("store")}
	for _, p := range s.keys.shared {
		stay = append(stay, p.due, p.index, p.staged)
	}
	for _, k := range keysOf(t, client, s.opts.Prefix) {
		if client.TTL(t.Context(), k).Val() < 0 && !slices.Contains(stay, k) {
			t.Errorf("%s has no end", k)
		}
	}
}

// Case T08, second half: what ended leaves no memory behind.
func TestMemoryReturnsAfterTheSweep(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL)
	client := server.Client(t)
	used := func() int64 {
		if err := client.Do(t.Context(), "memory", "purge").Err(); err != nil {
			t.Fatal(err)
		}
		stats, err := client.InfoMap(t.Context(), "memory").Result()
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		fmt.Sscan(stats["Memory"]["used_memory_dataset"], &n)
		return n
	}
	round := func() {
		for i := range 300 {
			w := newWriter(s, fmt.Sprint(i))
			w.append(t, noise(9000))
			w.append(t, noise(500))
		}
		s.skew.Add((lives.Retention + lives.Tombstone).Milliseconds())
		if n, err := s.Sweep(t.Context(), 1000); err != nil || n != 300 {
			t.Fatalf("the sweep ended %d, %v", n, err)
		}
		for _, k := range keysOf(t, client, s.opts.Prefix+":{p*}:t") {
			client.Del(t.Context(), k) // as their time will
		}
	}
	round() // the library and the tables of Redis grow once
	before := used()
	for range 3 {
		round()
	}
	if after := used(); after > before+before/20+200_000 {
		t.Fatalf("dataset of %d bytes grew to %d", before, after)
	}
}

// A session whose keys vanished, as a server that evicts would let them, leaves the
// indexes with the next sweep.
func TestVanishedSessionLeavesTheIndexes(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Standalone(t).URL)
	w, other := newWriter(s, "vanished"), newWriter(s, "other")
	w.append(t, []byte("one"))
	other.append(t, []byte("one"))
	for _, k := range s.keys.session(w.key.Digest())[:len(kinds)] {
		s.client.Del(t.Context(), k)
	}
	for v, err := range s.SessionsOf(t.Context(), w.key.Pool, w.by.Instance) {
		if err != nil || v.Key != other.key {
			t.Fatalf("the index lists %+v, %v", v.Key, err)
		}
	}
	s.skew.Add(lives.Retention.Milliseconds() / 2)
	other.append(t, []byte("two"))
	s.skew.Add(lives.Retention.Milliseconds() / 2)
	if n, err := s.Sweep(t.Context(), 10); err != nil || n != 0 {
		t.Fatalf("the sweep ended %d, %v", n, err)
	}
	counts, err := s.CountSessions(t.Context())
	if want := map[statestore.InstanceName]int{{Pool: "llama", Instance: "i1"}: 1}; err != nil || !maps.Equal(counts, want) {
		t.Fatalf("counts %v, %v, want %v", counts, err, want)
	}
}

// Case T14: a save that stopped half way blocks nothing and leaves nothing.
func TestAbandonedStagingIsSwept(t *testing.T) {
	t.Parallel()
	url := redistest.Standalone(t).URL
	s, client := open(t, url), dial(t, url)
	w := newWriter(s, "abandoned")
	w.append(t, []byte("one"))
	c := s.newCall(w.key)
	logKey := c.keys[keyLog]
	big := noise(300_000)
	given := &write{stream: big}
	given.layout = newLayout(given)
	if err := s.stage(t.Context(), c, given); err != nil {
		t.Fatal(err)
	}
	client.HDel(t.Context(), logKey, chunkName(given.tag[:], 3)) // it had come to the third chunk

	equalTexts(t, allTexts(t, s, w.key), "one")
	w.append(t, big)
	linked := client.HLen(t.Context(), logKey).Val() - int64(len(given.sizes)-1)
	if n, err := s.Sweep(t.Context(), 10); err != nil || n != 0 {
		t.Fatalf("a sweep before its time ended %d, %v", n, err)
	}
	s.skew.Add(s.opts.Staging.Milliseconds())
	if n, err := s.Sweep(t.Context(), 10); err != nil || n != 1 {
		t.Fatalf("the sweep ended %d, %v, want the staged write", n, err)
	}
	if left := client.HLen(t.Context(), logKey).Val(); left != linked {
		t.Fatalf("%d fields are left, want the %d that are linked", left, linked)
	}
	equalTexts(t, allTexts(t, s, w.key), "one", string(big))
}

// Whoever takes a staged write off the list owns its chunks: after a sweep that came
// in between, the writer stages again.
func TestSweepBetweenStageAndLink(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Standalone(t).URL)
	key, big := newWriter(s, "swept").key, noise(300_000)
	turns := []statestore.Turn{{Type: statestore.TurnBytes, Value: big}}
	w, err := newWrite(statestore.KindAppend, key, newWriter(s, "").by, "op-1", turns, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.lives, w.layout = lives, newLayout(w)
	c := s.newCall(key)
	if err := s.stage(t.Context(), c, w); err != nil {
		t.Fatal(err)
	}
	first := w.tag
	s.skew.Add(s.opts.Staging.Milliseconds())
	if n, err := s.Sweep(t.Context(), 10); err != nil || n != 1 {
		t.Fatalf("the sweep ended %d, %v", n, err)
	}
	// What follows the staging in judge: the call that links it.
	a, _, err := s.sendWrite(t.Context(), c, w, nil, false, statestore.Requirement{})
	if err != nil || a.text(0) != "restage" {
		t.Fatalf("answer %v, %v, want it to be staged again", a, err)
	}
	if err := s.stage(t.Context(), c, w); err != nil || w.tag == first {
		t.Fatalf("staged again under the same name, %v", err)
	}
	if a, _, err = s.sendWrite(t.Context(), c, w, nil, false, statestore.Requirement{}); err != nil || a.text(0) != "ok" {
		t.Fatalf("answer %v, %v", a, err)
	}
	equalTexts(t, allTexts(t, s, key), string(big))
}
