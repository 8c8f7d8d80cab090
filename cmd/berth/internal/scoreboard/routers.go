package scoreboard

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cespare/xxhash/v2"

	"berth/routing"
)

// router is a routing policy without a memory of sessions.
type router interface {
	// members tells the ids of the instances in service, at the start and
	// whenever they change.
	members(ids []string) error
	// route names the instance for a session's next turn.
	route(session string) string
}

// inService is the part that all but the ring share.
type inService []string

func (s *inService) members(ids []string) error {
	*s = slices.Clone(ids)
	return nil
}

// random knows no affinity at all.
type random struct {
	inService
	source *rand.Rand
}

func (r *random) route(string) string { return r.inService[r.source.IntN(len(r.inService))] }

// roundRobin balances requests perfectly and sessions not at all.
type roundRobin struct {
	inService
	next int
}

func (r *roundRobin) route(string) string {
	r.next++
	return r.inService[r.next%len(r.inService)]
}

// modulo has affinity as long as the number of instances stays the same.
type modulo struct{ inService }

func (m *modulo) route(session string) string {
	return m.inService[xxhash.Sum64String(session)%uint64(len(m.inService))]
}

// plainRing is Berth's own ring without its stored bindings.
type plainRing struct{ ring *routing.Ring }

func (p *plainRing) members(ids []string) error {
	members := make([]routing.Member, len(ids))
	for i, id := range ids {
		members[i] = routing.Member{ID: id, Weight: 100}
	}
	ring, err := routing.NewRing(routing.RingOptions{}, members)
	if err != nil {
		return fmt.Errorf("build plain ring: %w", err)
	}
	p.ring = ring
	return nil
}

func (p *plainRing) route(session string) string {
	owner, _ := p.ring.Owner(session) // a ring of members of weight 100 always has one
	return owner
}
