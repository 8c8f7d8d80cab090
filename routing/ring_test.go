package routing

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

var update = flag.Bool("update", false, "rewrite the golden placement, which moves every deployed session that is not bound")

// TestGoldenPlacement pins where 10,000 keys live: one digest of all owners
// and every 200th of them in clear, so that a difference can be read.
func TestGoldenPlacement(t *testing.T) {
	t.Parallel()
	members := fleet(100)
	for i := range members {
		members[i].Weight = []int{100, 100, 50, 200}[i%4]
	}
	r := mustRing(t, RingOptions{}, members)
	digest := xxhash.New()
	var got bytes.Buffer
	for i := range 10_000 {
		key := goldenKey(i)
		owner, _ := r.Owner(key)
		fmt.Fprintf(digest, "%s=%s\n", key, owner)
		if i%200 == 0 {
			fmt.Fprintf(&got, "%q %s\n", key, owner)
		}
	}
	fmt.Fprintf(&got, "owners %016x\nring %016x\n", digest.Sum64(), r.Checksum())
	const file = "testdata/placement.golden"
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("placement moved; got:\n%swant:\n%s", got.Bytes(), want)
	}
}

// goldenKey mixes the shapes session ids come in.
func goldenKey(i int) string {
	switch i % 4 {
	case 0:
		return fmt.Sprintf("session-%d", i)
	case 1:
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], uint64(i)*0x9e3779b97f4a7c15)
		return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	case 2:
		return fmt.Sprintf("Gespräch ☕ %d", i)
	}
	return strings.Repeat("k", i%256) + fmt.Sprint(i)
}

// R04: one point a host put 94 % of 100,000 keys on one of ten instances.
func TestR04KeysSpreadEvenly(t *testing.T) {
	t.Parallel()
	r := mustRing(t, RingOptions{}, fleet(10))
	keys := map[string]int{}
	for i := 1; i <= 100_000; i++ {
		owner, _ := r.Owner(fmt.Sprintf("sku-%d", i))
		keys[owner]++
	}
	for id, n := range keys {
		if n < 8_500 || n > 11_500 {
			t.Errorf("%s holds %d of 100,000 keys, want 0.85 to 1.15 of 10,000", id, n)
		}
	}
	if len(keys) != 10 {
		t.Errorf("%d instances hold keys, want 10", len(keys))
	}
}

// R05: rings that depended on the order of endpoints differed between load
// balancers. Here one replica learns all at once, the other one by one.
func TestR05RingDoesNotDependOnOrder(t *testing.T) {
	t.Parallel()
	first := mustRing(t, RingOptions{}, fleet(8))
	rng := rand.New(rand.NewPCG(5, 5))
	for range 5 {
		members := fleet(8)
		rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		second := mustRing(t, RingOptions{}, nil)
		for n := range members {
			second = mustWith(t, second, members[:n+1])
		}
		if first.Checksum() != second.Checksum() {
			t.Fatalf("checksums %x and %x", first.Checksum(), second.Checksum())
		}
		for i := range 10_000 {
			key := goldenKey(i)
			a, _ := first.Owner(key)
			if b, _ := second.Owner(key); a != b {
				t.Fatalf("%q belongs to %s and to %s", key, a, b)
			}
		}
	}
}

// R30: registering one URL twice doubled its share and left the old entry.
func TestR30ReregistrationLeavesNoDuplicate(t *testing.T) {
	t.Parallel()
	x := mustRing(t, RingOptions{}, []Member{{ID: "i1", Weight: 1}, {ID: "i2", Weight: 100}})
	y := mustRing(t, RingOptions{}, []Member{{ID: "i3", Weight: 100}})
	once := x.Points("i1")
	x = mustWith(t, x, []Member{{ID: "i2", Weight: 100}})
	y = mustWith(t, y, []Member{{ID: "i3", Weight: 100}, {ID: "i1", Weight: 2}})
	if x.Points("i1") != 0 || y.Points("i1") != 2*once || once == 0 {
		t.Errorf("points in x %d, in y %d, want 0 and twice %d", x.Points("i1"), y.Points("i1"), once)
	}
	if _, err := y.With([]Member{{ID: "i1", Weight: 100}, {ID: "i1", Weight: 200}}); err == nil {
		t.Error("a member listed twice was accepted")
	}
}

// Points are the weight's share of 512, rounded, and never none for a weight.
func TestPointsFollowTheWeight(t *testing.T) {
	t.Parallel()
	tests := []struct{ weight, ramp, points int }{
		{0, 0, 0}, {0, 50, 0}, {1, 1, 1}, {1, 0, 5}, {3, 0, 15}, {5, 0, 26}, {100, 0, 512}, {100, 100, 512},
		{100, 10, 51}, {100, 30, 154}, {250, 0, 1280}, {MaxWeight, 0, 51_200},
	}
	for _, tt := range tests {
		r := mustRing(t, RingOptions{}, []Member{{ID: "a", Weight: tt.weight, RampPercent: tt.ramp}})
		if got := r.Points("a"); got != tt.points || len(r.hashes) != tt.points {
			t.Errorf("weight %d, ramp %d %%: %d points, want %d", tt.weight, tt.ramp, got, tt.points)
		}
	}
}

