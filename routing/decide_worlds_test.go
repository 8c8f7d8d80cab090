package routing

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

var bools = []bool{false, true}

// The two memberships of the table, by whether the owner is gone: a snapshot
// each, so that no world builds a ring, and the walks of every key by the
// reference.
var (
	tableRings = map[bool]*Snapshot{}
	tableWalks = map[walkOf][]string{}
	tableKeys  []string
)

// walkOf names a walk; turned is that of the second pick without a session.
type walkOf struct {
	ownerGone bool
	key       string
	turned    bool
}

func tableWalk(w world, turned bool) []string {
	return tableWalks[walkOf{w.ownerState == Unknown, w.key, turned}]
}

func init() {
	for _, gone := range bools {
		w := world{ownerState: Ready, othersState: Ready}
		if gone {
			w.ownerState = Unknown
		}
		s, err := NewSnapshot(Spec{Policy: tablePolicy, Instances: w.instances()}, nil)
		if err != nil {
			panic(err)
		}
		tableRings[gone] = s
	}
	tableKeys = []string{"", keyWhoseWalkBegins("owner", "b"), keyWhoseWalkBegins("b", "owner"), keyWhoseWalkBegins("x", "c")}
	for gone, s := range tableRings {
		var members []Member
		for in := range s.Instances() {
			members = append(members, in.member())
		}
		ref := newReference(RingOptions{}, members)
		for _, key := range tableKeys {
			h := xxhash.Sum64String(cmp.Or(key, tableRequestID))
			tableWalks[walkOf{gone, key, false}] = ref.walk(h)
			tableWalks[walkOf{gone, key, true}] = ref.walk(h<<32 | h>>32)
		}
	}
}

const tableRequestID = "r"

// keyWhoseWalkBegins finds a key by the first two instances of its walk.
func keyWhoseWalkBegins(ids ...string) string {
	ring := tableRings[false].Ring()
	for i := range 1_000_000 {
		key := fmt.Sprintf("session-%d", i)
		if slices.Equal(walkIDs(ring, key)[:len(ids)], ids) {
			return key
		}
	}
	panic("no such key")
}

// eachPool goes through everything a snapshot holds.
func eachPool(yield func(world)) {
	states := []State{Unknown, Warming, Ready, Draining, Drained, Suspect, Down, Cordoned}
	for _, st := range states {
		for _, breaker := range []Breaker{BreakerClosed, BreakerOpen, BreakerTrial, BreakerSaturated} {
			if st == Unknown && breaker != BreakerClosed {
				continue // who is not there has no breaker
			}
			for others := range 8 {
				for flags := range 8 {
					if others > 1 && (others%2 == 1 || flags&4 != 0) {
						continue // their load and shedding matter while they may be chosen
					}
					if breaker == BreakerSaturated && flags&1 != 0 {
						continue // of many requests only some leave, by lot: see shed_test.go
					}
					yield(world{
						ownerState: st, ownerBreaker: breaker, ownerLoaded: flags&1 != 0,
						othersState:  []State{Ready, Down, Cordoned, Ready}[others/2],
						othersOpen:   others/2 == 3,
						othersLoaded: others%2 == 1,
						panic:        flags&2 != 0, shed: flags&4 != 0,
					})
				}
			}
		}
	}
}

// eachRequest goes through everything that comes with a request.
func eachRequest(w world, yield func(world)) {
	addresses := func(ids ...string) []string {
		list := make([]string, len(ids))
		for i, id := range ids {
			list[i] = tableAddress(id)
		}
		return list
	}
	subsets := [][]string{nil, addresses("owner", "b", "c"), addresses("b", "c"), addresses("owner"), {}}
	for _, key := range tableKeys {
		for _, subset := range subsets {
			for _, excluded := range bools {
				for _, granted := range bools {
					w.key, w.subset, w.excluded, w.granted = key, subset, excluded, granted
					eachRecord(w, yield)
				}
			}
		}
	}
}

// eachRecord goes through the records: ages and incarnations matter to a live
// one alone.
func eachRecord(w world, yield func(world)) {
	w.incarnation = "boot"
	for _, kind := range []string{"none", "released", "lapsed"} {
		w.record = kind
		yield(w)
	}
	w.record = "live"
	for _, incarnation := range []string{"boot", "boot before"} {
		for _, age := range []time.Duration{time.Second, 2 * time.Minute, 5 * time.Hour} {
			w.incarnation, w.age = incarnation, age
			yield(w)
		}
	}
}
