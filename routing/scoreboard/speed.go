package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// chainKeys is the length of a round: few enough that a table that fits in L2
// stays there beside the keys.
const chainKeys = 1 << 10

// sessionKeys makes n ids of 36 bytes, as sessions have them.
func sessionKeys(n int) []string {
	source := rand.NewPCG(1, 2)
	keys := make([]string, n)
	for i := range keys {
		a, b := source.Uint64(), source.Uint64()
		keys[i] = fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", uint32(a), uint16(a>>32), uint16(a>>48), uint16(b), b>>16)
	}
	return keys
}

// nothing is zero, which the compiler cannot know: it makes a step wait for the
// answer of the one before and leaves the order of keys alone.
var nothing int

var sink int

// chain looks every key up, the next one depending on the last answer.
func chain(keys []string, owner func(key string) string) time.Duration {
	begin, last, mask := time.Now(), 0, nothing
	for i := range chainKeys {
		last = len(owner(keys[(i+last&mask)&(chainKeys-1)]))
	}
	sink = last
	return time.Since(begin)
}

// hashOnly is the least a lookup can do: the key's hash, and a name by it.
func hashOnly(key string) string { return key[xxhash.Sum64String(key)>>60:] }

// flow looks every key up, no lookup depending on another.
func flow(keys []string, owner func(key string) string) time.Duration {
	begin, last := time.Now(), 0
	for i := range chainKeys {
		last += len(owner(keys[i]))
	}
	sink = last
	return time.Since(begin)
}

// lookups measures every table, round by round, each beside the same loop that
// only hashes the keys. It returns for each the median of the rounds' ratios, for
// lookups in a chain and abreast, and the allocations of one lookup.
func lookups(tables []table, rounds int, keys []string) (chained, abreast, allocs []float64) {
	keys = keys[:chainKeys]
	inChain, inFlow := make([][]float64, len(tables)), make([][]float64, len(tables))
	for _, t := range tables {
		allocs = append(allocs, allocations(keys, t.owner))
	}
	for range rounds {
		for i, t := range tables {
			chain(keys, t.owner) // the tables of the others have pushed this one out
			inChain[i] = append(inChain[i], against(keys, t.owner, chain))
			inFlow[i] = append(inFlow[i], against(keys, t.owner, flow))
		}
	}
	for i := range tables {
		chained, abreast = append(chained, median(inChain[i])), append(abreast, median(inFlow[i]))
	}
	return chained, abreast, allocs
}

// against is a loop's cost over the hash's: each the fastest of three in turn,
// for whoever else uses the machine only ever adds.
func against(keys []string, owner func(string) string, loop func([]string, func(string) string) time.Duration) float64 {
	hash, full := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for range 3 {
		hash = min(hash, loop(keys, hashOnly))
		full = min(full, loop(keys, owner))
	}
	return float64(full) / float64(hash)
}

// allocations is how often one lookup allocates.
func allocations(keys []string, owner func(string) string) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	chain(keys, owner)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / chainKeys
}

// series is what one kind of work took in each round, in milliseconds; the
// rounds of all subjects are interleaved.
type series []float64

// over is the median of the rounds' ratios to another's.
func (s series) over(other series) float64 {
	var ratios []float64
	for i := range min(len(s), len(other)) {
		ratios = append(ratios, s[i]/other[i])
	}
	return median(ratios)
}

// changes measures, in interleaved rounds, building every row's table of 100
// members, adding one and removing it again. Where a table cannot remove, it is
// built anew.
func changes(rows []*row, rounds int) error {
	names := memberNames(0, fleetSize+1)
	small, newcomer := names[:fleetSize], names[fleetSize]
	for range rounds {
		for _, r := range rows {
			if err := r.change(small, newcomer); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	return nil
}

func (r *row) change(small []string, newcomer string) error {
	var t table
	build := func() (err error) {
		t, err = r.subject.build(small, r.given, patience())
		return err
	}
	if err := r.builds.time(build); err != nil {
		return err
	}
	defer func() { t.stop() }()
	if err := r.adds.time(func() error { return t.add(newcomer) }); err != nil {
		return err
	}
	if r.anew = t.remove == nil; r.anew {
		return r.removes.time(build)
	}
	return r.removes.time(func() error { return t.remove(newcomer) })
}

// patience is when a build has taken too long.
func patience() time.Time { return time.Now().Add(time.Minute) }

func (t *table) stop() {
	if t.close != nil {
		t.close()
	}
}

// time runs work and notes what it took.
func (s *series) time(work func() error) error {
	begin := time.Now()
	err := work()
	*s = append(*s, float64(time.Since(begin).Nanoseconds())/1e6)
	return err
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
