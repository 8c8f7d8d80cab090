package redisstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/integration/redistest"
	"berth/statestore"
)

// raw is a session as it lies in Redis, but for what differs between two that were
// told the same: times, epochs, numbers of calls, names of chunks.
type raw struct {
	numbers           string // without what differs
	ops               string
	entries, pieces   []string
	chunks            []string
	affinity, expires uint64 // after the last turn
	ends              bool   // all its keys do
}

func readRaw(t *testing.T, s *Store, client *redis.Client, key statestore.SessionKey) raw {
	t.Helper()
	keys := s.keys.session(key.Digest())
	packed, err := client.Get(t.Context(), keys[keyRecord]).Result()
	if err != nil {
		t.Fatal(err)
	}
	im := image{packed: packed}
	var r raw
	r.numbers = strings.Join([]string{
		packed[atVersion : atChain+20], packed[atTombLife:atKeep], packed[atParked:numbersSize],
	}, "|")
	r.ops = packed[numbersSize:im.strings()]
	turned := im.uint(atCreated+6, 6)
	r.expires, r.affinity = im.uint(atExpires, 6)-turned, im.uint(atExpires+6, 6)-turned
	if im.uint(atDue, 6) > im.uint(atExpires, 6) {
		t.Error("it is due after it ends")
	}
	if im.uint(atKeep, 6) < im.uint(atExpires, 6)+im.uint(atTombLife, 6) {
		t.Error("its keys end before its tombstone would")
	}
	if r.entries, err = client.LRange(t.Context(), keys[keyDirectory], 0, -1).Result(); err != nil {
		t.Fatal(err)
	}
	for i, e := range r.entries {
		chunk, err := client.HGet(t.Context(), keys[keyLog], e[:12]).Result()
		if err != nil && e[:12] != strings.Repeat("\x00", 12) {
			t.Errorf("entry %d names no chunk: %v", i, err)
		}
		r.entries[i], r.chunks = e[12:], append(r.chunks, chunk)
	}
	n := client.HLen(t.Context(), keys[keyLog]).Val()
	if client.HExists(t.Context(), keys[keyLog], "m").Val() {
		n--
	}
	if n > int64(len(r.chunks)) {
		t.Errorf("%d chunks, %d entries", n, len(r.chunks))
	}
	if r.pieces, err = client.LRange(t.Context(), keys[keyOpen], 0, -1).Result(); err != nil {
		t.Fatal(err)
	}
	r.ends = true
	for _, k := range []string{keys[keyRecord], keys[keyDirectory], keys[keyLog], keys[keyOpen]} {
		left, err := client.PTTL(t.Context(), k).Result()
		r.ends = r.ends && err == nil && left != -1
	}
	return r
}

func (r *raw) equals(o *raw) bool {
	return r.numbers == o.numbers && r.ops == o.ops && slices.Equal(r.entries, o.entries) && slices.Equal(r.pieces, o.pieces) &&
		slices.Equal(r.chunks, o.chunks) && r.affinity == o.affinity && r.expires == o.expires && r.ends == o.ends
}

// An append that is worked out here lies in Redis, byte for byte, as one that Lua
// judged, whatever came before it.
func TestAppendsWorkedOutLieAsJudgedOnes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	judging, client := open(t, server.URL), server.Client(t)
	working := reopen(t, server.URL, judging)
	judging.lanes.alone = 1 << 30
	working.lanes.alone, working.lanes.fewest = 0, 1
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	pick := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
	for session := range 10 {
		compare(t, client, pick, session, judging, working)
	}
	stats, err := client.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	var held int
	if _, err := fmt.Sscanf(stats["Commandstats"]["cmdstat_getrange"], "calls=%d", &held); err != nil || held < 200 {
		t.Errorf("%d of 600 appends were worked out (%v)", held, err)
	}
}

// compare appends the same to a session of either store.
func compare(t *testing.T, client *redis.Client, pick *rand.Rand, session int, judging, working *Store) {
	t.Helper()
	judged, worked := newWriter(judging, fmt.Sprint("judged ", session)), newWriter(working, fmt.Sprint("worked out ", session))
	send := func(w *writer, a statestore.Append) statestore.Receipt {
		a.Key, a.By, a.Handle = w.key, w.by, w.handle
		r, err := w.s.Append(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		w.handle.Floor = r.Floor
		return r
	}
	for n := range 60 {
		a := randomAppend(pick, session, n)
		if v, err := judging.Lookup(t.Context(), judged.key); err == nil && pick.IntN(20) == 0 {
			base := v.Turns - min(v.Turns, pick.Uint64N(2))
			a.Base = &base
		}
		judging.skew.Add(pick.Int64N((20 * time.Minute).Milliseconds())) // and working's: it is the same
		x, y := send(judged, a), send(worked, a)
		x.Epoch, x.Floor.Epoch, y.Epoch, y.Floor.Epoch = 0, 0, 0, 0
		if x != y {
			t.Fatalf("append %d: judged %+v, worked out %+v", n, x, y)
		}
		was, is := readRaw(t, judging, client, judged.key), readRaw(t, working, client, worked.key)
		if !was.equals(&is) {
			t.Fatalf("session %d, append %d: judged\n%#v\nworked out\n%#v", session, n, was, is)
		}
	}
	if !slices.Equal(allTexts(t, judging, judged.key), allTexts(t, working, worked.key)) {
		t.Error("they hold different turns")
	}
}

// randomAppend is of sizes of which some fill chunks; in every other session the first
// thirty do not.
func randomAppend(pick *rand.Rand, session, n int) statestore.Append {
	a := statestore.Append{Op: fmt.Sprintf("op-%d", n), Lifetimes: lives}
	for range 1 + pick.IntN(8)/6 {
		size := []int{pick.IntN(300), 2000 + pick.IntN(2500), 4060 + pick.IntN(200), 4000 + pick.IntN(8000)}[pick.IntN(4)]
		switch {
		case session%4 == 0:
			size = min(size, 4000)
		case session%4 == 2 && n < 30:
			size = 4080 // one chunk, and nothing after it
		case session%2 == 0 && n < 30:
			size = min(size, 1500)
		}
		a.Turns = append(a.Turns, statestore.Turn{Type: statestore.TurnBytes, Value: noise(size), Tokens: pick.Uint64N(1 << 40)})
	}
	switch pick.IntN(20) {
	case 0:
		a.Meta = noise(10)
	case 1:
		a.Lifetimes.Retention = time.Duration(1+pick.IntN(48)) * time.Hour
		a.Lifetimes.Tombstone = time.Duration(1+pick.IntN(72)) * time.Hour
	}
	return a
}

// A session that another process writes to as well is judged in Redis, and loses
// nothing.
func TestImagesThatAreOutOfDate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	one := open(t, server.URL)
	two := reopen(t, server.URL, one)
	stores := []*Store{one, two}
	for _, s := range stores {
		s.lanes.alone, s.lanes.fewest = 0, 1
	}
	w := newWriter(one, "shared")
	var want []string
	for n := range 200 {
		w.s = stores[n/(1+n%7)%2]
		value := noise(1 + 37*n)
		w.append(t, value)
		want = append(want, string(value))
	}
	got := allTexts(t, one, w.key)
	if !slices.Equal(got, want) {
		t.Errorf("%d turns, want %d", len(got), len(want))
	}
	keys := one.keys.session(w.key.Digest())
	chunks, entries := server.Client(t).HLen(t.Context(), keys[keyLog]).Val(), server.Client(t).LLen(t.Context(), keys[keyDirectory]).Val()
	if chunks > entries {
		t.Errorf("%d chunks for %d entries", chunks, entries)
	}
}
