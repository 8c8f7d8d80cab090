package simulate

import (
	"cmp"
	"strconv"

	"berth/routing"
)

// keySpace is keys that stand for all, with the first choice of each.
type keySpace struct {
	keys   []string
	choice []string
	moved  map[cause]map[int]bool // which keys each event moved
	seen   []standing             // of the instances, by index
}

// standing is what decides how many keys an instance is the first choice of.
type standing struct {
	weight float64 // in force
	shut   bool    // by its breaker
}

func (in *instance) standing() standing {
	at := standing{shut: in.health.breaker != routing.BreakerClosed}
	if in.state.MayTakeNew() {
		at.weight = in.effective()
	}
	return at
}

// Keys that stand for the key space, by instance and at most.
const (
	keysPerInstance = 160
	mostKeys        = 16_000
)

func newKeySpace(instances int) keySpace {
	n := min(keysPerInstance*instances, mostKeys)
	k := keySpace{choice: make([]string, n), moved: map[cause]map[int]bool{}}
	for i := range n {
		k.keys = append(k.keys, "probe-"+strconv.Itoa(i))
	}
	return k
}

// follow charges every key whose first choice changed to the event behind it.
func (k *keySpace) follow(e *engine) {
	defer func() {
		k.seen = k.seen[:0]
		for _, in := range e.fleet {
			k.seen = append(k.seen, in.standing())
		}
	}()
	for i, key := range k.keys {
		before, now := k.choice[i], e.pol.owner(key)
		if before == now {
			continue
		}
		if k.choice[i] = now; before == "" || now == "" {
			continue
		}
		c := k.cause(e, e.fleet[e.index[before]], e.fleet[e.index[now]])
		if k.moved[c] == nil {
			k.moved[c] = map[int]bool{}
		}
		k.moved[c][i] = true
	}
}

func (k *keySpace) share(c cause) float64 {
	return float64(len(k.moved[c])) / float64(len(k.keys))
}

// cause is the event that made a key go elsewhere: what made its instance take
// less, else what made the other one take more.
func (k *keySpace) cause(e *engine, from, to *instance) cause {
	before, now := k.before(from), from.standing()
	switch {
	case now.weight < before.weight:
		return cmp.Or(from.lost, from.gained)
	case now.shut && !before.shut:
		return from.shutBy()
	}
	before, now = k.before(to), to.standing()
	switch {
	case now.weight > before.weight:
		return cmp.Or(to.gained, to.lost)
	case before.shut && !now.shut:
		return to.shutBy()
	}
	return e.reshaped
}

// before is how an instance stood when the keys were looked at last.
func (k *keySpace) before(in *instance) standing {
	if int(in.index) < len(k.seen) {
		return k.seen[in.index]
	}
	return standing{}
}

// shutBy is the event that made an instance's breaker open.
func (in *instance) shutBy() cause {
	if !in.alive {
		return in.lost
	}
	return cmp.Or(in.pressed, in.lost)
}