func TestRingRefusesNonsense(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		opts    RingOptions
		members []Member
	}{
		"slots not a power of two": {opts: RingOptions{Slots: 65_000}},
		"too few slots":            {opts: RingOptions{Slots: 128}},
		"negative points":          {opts: RingOptions{Points: -1}},
		"cap below fair":           {opts: RingOptions{CapPercent: 99}},
		"no id":                    {members: []Member{{Weight: 1}}},
		"negative weight":          {members: []Member{{ID: "a", Weight: -1}}},
		"absurd weight":            {members: []Member{{ID: "a", Weight: MaxWeight + 1}}},
		"ramp above all":           {members: []Member{{ID: "a", Weight: 1, RampPercent: 101}}},
		"too many points":          {opts: RingOptions{Points: 1 << 14}, members: heavy(50)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := NewRing(tt.opts, tt.members); err == nil {
				t.Error("was accepted")
			}
		})
	}
}

func heavy(n int) []Member {
	members := fleet(n)
	for i := range members {
		members[i].Weight = MaxWeight
	}
	return members
}

func TestRingOfNobody(t *testing.T) {
	t.Parallel()
	for name, members := range map[string][]Member{"empty": nil, "weightless": {{ID: "a"}}} {
		r := mustRing(t, RingOptions{}, members)
		if owner, ok := r.Owner("k"); ok {
			t.Errorf("%s ring: owner %q", name, owner)
		}
		if walk := walkIDs(r, "k"); len(walk) != 0 {
			t.Errorf("%s ring: walk %v", name, walk)
		}
		if r.Spread() != (Spread{}) || r.first(1, newBitset(1)) != -1 {
			t.Errorf("%s ring pretends to hold something", name)
		}
		if shares := r.Shares(); len(shares) != len(members) {
			t.Errorf("%s ring: shares %v", name, shares)
		}
		for _, s := range r.Shares() {
			if s != (Share{ID: s.ID}) {
				t.Errorf("%s ring: share %+v", name, s)
			}
		}
		if m := r.Movement(mustRing(t, RingOptions{}, nil)); m != (Movement{}) {
			t.Errorf("%s ring: %+v to an empty one", name, m)
		}
	}
}

// A walk past 1,024 members keeps its memory elsewhere.
func TestWalkOfALargeRing(t *testing.T) {
	t.Parallel()
	r := mustRing(t, RingOptions{Points: 8}, fleet(1500))
	walk := walkIDs(r, "k")
	slices.Sort(walk)
	if len(slices.Compact(walk)) != 1500 {
		t.Errorf("walk yields %d members, want 1500", len(walk))
	}
}

// Equal hashes are ordered by id. No two short inputs collide, so the points
// are set by hand.
func TestTiesOrderByID(t *testing.T) {
	t.Parallel()
	p := pointSlice{hashes: []uint64{7, 7, 3, 7}, owners: []uint16{2, 0, 9, 1}}
	sortBucket(p)
	if !slices.Equal(p.owners, []uint16{9, 0, 1, 2}) {
		t.Errorf("owners in order %v", p.owners)
	}
	// A point that is merged in stands after those of lower ids, even where
	// the members' indexes change at the same time.
	old := &Ring{pairShift: 57, hashes: []uint64{3, 7, 7, 9}, owners: []uint16{0, 0, 1, 0}, starts: make([]uint32, 128)}
	toNew := []uint16{0, 2}
	for owner, pos := range map[uint16]uint32{0: 1, 1: 2, 3: 3} {
		if c := old.addition(7, owner, toNew); c.pos != pos {
			t.Errorf("point of member %d goes to %d, want %d", owner, c.pos, pos)
		}
	}
	if c := old.removal(7, 1); c.pos != 2 || !c.drop {
		t.Errorf("point of member 1 found as %+v", c)
	}
	changes := []change{{hash: 7, pos: 2, drop: true}, {hash: 7, pos: 2, owner: 3}, {hash: 7, pos: 2, owner: 1}, {hash: 7, pos: 1}, {hash: 5, pos: 1}}
	slices.SortFunc(changes, compareChanges)
	want := []change{{hash: 5, pos: 1}, {hash: 7, pos: 1}, {hash: 7, pos: 2, owner: 1}, {hash: 7, pos: 2, owner: 3}, {hash: 7, pos: 2, drop: true}}
	if !slices.Equal(changes, want) {
		t.Errorf("changes in order %+v", changes)
	}
}

// Many points in one pair of slots take the general sort.
func TestCrowdedBucketsSort(t *testing.T) {
	t.Parallel()
	r := mustRing(t, RingOptions{Slots: minSlots, Points: 1 << 14}, fleet(3))
	if !slices.IsSorted(r.hashes) {
		t.Error("points are not in order")
	}
	if len(r.hashes) != 3<<14 {
		t.Errorf("%d points", len(r.hashes))
	}
}
