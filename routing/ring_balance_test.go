package routing

import (
	"fmt"
	"math"
	"testing"
)

// trialFleet names n members that share no id with another trial.
func trialFleet(trial, n int) []Member {
	members := make([]Member, n)
	for i := range members {
		members[i] = Member{ID: fmt.Sprintf("t%d-i%d", trial, i), Weight: 100}
	}
	return members
}

// keysMaxMean is the busiest member's number of keys over the mean.
func keysMaxMean(r *Ring, keys int) float64 {
	owned := make([]int, r.Len())
	for i := range keys {
		owned[r.slots[hashOf(i)>>r.shift]]++
	}
	most := 0
	for _, n := range owned {
		most = max(most, n)
	}
	return float64(most) * float64(r.Len()) / float64(keys)
}

// hashOf stands for the hash of the i-th of many keys (splitmix64).
func hashOf(i int) uint64 {
	x := uint64(i+1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Shares at 100 members and the default options: the mean over many fleets has
// to reach the target, because one fleet's ids can be lucky.
func TestBalanceTargets(t *testing.T) {
	t.Parallel()
	const trials, keys = 20, 1_000_000
	tests := []struct {
		name       string
		opts       RingOptions
		mean, most float64
	}{
		{"uncapped", RingOptions{}, 1.10, 1.15},
		{"capped at 105 %", RingOptions{CapPercent: 105}, 1.08, 1.08},
		{"2^18 slots", RingOptions{Slots: 1 << 18}, 1.09, 1.15},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sum, most := 0.0, 0.0
			for trial := range trials {
				ratio := keysMaxMean(mustRing(t, tt.opts, trialFleet(trial, 100)), keys)
				sum, most = sum+ratio, max(most, ratio)
			}
			t.Logf("max/mean of %d keys over %d fleets: mean %.3f, worst %.3f", keys, trials, sum/trials, most)
			if sum/trials > tt.mean || most > tt.most {
				t.Errorf("max/mean %.3f on average, %.3f at worst, want at most %.2f and %.2f",
					sum/trials, most, tt.mean, tt.most)
			}
		})
	}
}

// Slots halved between two directions spread better than the classic ring,
// whose shares deviate by 1/√512 = 4.4 % and the sampling by slots.
func TestTwoDirectionsBeatOne(t *testing.T) {
	t.Parallel()
	const trials = 10
	deviation := 0.0
	for trial := range trials {
		s := mustRing(t, RingOptions{}, trialFleet(trial, 100)).Spread()
		deviation += s.StdDev / trials
	}
	if deviation > 0.037 {
		t.Errorf("shares deviate by %.4f, want at most 0.037", deviation)
	}
}

func TestMovementTargets(t *testing.T) {
	t.Parallel()
	const trials = 20
	var added, removed, avoidable float64
	for trial := range trials {
		members := trialFleet(trial, 101)
		large := mustRing(t, RingOptions{}, members)
		small := mustWith(t, large, members[:100])
		up, down := small.Movement(large), large.Movement(small)
		added += up.Moved / up.Ideal / trials
		removed += down.Moved / down.Ideal / trials
		avoidable += up.Avoidable + down.Avoidable
	}
	t.Logf("moved on add %.3f, on remove %.3f of the ideal", added, removed)
	if added > 1.05 || removed > 1.05 || avoidable != 0 {
		t.Errorf("moved on add %.3f, on remove %.3f, avoidable %v; want at most 1.05, 1.05 and 0", added, removed, avoidable)
	}
}

// A newcomer that ramps in ten steps moves in total what it would at once.
func TestRampMovesNoMoreThanItsShare(t *testing.T) {
	t.Parallel()
	const trials = 10
	total := 0.0
	for trial := range trials {
		members := trialFleet(trial, 101)
		before := mustRing(t, RingOptions{}, members[:100])
		for step := 10; step <= 100; step += 10 {
			members[100].RampPercent = step
			after := mustWith(t, before, members)
			m := before.Movement(after)
			total += m.Moved * 101 / trials
			if m.Avoidable != 0 {
				t.Fatalf("step %d %%: avoidable movement %v", step, m.Avoidable)
			}
			before = after
		}
	}
	if total > 1.10 {
		t.Errorf("ramp moved %.3f of the ideal, want at most 1.10", total)
	}
}

func TestSharesFollowWeights(t *testing.T) {
	t.Parallel()
	members := fleet(20)
	for i := range members {
		members[i].Weight = []int{25, 100, 100, 400}[i%4]
	}
	r := mustRing(t, RingOptions{}, members)
	slots, share := 0, 0.0
	for _, s := range r.Shares() {
		slots, share = slots+s.Slots, share+s.Share
		if ratio := s.Share / s.Fair; ratio < 0.75 || ratio > 1.25 {
			t.Errorf("%s owns %.2f of its fair share", s.ID, ratio)
		}
	}
	if slots != DefaultSlots || math.Abs(share-1) > 1e-9 {
		t.Errorf("shares add up to %d slots, %v", slots, share)
	}
}

// Movement between tables of different size compares them at the finer one.
func TestMovementAcrossTableSizes(t *testing.T) {
	t.Parallel()
	coarse := mustRing(t, RingOptions{Slots: 1 << 10}, fleet(5))
	fine := mustRing(t, RingOptions{Slots: 1 << 12}, fleet(5))
	if m := coarse.Movement(coarse); m != (Movement{}) {
		t.Errorf("a ring moved against itself: %+v", m)
	}
	m := coarse.Movement(fine)
	if m.Moved <= 0 || m.Moved >= 1 || m.Ideal != 0 || math.Abs(m.Avoidable-m.Moved) > 1e-9 {
		t.Errorf("movement %+v, want some of it, all avoidable", m)
	}
}
