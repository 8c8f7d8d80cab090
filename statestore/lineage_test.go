package statestore_test

import (
	"testing"

	"berth/statestore"
)

// grown is a record after n appends of one turn each, over a tombstone of
// epoch 50.
func grown(n uint64) statestore.Record {
	r := statestore.Record{Epoch: 100, Before: statestore.Tombstone{Epoch: 50, Reason: statestore.Deleted}}
	r.Changes = []statestore.OwnerChange{{Epoch: 100}}
	for v := uint64(1); v <= n; v++ {
		r.Version, r.Turns = v, v
		r.Ops = append(r.Ops, statestore.Op{Op: statestore.OpDigest{byte(v)}, Version: v, Kept: v - 1})
	}
	r.Ops = r.Ops[max(0, len(r.Ops)-statestore.OpsRemembered):]
	return r
}

func TestBaseNeverCoversTurnsThatAreNotKnownToBeTheSame(t *testing.T) {
	t.Parallel()
	at := func(v uint64) statestore.Floor {
		return statestore.Floor{Epoch: 100, Version: v, Op: statestore.OpDigest{byte(v)}}
	}
	rewritten := grown(9)
	rewritten.Ops[8].Kept, rewritten.Turns, rewritten.Rewritten = 3, 4, 9

	for _, c := range []struct {
		name   string
		record statestore.Record
		floor  statestore.Floor
		turns  uint64
		want   uint64
	}{
		{"the present version", grown(9), at(9), 9, 9},
		{"the present version and turns that were never stored", grown(9), at(9), 11, 9},
		{"an earlier version", grown(9), at(6), 6, 6},
		{"an earlier version and turns that were never stored", grown(9), at(6), 8, 6},
		{"a shorter copy than its version had", grown(9), at(6), 2, 2},
		{"before a rewrite", rewritten, at(8), 8, 3},
		{"another op at that version", grown(9), statestore.Floor{Epoch: 100, Version: 6}, 6, 0},
		{"a version above", grown(9), at(10), 10, 0},
		{"all ops since are remembered", grown(40), at(8), 8, 8},
		{"older than the remembered ops", grown(40), at(7), 7, 0},
		{"an ended life", grown(40), statestore.Floor{Epoch: 49, Version: 1}, 1, 0},
		{"nothing seen yet", grown(9), statestore.Floor{Epoch: 50}, 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := c.record.Base(c.floor, c.turns); got != c.want {
				t.Fatalf("base %d, want %d", got, c.want)
			}
		})
	}
}
