// Package policies holds the ways of routing that people use without Berth, to
// be played beside it. None of them remembers a session, and each knows who is
// in service the moment that changes.
package policies

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cespare/xxhash/v2"

	"berth/routing"
)

// Policy places sessions without a memory of them.
type Policy interface {
	// Members tells the instances in service, at the start and whenever they
	// change.
	Members(members []routing.Member) error
	// Route names the instance for a session's next turn.
	Route(session string) string
}

// typicalSeed makes [Random] do on the trace that is shipped about what it does
// on average: 24 seeds reuse between 0.332 and 0.366 of the ideal, 0.346 in the
// mean, and this one 0.349.
const typicalSeed = 7

// inService is the part that all but the ring share.
type inService []string

// Members keeps the ids: none of those policies knows weights.
func (s *inService) Members(members []routing.Member) error {
	*s = make([]string, len(members))
	for i, m := range members {
		(*s)[i] = m.ID
	}
	return nil
}

// Random knows no affinity at all.
type Random struct {
	inService
	source *rand.Rand
}

// NewRandom returns a random policy that answers the same in every run.
func NewRandom() *Random {
	return &Random{source: rand.New(rand.NewPCG(typicalSeed, typicalSeed))}
}

// Route draws an instance.
func (r *Random) Route(string) string { return r.inService[r.source.IntN(len(r.inService))] }

// RoundRobin balances requests perfectly and sessions not at all.
type RoundRobin struct {
	inService
	next int
}

// Route names the instances in turn.
func (r *RoundRobin) Route(string) string {
	r.next++
	return r.inService[r.next%len(r.inService)]
}

// Modulo has affinity as long as the number of instances stays the same.
type Modulo struct{ inService }

// Route divides the session's hash by the number of instances.
func (m *Modulo) Route(session string) string {
	return m.inService[xxhash.Sum64String(session)%uint64(len(m.inService))]
}

// PlainRing is Berth's own ring without its stored bindings.
type PlainRing struct{ ring *routing.Ring }

// Members builds the ring.
func (p *PlainRing) Members(members []routing.Member) error {
	ring, err := routing.NewRing(routing.RingOptions{}, slices.Clone(members))
	if err != nil {
		return fmt.Errorf("build plain ring: %w", err)
	}
	p.ring = ring
	return nil
}

// Route names the session's place on the ring.
func (p *PlainRing) Route(session string) string {
	owner, _ := p.ring.Owner(session) // a ring of members of some weight always has one
	return owner
}
