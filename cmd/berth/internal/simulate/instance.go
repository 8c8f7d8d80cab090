package simulate

import (
	"strconv"

	"berth/cmd/berth/internal/kvsim"
	"berth/routing"
)

// instance is one simulated replica.
type instance struct {
	id     string
	zone   string
	weight int
	room   int // requests it runs at once
	index  int32
	boot   int32 // counts its boots
	alive  bool
	state  routing.State
	slow   float64
	cache  *kvsim.Cache

	running int
	waiting []waiter // first come, first served
	health  health

	// The newest events that took it or a part of it away, that made it or a part
	// of it join, and that made it slow or hot.
	lost, gained, pressed cause
}

// waiter is a turn that waits for room.
type waiter struct {
	moment
	cause cause // what its computing is charged to
}

// join adds an instance. A newcomer of a running pool ramps up.
func (e *engine) join(weight int, newcomer bool) *instance {
	n := len(e.fleet)
	in := &instance{id: nextName(n, e.index), zone: string(rune('a' + n%e.sc.Zones)), weight: weight, room: max(1, e.sc.Worker.MaxRunning*weight/100)}
	e.enter(in, newcomer)
	return in
}

// nextName is what the next instance of a pool of n is called.
func nextName[T any](n int, taken map[string]T) string {
	for {
		n++
		name := "i" + strconv.Itoa(n)
		if _, is := taken[name]; !is {
			return name
		}
	}
}

func (e *engine) enter(in *instance, newcomer bool) {
	in.index = int32(len(e.fleet))
	e.fleet = append(e.fleet, in)
	e.index[in.id] = in.index
	e.boot(in, newcomer)
}

// boot starts an instance with an empty cache.
func (e *engine) boot(in *instance, newcomer bool) {
	in.boot++
	in.alive, in.state, in.slow = true, routing.Ready, 1
	in.cache = kvsim.New(e.sc.Worker.CacheBlocks)
	in.running, in.waiting, in.pressed = 0, nil, 0
	in.health = newHealth(e.sc, e.clock(), newcomer && e.pol.binds())
}

// report is what an instance says of its load in the present round.
func (e *engine) report(in *instance) routing.Load {
	return routing.Load{Running: in.running, Waiting: len(in.waiting), Report: e.version}
}
