package routing

import (
	"fmt"
	"slices"
	"sort"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// reference is the ring's definition without its speed: every point in one
// sorted list.
type reference struct {
	slots  int
	points []referencePoint
}

type referencePoint struct {
	hash uint64
	id   string
}

func newReference(opts RingOptions, members []Member) reference {
	opts = opts.withDefaults()
	ref := reference{slots: opts.Slots}
	for _, m := range members {
		for i := range m.points(opts.Points) {
			key := m.ID + string([]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)})
			ref.points = append(ref.points, referencePoint{xxhash.Sum64String(key), m.ID})
		}
	}
	sort.Slice(ref.points, func(i, j int) bool {
		a, b := ref.points[i], ref.points[j]
		if a.hash != b.hash {
			return a.hash < b.hash
		}
		return a.id < b.id
	})
	return ref
}

// walk searches from the boundary of the hash's slot pair, upwards for an even
// slot and downwards for an odd one.
func (ref reference) walk(hash uint64) []string {
	width := ^uint64(0)/uint64(ref.slots) + 1
	slot := hash / width
	boundary := (slot - slot%2) * width
	n := len(ref.points)
	above := sort.Search(n, func(i int) bool { return ref.points[i].hash >= boundary })
	var order []string
	for k := range n {
		i := (above + k) % n
		if slot%2 == 1 {
			i = (above - 1 - k + 2*n) % n
		}
		if id := ref.points[i].id; !slices.Contains(order, id) {
			order = append(order, id)
		}
	}
	return order
}

func walkIDs(r *Ring, key string) []string {
	var ids []string
	w := r.Walk(key)
	for i, ok := w.Next(); ok; i, ok = w.Next() {
		ids = append(ids, r.ID(i))
	}
	return ids
}

// fleet names n members of weight 100.
func fleet(n int) []Member {
	members := make([]Member, n)
	for i := range members {
		members[i] = Member{ID: fmt.Sprintf("i%d", i), Weight: 100}
	}
	return members
}

func mustRing(t testing.TB, opts RingOptions, members []Member) *Ring {
	t.Helper()
	r, err := NewRing(opts, members)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustWith(t testing.TB, r *Ring, members []Member) *Ring {
	t.Helper()
	next, err := r.With(members)
	if err != nil {
		t.Fatal(err)
	}
	return next
}
