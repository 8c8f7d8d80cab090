package main

import "slices"

// fleetSize is how many members balance and movement are measured with.
const fleetSize = 100

// quality says how a subject spreads keys and what a change moves. All of it is
// the mean over several fleets.
type quality struct {
	maxMean   float64 // keys of the busiest member ÷ mean
	added     float64 // keys that move when a member joins ÷ its fair share
	removed   float64 // keys that move when a member leaves ÷ its fair share
	avoidable float64 // part of all keys that moved although neither end of the move came or went, in percent
}

// judge measures a subject on several fleets.
func (s *subject) judge(points, fleets int, keys []string) (q quality, err error) {
	for fleet := range fleets {
		one, err := s.judgeFleet(memberNames(fleet, fleetSize+1), points, keys)
		if err != nil {
			return quality{}, err
		}
		n := float64(fleets)
		q.maxMean += one.maxMean / n
		q.added += one.added / n
		q.removed += one.removed / n
		q.avoidable += one.avoidable / n
	}
	return q, nil
}

// judgeFleet counts on one fleet: the last member joins, then one from the
// middle leaves. Movement is counted on every fourth key.
func (s *subject) judgeFleet(members []string, points int, keys []string) (quality, error) {
	small := members[:fleetSize]
	t, err := s.build(small, points, patience())
	if err != nil {
		return quality{}, err
	}
	defer func() { t.stop() }()
	var q quality
	q.maxMean = spread(&t, keys)
	sample := keys[:len(keys)/4]
	before := owners(&t, sample)

	newcomer := members[fleetSize]
	if err := t.add(newcomer); err != nil {
		return quality{}, err
	}
	grown := owners(&t, sample)

	leaver := members[fleetSize/2]
	if t.remove != nil {
		err = t.remove(leaver)
	} else {
		t, err = s.build(without(members, leaver), points, patience())
	}
	if err != nil {
		return quality{}, err
	}
	shrunk := owners(&t, sample)

	fair := float64(len(sample)) / float64(fleetSize+1)
	moved, needless := movement(before, grown, newcomer)
	q.added = float64(moved) / fair
	again, more := movement(grown, shrunk, leaver)
	q.removed = float64(again) / fair
	q.avoidable = 100 * float64(needless+more) / float64(2*len(sample))
	return q, nil
}

func spread(t *table, keys []string) float64 {
	owned := make(map[string]int, fleetSize)
	for _, key := range keys {
		owned[t.owner(key)]++
	}
	most := 0
	for _, n := range owned {
		most = max(most, n)
	}
	return float64(most) * fleetSize / float64(len(keys))
}

func owners(t *table, keys []string) []string {
	list := make([]string, len(keys))
	for i, key := range keys {
		list[i] = t.owner(key)
	}
	return list
}

// movement counts the keys whose owner changed, and those of them that moved
// between two members of which neither is the one that came or went.
func movement(before, after []string, changed string) (moved, needless int) {
	for i, from := range before {
		if to := after[i]; from != to {
			moved++
			if from != changed && to != changed {
				needless++
			}
		}
	}
	return moved, needless
}

func without(members []string, leaver string) []string {
	var rest []string
	for _, id := range members {
		if id != leaver {
			rest = append(rest, id)
		}
	}
	return rest
}

// candidates are the numbers of points that are tried for equal balance.
var candidates = []int{128, 160, 256, 384, 512, 768, 1024, 1536, 2048}

// evenPoints is the lowest candidate at which a subject spreads keys at least as
// evenly as the target, found by halving: more points never spread worse, but
// for chance. It is 0 where the most points are not enough; best is what they
// reach.
func (s *subject) evenPoints(target float64, fleets int, keys []string) (points int, best float64, err error) {
	list := slices.DeleteFunc(slices.Clone(candidates), func(n int) bool { return n < s.points })
	low, high := 0, len(list)-1
	if best, err = s.evenness(list[high], fleets, keys); err != nil || best > target {
		return 0, best, err
	}
	for low < high {
		middle := (low + high) / 2
		mean, err := s.evenness(list[middle], fleets, keys)
		switch {
		case err != nil:
			return 0, best, err
		case mean <= target:
			high = middle
		default:
			low = middle + 1
		}
	}
	return list[high], best, nil
}

// evenness is max/mean with so many points, the mean of several fleets.
func (s *subject) evenness(points, fleets int, keys []string) (mean float64, err error) {
	for fleet := range fleets {
		t, err := s.build(memberNames(fleet, fleetSize), points, patience())
		if err != nil {
			return 0, err
		}
		mean += spread(&t, keys) / float64(fleets)
		t.stop()
	}
	return mean, nil
}
