package simulate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"berth/routing"
)

// apply makes the i-th event happen.
func (e *engine) apply(i int, ev *Event) error {
	who, err := e.choose(ev)
	if err != nil {
		return err
	}
	c := e.books.open(e, i, who)
	if ev.Kind != Slow && ev.Kind != Hot {
		e.reshaped = c
	}
	switch ev.Kind {
	case Add:
		for range ev.Who.Count {
			e.books.newcomer(e.join(int(ev.N), true), c)
		}
	case Hot:
		return e.heat(ev, who, c)
	}
	for _, in := range who {
		e.strike(in, ev, c)
	}
	return nil
}

// strike does to an instance what an event brings.
func (e *engine) strike(in *instance, ev *Event, c cause) {
	switch ev.Kind {
	case Kill:
		e.books.leaves(in, c)
		e.books.displace(e, in, c)
		e.die(in)
	case Drain:
		e.books.leaves(in, c)
		e.beginDrain(in, c)
	case Recover:
		e.boot(in, true)
		e.books.newcomer(in, c)
	case Slow:
		in.slow, in.pressed = ev.N, c
	case Weight:
		if int(ev.N) < in.weight {
			in.lost = c
		} else {
			in.gained = c
		}
		in.weight = int(ev.N)
	}
}

// choose finds the instances an event is about.
func (e *engine) choose(ev *Event) ([]*instance, error) {
	if ev.Kind == Add || ev.Kind == Hot && ev.Who.isZero() {
		return nil, nil
	}
	fits := func(in *instance) bool { return in.alive && in.state != routing.Draining }
	named := fits
	switch ev.Kind {
	case Recover:
		fits = func(in *instance) bool { return !in.alive }
		named = fits
	case Kill: // also in the middle of a drain
		named = func(in *instance) bool { return in.alive }
	}
	var who []*instance
	for _, id := range ev.Who.IDs {
		i, known := e.index[id]
		switch {
		case !known:
			return nil, fmt.Errorf("there is no instance %s", id)
		case !named(e.fleet[i]):
			return nil, fmt.Errorf("instance %s is %s", id, e.fleet[i].condition())
		}
		who = append(who, e.fleet[i])
	}
	for _, in := range e.fleet {
		if named(in) && ev.Who.Zone != "" && in.zone == ev.Who.Zone || fits(in) && len(who) < ev.Who.Count {
			who = append(who, in)
		}
	}
	if len(who) == 0 || len(who) < ev.Who.Count {
		return nil, fmt.Errorf("%d instances fit, of %d", len(who), len(e.fleet))
	}
	stays := func(in *instance) bool { return fits(in) && !slices.Contains(who, in) }
	if (ev.Kind == Drain || ev.Kind == Kill) && !slices.ContainsFunc(e.fleet, stays) {
		return nil, errors.New("nobody would be left")
	}
	return who, nil
}

func (w Who) isZero() bool { return len(w.IDs) == 0 && w.Zone == "" && w.Count == 0 }

func (in *instance) condition() string {
	if in.alive {
		return in.state.String()
	}
	return "gone"
}

// heat lets a part of the live sessions bring a part of the load: each asks so
// often, on top of what it does, without waiting for answers.
func (e *engine) heat(ev *Event, who []*instance, c cause) error {
	var live []int32
	total := 0
	for i := range e.sessions {
		s := &e.sessions[i]
		if !s.live(e) {
			continue
		}
		total++
		if len(who) == 0 || slices.ContainsFunc(who, func(in *instance) bool { return in.index == s.owner }) {
			live = append(live, int32(i))
		}
	}
	n := min(max(1, int(math.Round(ev.Sessions*float64(total)))), len(live))
	if n == 0 {
		return errors.New("no session is live")
	}
	slices.SortFunc(live, func(a, b int32) int {
		if mix(e.sc.Seed+uint64(a)) < mix(e.sc.Seed+uint64(b)) {
			return -1
		}
		return 1
	})
	others := max(e.arrivals(), 1.0/time.Minute.Seconds())
	each := others * ev.Load / (1 - ev.Load) / float64(n)
	slices.Sort(live[:n])
	for _, s := range live[:n] {
		before := e.hot[s]
		e.hot[s] = heat{each, c}
		if before.rate == 0 {
			e.askAgain(s, each)
		}
	}
	return nil
}

// arrivals is how many turns came a second: over the last whole minute, or as long
// as is played.
func (e *engine) arrivals() float64 {
	if played := e.clock(); played < time.Minute {
		return float64(e.arriving) / max(1, played.Seconds())
	}
	return float64(e.arrived) / time.Minute.Seconds()
}
