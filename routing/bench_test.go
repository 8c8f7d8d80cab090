package routing

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// The lookup benchmarks measure one chain of dependent steps, in which each
// answer is waited for before the next key, interleaved with a chain that only
// hashes. What they report as x_hash is the ratio of the lower quartiles of the
// two, which holds on a noisy machine where nanoseconds do not. 1,024 keys
// leave the table in L2, where it belongs, and do not push the rest out of L1:
// the key of a real request is there from having been parsed.

const benchKeys = 1 << 10

func benchKeyTable() []string {
	keys := make([]string, benchKeys)
	for i := range keys {
		a, b := hashOf(2*i), hashOf(2*i+1)
		keys[i] = fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", uint32(a), uint16(a>>32), uint16(a>>48), uint16(b), b>>16)
	}
	return keys
}

var sink int

// nothing is zero, which the compiler cannot know: it makes a step wait for the
// one before and leaves the order of keys alone.
var nothing int

// timeChain runs one round of a chain.
func timeChain(keys []string, step func(key string) int) time.Duration {
	begin, last, mask := time.Now(), 0, nothing
	for i := range benchKeys {
		last = step(keys[(i+last&mask)&(benchKeys-1)])
	}
	sink = last
	return time.Since(begin)
}

func hashOnly(key string) int { return int(xxhash.Sum64String(key) >> 52) }

// againstHash reports a step's cost as a multiple of the hash's under a name.
func againstHash(b *testing.B, unit string, step func(key string) int) {
	keys := benchKeyTable()
	var base, full []time.Duration
	for b.Loop() {
		base = append(base, timeChain(keys, hashOnly))
		full = append(full, timeChain(keys, step))
	}
	slices.Sort(base)
	slices.Sort(full)
	b.ReportMetric(float64(full[len(full)/4])/float64(base[len(base)/4]), unit)
	b.ReportMetric(0, "ns/op")
}

func benchFleet(b testing.TB, n int) *Snapshot {
	b.Helper()
	s, err := NewSnapshot(Spec{Version: 1, Policy: DefaultPolicy(), Instances: readyFleet(n)}, nil)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkLookup: snapshot, health and name included; target 1.30. The chain
// of x_hash waits until the instance is known and reads its name beside that;
// the one of x_hash_named waits for the name as well.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		var current atomic.Pointer[Snapshot]
		current.Store(benchFleet(b, n))
		b.Run(fmt.Sprintf("N=%d", n), func(b *testing.B) {
			names := 0
			againstHash(b, "x_hash", func(key string) int {
				in := current.Load().Owner(key)
				names += len(in.ID)
				return int(uintptr(unsafe.Pointer(in)))
			})
			sink += names
		})
		b.Run(fmt.Sprintf("N=%d/named", n), func(b *testing.B) {
			againstHash(b, "x_hash_named", func(key string) int { return len(current.Load().Owner(key).ID) })
		})
	}
}

// BenchmarkWalk: the 2nd and the 5th distinct instance; targets 1.9 and 2.3.
func BenchmarkWalk(b *testing.B) {
	for _, nth := range []int{2, 5} {
		b.Run(fmt.Sprintf("N=100/nth=%d", nth), func(b *testing.B) {
			r := benchFleet(b, 100).Ring()
			againstHash(b, "x_hash", func(key string) int {
				w, owner := r.Walk(key), 0
				for range nth {
					owner, _ = w.Next()
				}
				return owner
			})
		})
	}
}

// BenchmarkDecide: the two decisions that most requests are.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 1000} {
		s := benchFleet(b, n)
		bound := Record{Exists: true, Owner: "i3", Incarnation: "boot"}
		for name, rec := range map[string]Record{"bound": bound, "new": {}} {
			b.Run(fmt.Sprintf("N=%d/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				req := Request{Key: "f2a8c1d0-77aa-4c11-9d2e-0123456789ab", RequestID: "r1"}
				for b.Loop() {
					sink += len(Decide(s, req, rec).Instance.ID)
				}
			})
		}
	}
}

// quartile times each run apart and reports the lower quartile: what the work
// costs where others share the machine. The mean, ns/op, is with them.
func quartile(b *testing.B, run func()) {
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		run()
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/4].Microseconds()), "µs_quartile")
}

// BenchmarkBuild: the whole ring of 1,000 instances; target 50 ms.
func BenchmarkBuild(b *testing.B) {
	members := fleet(1000)
	for _, slots := range []int{1 << 16, 1 << 18} {
		b.Run(fmt.Sprintf("N=1000/slots=%d", slots), func(b *testing.B) {
			quartile(b, func() { mustRing(b, RingOptions{Slots: slots}, members) })
		})
	}
}

// BenchmarkChange: one instance more or less among 100, until the snapshot is
// published; target 300 µs, each way.
func BenchmarkChange(b *testing.B) {
	var current atomic.Pointer[Snapshot]
	all := readyFleet(101)
	for name, sizes := range map[string][2]int{"add": {100, 101}, "remove": {101, 100}} {
		b.Run("N=100/"+name, func(b *testing.B) {
			before := benchFleet(b, sizes[0])
			quartile(b, func() {
				s, err := NewSnapshot(Spec{Policy: before.policy, Instances: all[:sizes[1]]}, before)
				if err != nil {
					b.Fatal(err)
				}
				current.Store(s)
			})
		})
	}
}

// BenchmarkWithLoads: a heartbeat round of 1,000 instances.
func BenchmarkWithLoads(b *testing.B) {
	s := benchFleet(b, 1000)
	loads := Loads{ByInstance: map[string]Load{}}
	for in := range s.Instances() {
		loads.ByInstance[in.ID] = Load{Running: len(in.ID)}
	}
	b.ReportAllocs()
	for b.Loop() {
		s = s.WithLoads(loads)
	}
}

// BenchmarkRingQuality reports balance and movement at 100 instances over the
// fleets that the target tests use.
func BenchmarkRingQuality(b *testing.B) {
	const trials = 10
	for b.Loop() {
		var balance, capped, added, removed, avoidable float64
		for trial := range trials {
			members := trialFleet(trial, 101)
			large := mustRing(b, RingOptions{}, members)
			small := mustWith(b, large, members[:100])
			balance += keysMaxMean(small, 1_000_000) / trials
			capped += keysMaxMean(mustRing(b, RingOptions{CapPercent: 105}, members[:100]), 1_000_000) / trials
			up, down := small.Movement(large), large.Movement(small)
			added += up.Moved / up.Ideal / trials
			removed += down.Moved / down.Ideal / trials
			avoidable += up.Avoidable + down.Avoidable
		}
		b.ReportMetric(balance, "max/mean")
		b.ReportMetric(capped, "max/mean_cap105")
		b.ReportMetric(added, "added/ideal")
		b.ReportMetric(removed, "removed/ideal")
		b.ReportMetric(avoidable, "avoidable")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLookupParallel: run with -cpu 1,2 to see the speed-up.
func BenchmarkLookupParallel(b *testing.B) {
	var current atomic.Pointer[Snapshot]
	current.Store(benchFleet(b, 100))
	keys := benchKeyTable()
	b.RunParallel(func(pb *testing.PB) {
		at := 0
		for pb.Next() {
			at = (at + len(current.Load().Owner(keys[at]).ID)) & (benchKeys - 1)
		}
	})
}
