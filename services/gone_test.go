package services

import (
	"slices"
	"testing"
	"time"

	"berth/statestore"
)

// An instance is removed when the store has it as down for an hour and this holding
// of the lease has seen it down for a while.
func TestWhoIsRemovedAsGone(t *testing.T) {
	t.Parallel()
	const hour, patience = time.Hour, 15 * time.Second
	start := time.Unix(1_900_000_000, 0)
	stored := statestore.Millis(5e12)
	down := statestore.Instance{
		InstanceSpec: statestore.InstanceSpec{ID: "i1", Incarnation: "x"}, Verdict: statestore.Verdict{Health: statestore.Down}, DownSince: stored, BeatAt: stored - 15_000,
	}
	suspect, heard, well := down, down, down
	suspect.ID, suspect.Health = "i2", statestore.Suspect
	heard.ID, heard.BeatAt = "i3", stored+1
	well.ID, well.Health, well.DownSince = "i4", statestore.Healthy, 0
	g := newGoneWatch(hour, patience)
	// look is a look at the fleet, at times since it went down: the store's and ours.
	look := func(token uint64, storeTime, own time.Duration, instances ...statestore.Instance) []statestore.Owner {
		return g.due(token, &statestore.FleetView{Now: stored.Add(storeTime), Instances: instances}, start.Add(own))
	}
	all := []statestore.Instance{down, suspect, heard, well}
	for _, s := range []struct {
		what        string
		token       uint64
		storeTime   time.Duration
		own         time.Duration
		instances   []statestore.Instance
		wantRemoved bool
	}{
		{"just now", 1, 0, 0, all, false},
		{"almost an hour", 1, hour - 1*time.Millisecond, hour - time.Second, all, false},
		{"an hour", 1, hour, hour, all, true},
		{"still there", 1, hour + time.Second, hour + time.Second, all, true},
		{"under another holding", 2, hour + 2*time.Second, hour + 2*time.Second, all, false},
		{"that has just begun", 2, hour + 16*time.Second, hour + 16*time.Second, all, false},
		{"that has seen it down for a while", 2, hour + 17*time.Second, hour + 17*time.Second, all, true},
		{"the store's clock went back", 2, hour - time.Minute, hour + 18*time.Second, all, false},
		{"not seen down", 2, hour, hour + 19*time.Second, []statestore.Instance{well}, false},
		{"down again, and the store's clock jumped", 2, 2 * hour, hour + 20*time.Second, all, false},
	} {
		var want []statestore.Owner
		if s.wantRemoved {
			want = []statestore.Owner{down.Owner()}
		}
		if got := look(s.token, s.storeTime, s.own, s.instances...); !slices.Equal(got, want) {
			t.Errorf("%s: removes %v, want %v", s.what, got, want)
		}
	}
}
