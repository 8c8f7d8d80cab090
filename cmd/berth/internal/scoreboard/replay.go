package scoreboard

import (
	"fmt"

	"berth/cmd/berth/internal/kvsim"
	"berth/cmd/berth/internal/policies"
	"berth/cmd/berth/internal/trace"
	"berth/routing"
)

// Baselines plays the trace offline under the policies people use without
// Berth and returns how each did: random, round_robin, modulo, plain_ring. The
// random one has a fixed seed, so that the same trace gives the same figures.
func Baselines(turns []trace.Turn, events []Event) ([]Policy, error) {
	var played []Policy
	for _, baseline := range []struct {
		name   string
		policy policies.Policy
	}{
		{"random", policies.NewRandom()},
		{"round_robin", &policies.RoundRobin{}},
		{"modulo", &policies.Modulo{}},
		{"plain_ring", &policies.PlainRing{}},
	} {
		tally, err := replay(turns, events, baseline.policy)
		if err != nil {
			return nil, fmt.Errorf("replay %s: %w", baseline.name, err)
		}
		played = append(played, tally.Policy(baseline.name))
	}
	return played, nil
}

// replay plays the trace on simulated instances that hold their conversations
// in memory and nowhere else. Events are in the order of their requests.
func replay(turns []trace.Turn, events []Event, r policies.Policy) (*Tally, error) {
	s := newSimulation()
	if err := r.Members(members(s.inService)); err != nil {
		return nil, err
	}
	held := make(copies)
	for i, turn := range turns {
		for len(events) > 0 && events[0].At == i {
			s.apply(events[0])
			if err := r.Members(members(s.inService)); err != nil {
				return nil, err
			}
			if events[0].Kind == Kill {
				s.tally.Lost(held.lose(events[0].Instance))
			}
			events = events[1:]
		}
		instance := r.Route(turn.SessionID())
		s.serve(turn, instance)
		held.add(turn, instance)
	}
	return s.tally, nil
}

// members gives everybody the weight of an ordinary instance.
func members(ids []string) []routing.Member {
	list := make([]routing.Member, len(ids))
	for i, id := range ids {
		list[i] = routing.Member{ID: id, Weight: 100}
	}
	return list
}

// simulation is the simulated instances and the books about them.
type simulation struct {
	inService []string
	caches    map[string]*kvsim.Cache
	tally     *Tally
}

func newSimulation() *simulation {
	s := &simulation{inService: Fleet(), caches: make(map[string]*kvsim.Cache)}
	s.tally = NewTally(s.inService)
	for _, id := range s.inService {
		s.caches[id] = kvsim.New(CacheBlocks)
	}
	return s
}

func (s *simulation) apply(e Event) {
	s.inService = e.apply(s.inService)
	s.tally.Event(e)
	s.caches[e.Instance] = kvsim.New(CacheBlocks) // empty for who joins, and unreachable for who left
}

func (s *simulation) serve(turn trace.Turn, instance string) {
	s.tally.Served(turn, instance, s.caches[instance].Serve(turn.Blocks))
}

// copies knows which instances hold how much of each conversation in memory:
// session → instance → turns held. Who serves a turn holds all up to it.
type copies map[int]map[string]int

func (c copies) add(turn trace.Turn, instance string) {
	if c[turn.Session] == nil {
		c[turn.Session] = make(map[string]int)
	}
	c[turn.Session][instance] = turn.N + 1
}

// lose drops what an instance holds and returns how many turns only it held.
func (c copies) lose(instance string) (turns int) {
	for _, held := range c {
		mine, elsewhere := held[instance], 0
		delete(held, instance)
		for _, n := range held {
			elsewhere = max(elsewhere, n)
		}
		turns += max(0, mine-elsewhere)
	}
	return turns
}
