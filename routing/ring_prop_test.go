package routing

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"
)

// drawMembers draws up to most members with any weights and ramps.
func drawMembers(t *rapid.T, least, most int) []Member {
	ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9.:-]{1,12}`), least, most, rapid.ID[string]).Draw(t, "ids")
	members := make([]Member, len(ids))
	for i, id := range ids {
		members[i] = Member{
			ID:          id,
			Weight:      rapid.SampledFrom([]int{0, 1, 25, 100, 100, 100, 400}).Draw(t, "weight"),
			RampPercent: rapid.SampledFrom([]int{0, 0, 10, 55, 100}).Draw(t, "ramp"),
		}
	}
	return members
}

// drawOptions draws small rings, where collisions and empty pairs are common.
func drawOptions(t *rapid.T) RingOptions {
	return RingOptions{
		Points: rapid.SampledFrom([]int{1, 8, 64, 512}).Draw(t, "points"),
		Slots:  1 << rapid.IntRange(8, 13).Draw(t, "slot bits"),
	}
}

func shuffled(t *rapid.T, members []Member) []Member {
	seed := rapid.Uint64().Draw(t, "shuffle seed")
	out := slices.Clone(members)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func TestRingIgnoresMemberOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		opts := drawOptions(t)
		opts.CapPercent = rapid.SampledFrom([]int{0, 105, 110}).Draw(t, "cap")
		members := drawMembers(t, 0, 20)
		a, errA := NewRing(opts, members)
		b, errB := NewRing(opts, shuffled(t, members))
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if !reflect.DeepEqual(a, b) || a.Checksum() != b.Checksum() {
			t.Fatal("the order of members changed the ring")
		}
	})
}

// checkMoves compares two tables slot by slot.
func checkMoves(t *rapid.T, before, after *Ring, allowed func(slot int, from, to string) bool) {
	for slot := range before.slots {
		from, to := before.ids[before.slots[slot]], after.ids[after.slots[slot]]
		if from != to && !allowed(slot, from, to) {
			t.Fatalf("slot %d moved from %s to %s", slot, from, to)
		}
	}
}

// positive gives every member some weight, so that both rings own every slot.
func positive(members []Member) []Member {
	for i := range members {
		members[i].Weight = max(1, members[i].Weight)
	}
	return members
}

func TestAddMovesOnlyToTheNewcomer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		opts, members := drawOptions(t), positive(drawMembers(t, 2, 15))
		newcomer := members[0].ID
		after, _ := NewRing(opts, members)
		before, _ := after.With(members[1:])
		checkMoves(t, before, after, func(_ int, _, to string) bool { return to == newcomer })
		if m := before.Movement(after); m.Avoidable != 0 {
			t.Fatalf("avoidable movement %v", m.Avoidable)
		}
	})
}

func TestRemoveMovesOnlyTheLeaversKeys(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		opts, members := drawOptions(t), positive(drawMembers(t, 2, 15))
		leaver := members[0].ID
		before, _ := NewRing(opts, members)
		after, _ := before.With(members[1:])
		ref := newReference(opts, members)
		checkMoves(t, before, after, func(slot int, from, to string) bool {
			return from == leaver && to == ref.walk(uint64(slot) << before.shift)[1]
		})
		if m := before.Movement(after); m.Avoidable != 0 {
			t.Fatalf("avoidable movement %v", m.Avoidable)
		}
	})
}

// Skipping a member on the walk and rebuilding without it have to agree, or a
// session that failed over would be placed elsewhere once its dead owner is
// deregistered.
func TestSkippingAMemberEqualsRemovingIt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		members := positive(drawMembers(t, 2, 12))
		before, _ := NewRing(drawOptions(t), members)
		after, _ := before.With(members[1:])
		key := rapid.String().Draw(t, "key")
		skipped := slices.DeleteFunc(walkIDs(before, key), func(id string) bool { return id == members[0].ID })
		if got := walkIDs(after, key); !slices.Equal(got, skipped) {
			t.Fatalf("walk %v, want %v", got, skipped)
		}
	})
}

func TestRaisingAWeightOnlyAdds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		opts, members := drawOptions(t), positive(drawMembers(t, 1, 15))
		before, _ := NewRing(opts, members)
		members = slices.Clone(members)
		raised := &members[0]
		raised.Weight = rapid.IntRange(raised.Weight, 2*raised.Weight).Draw(t, "weight")
		if raised.RampPercent > 0 {
			raised.RampPercent = rapid.IntRange(raised.RampPercent, 100).Draw(t, "ramp")
		}
		after, _ := before.With(members)
		if after.Points(raised.ID) < before.Points(raised.ID) {
			t.Fatal("a raise took points away")
		}
		checkMoves(t, before, after, func(_ int, _, to string) bool { return to == raised.ID })
		for i, h := range before.hashes {
			if !after.hasPoint(h, before.ids[before.owners[i]]) {
				t.Fatalf("point %x of %s is gone", h, before.ids[before.owners[i]])
			}
		}
	})
}

func (r *Ring) hasPoint(hash uint64, id string) bool {
	for i, h := range r.hashes {
		if h == hash && r.ids[r.owners[i]] == id {
			return true
		}
	}
	return false
}

func TestWalkYieldsEachMemberOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		opts := drawOptions(t)
		opts.CapPercent = rapid.SampledFrom([]int{0, 0, 110}).Draw(t, "cap")
		members := drawMembers(t, 0, 20)
		r, _ := NewRing(opts, members)
		key := rapid.String().Draw(t, "key")
		walk := walkIDs(r, key)
		var want []string
		for _, m := range members {
			if m.Weight > 0 {
				want = append(want, m.ID)
			}
		}
		owner, ok := r.Owner(key)
		if ok != (len(want) > 0) || ok && walk[0] != owner {
			t.Fatalf("owner %q, %v; walk %v", owner, ok, walk)
		}
		slices.Sort(walk)
		slices.Sort(want)
		if !slices.Equal(walk, want) {
			t.Fatalf("walk yields %v, members with points are %v", walk, want)
		}
	})
}

func TestWalkFollowsItsDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		opts, members := drawOptions(t), drawMembers(t, 0, 10)
		r, _ := NewRing(opts, members)
		ref := newReference(opts, members)
		for range 10 {
			key := rapid.String().Draw(t, "key")
			if got, want := walkIDs(r, key), ref.walk(xxhash.Sum64String(key)); !slices.Equal(got, want) {
				t.Fatalf("walk of %q is %v, want %v", key, got, want)
			}
		}
	})
}

func TestWithEqualsNewRing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		opts := drawOptions(t)
		opts.CapPercent = rapid.SampledFrom([]int{0, 0, 110}).Draw(t, "cap")
		members := drawMembers(t, 0, 20)
		r, _ := NewRing(opts, members)
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			members = changeSome(t, members)
			next, err := r.With(members)
			if err != nil {
				t.Fatal(err)
			}
			whole, _ := NewRing(opts, members)
			if !sameRing(next, whole) {
				t.Fatalf("merged ring differs from the one built whole, members %v", members)
			}
			r = next
		}
	})
}

// changeSome drops, adds and reweighs a few members at once.
func changeSome(t *rapid.T, members []Member) []Member {
	members = shuffled(t, members)
	members = members[:len(members)-rapid.IntRange(0, min(2, len(members))).Draw(t, "dropped")]
	for i := range members {
		if rapid.IntRange(0, 5).Draw(t, "reweigh") == 0 {
			members[i].Weight = rapid.IntRange(0, 300).Draw(t, "weight")
		}
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "added") {
		id := fmt.Sprintf("%s-%d-%d", rapid.StringMatching(`[a-z]{1,3}`).Draw(t, "id"), len(members), i)
		if !slices.ContainsFunc(members, func(m Member) bool { return m.ID == id }) {
			members = append(members, Member{ID: id, Weight: 100})
		}
	}
	return members
}

func sameRing(a, b *Ring) bool {
	return slices.Equal(a.ids, b.ids) && slices.Equal(a.counts, b.counts) && a.placed == b.placed &&
		slices.Equal(a.hashes, b.hashes) && slices.Equal(a.owners, b.owners) &&
		slices.Equal(a.starts, b.starts) && slices.Equal(a.slots, b.slots) && a.Checksum() == b.Checksum()
}

func TestCapHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		opts := RingOptions{Slots: 1 << 12, CapPercent: rapid.IntRange(101, 120).Draw(t, "cap")}
		r, _ := NewRing(opts, positive(drawMembers(t, 1, 20)))
		for _, s := range r.Shares() {
			quota := s.Fair*float64(opts.CapPercent)/100*float64(opts.Slots) + 1
			if float64(s.Slots) > quota {
				t.Fatalf("%s owns %d slots, its quota is %.1f", s.ID, s.Slots, quota)
			}
		}
	})
}
