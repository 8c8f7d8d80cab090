package routing

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Policy is what an operator sets for a pool: how its requests are decided, and how
// the holder of the health lease judges and paces its instances.
type Policy struct {
	Ring  RingOptions
	Bound Bound

	MinStick time.Duration // a breaker moves no binding younger than this
	MaxAge   time.Duration // a binding older than this leaves an owner over its bound; 0 is never

	Panic bool // with nobody eligible, try one that may be alive
	Shed  bool // with all over their bound, refuse new sessions

	Breaker BreakerPolicy
	Ramp    RampPolicy
	Probe   ProbePolicy
}

// longestTime keeps sums and multiples of a policy's durations in range.
const longestTime = 10 * 365 * 24 * time.Hour

// someTime reports whether durations are positive and none is absurd.
func someTime(durations ...time.Duration) bool {
	for _, d := range durations {
		if d <= 0 || d > longestTime {
			return false
		}
	}
	return true
}

// DefaultPolicy is the policy of a pool that nobody configured.
func DefaultPolicy() Policy {
	return Policy{
		Ring:     RingOptions{Points: DefaultPoints, Slots: DefaultSlots},
		Bound:    Bound{Percent: 125, Gap: 2, Noise: 3},
		MinStick: time.Minute,
		Breaker:  DefaultBreakerPolicy(),
		Ramp:     DefaultRampPolicy(),
		Probe:    DefaultProbePolicy(),
	}
}

// Validate reports the first member of the policy that makes no sense.
func (p Policy) Validate() error {
	if err := p.Ring.Validate(); err != nil {
		return err
	}
	if err := p.Bound.validate(); err != nil {
		return err
	}
	if p.MinStick < 0 || p.MaxAge < 0 {
		return fmt.Errorf("min_stick %v, max_age %v: want no negative duration", p.MinStick, p.MaxAge)
	}
	return cmp.Or(p.Breaker.Validate(), p.Ramp.Validate(), p.Probe.Validate())
}

// Bound limits how far an instance's load may rise above its fair share before
// new sessions pass it by. With fair f, a load is over the bound when it is
// above Percent of f, above f + Noise·√f and above f + Gap at once. The first
// term is consistent hashing with bounded loads (Mirrokni, Thorup,
// Zadimoghaddam, arXiv 1608.01350); the second ignores what chance alone
// brings about at small loads, the third a difference too small to matter.
//
// The fair share is the load per weight of the other instances that may be
// chosen, times the instance's own weight. Leaving its own load out matters in
// small pools: of two instances with loads 4 and 0, the mean of both is 2, and
// no load at all would be over 2 + 3·√2 before it reached 6.2, while the share
// that the other one sets is 0.
type Bound struct {
	Percent int // at least 100; 125 means a quarter above the fair share
	Gap     int // requests
	Noise   int // multiples of √f
}

func (b Bound) validate() error {
	const most = 1_000_000
	if b.Percent < 100 || b.Percent > 10_000 || b.Gap < 0 || b.Gap > most || b.Noise < 0 || b.Noise > 1000 {
		return fmt.Errorf("bound of %d %%, gap %d, noise %d: want 100 to 10000, 0 to %d, 0 to 1000",
			b.Percent, b.Gap, b.Noise, most)
	}
	return nil
}

// over reports whether a load is above the bound of a fair share given in
// thousandths of a request. Everything is integral, because two replicas on
// different architectures have to agree.
func (b Bound) over(load int, fairMilli uint64) bool {
	limit := max(
		fairMilli*uint64(b.Percent)/100,
		fairMilli+uint64(b.Noise)*sqrtMilli(fairMilli),
		fairMilli+uint64(b.Gap)*1000,
	)
	return uint64(load)*1000 > limit
}

// sqrtMilli is the square root of a number in thousandths, in thousandths. The
// float is exact: IEEE 754 rounds roots correctly, and the operand stays below
// 2^53.
func sqrtMilli(milli uint64) uint64 { return uint64(math.Sqrt(float64(milli * 1000))) }

// maxFairMilli, a thousand times the highest load, keeps the arithmetic of the
// bound far from overflow.
const maxFairMilli = 1000 * maxInFlight

// crowd sums the instances that may be chosen: what fair shares are made of.
type crowd struct {
	load, weight uint64 // weight in hundredths
}

func (c *crowd) add(load, weight int) {
	c.load += uint64(load)
	c.weight += uint64(weight)
}

// fairMilli is the share of an instance by weight, in thousandths of a
// request; inside says that its own load and weight are part of the sums.
// Without others there is nobody to be fairer to: no load is over.
func (c crowd) fairMilli(load, weight int, inside bool) uint64 {
	if inside {
		c.load -= uint64(load)
		c.weight -= uint64(weight)
	}
	if c.weight == 0 {
		return maxFairMilli
	}
	hi, lo := bits.Mul64(c.load*1000, uint64(weight))
	if hi >= c.weight {
		return maxFairMilli
	}
	q, _ := bits.Div64(hi, lo, c.weight)
	return min(q, maxFairMilli)
}
