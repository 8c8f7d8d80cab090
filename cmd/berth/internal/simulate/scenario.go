package simulate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/migrations"
	"berth/routing"
)

// Scenario is everything a simulation depends on: two runs of one scenario are
// equal to the last digit.
type Scenario struct {
	Instances int       // at the start: i1, i2, … of weight 100
	Zones     int       // they are dealt out over zones a, b, …
	Weights   []int     // dealt out likewise; 100 where there are none
	Fleet     []Replica // a live fleet, instead of the three above
	Sessions  int       // of the synthetic population; ignored where a trace or a live fleet is played
	Keys      int       // affinity keys the sessions share; 0 gives each its own
	Zipf      float64
	Seed      uint64

	Warmup   time.Duration // played first and not counted, so that the count begins with a pool in its stride
	Duration time.Duration
	Events   []Event

	Policy   routing.Policy
	Affinity time.Duration // idle time after which a binding lapses
	Worker   Worker
	Move     Move
}

// Worker is how every instance serves.
type Worker struct {
	MaxRunning  int     // requests one of weight 100 runs at once, more wait; 0 sizes the pool for the workload
	PrefillTPS  float64 // prompt tokens it computes a second, those in its cache are free
	DecodeTPS   float64 // tokens of one answer a second
	CacheBlocks int     // of 512 tokens
}

// Move is the pace of drains.
type Move struct {
	SessionsPerS float64
	IdleBelow    time.Duration // only sessions idle for less are prewarmed on their target
	Workers      Workers
	Grace        time.Duration // the in-flight grace, of workers that do not cooperate
}

// Workers is how workers take part in drains. Their loads are known all the same.
type Workers string

// Kinds of workers.
const (
	Cooperative Workers = "cooperative" // they pull tasks: prewarm, and say when a turn has ended
	Passive     Workers = "passive"     // they send heartbeats and pull nothing
	Silent      Workers = "silent"      // they send none either
)

// Default is the scenario that every flag begins with.
func Default() Scenario {
	return Scenario{
		Instances: 100, Zones: 1, Sessions: 100_000, Seed: 1,
		Warmup: 5 * time.Minute, Duration: 15 * time.Minute,
		Policy: routing.DefaultPolicy(), Affinity: 30 * time.Minute,
		Worker: Worker{PrefillTPS: 8000, DecodeTPS: 35, CacheBlocks: 16_000},
		Move:   Move{SessionsPerS: 200, IdleBelow: 10 * time.Minute, Workers: Cooperative, Grace: migrations.DefaultInFlightGrace},
	}
}

// Kind is what an event does to the pool.
type Kind string

// Kinds of events.
const (
	Add     Kind = "add"     // new instances join
	Drain   Kind = "drain"   // a job moves the sessions of instances, which then leave
	Kill    Kind = "kill"    // instances are gone, with their caches and what they were serving
	Recover Kind = "recover" // killed or drained ones come back, as a new boot with an empty cache
	Slow    Kind = "slow"    // requests take longer by a factor; 1 ends it
	Weight  Kind = "weight"  // an operator sets a weight
	Hot     Kind = "hot"     // a part of the sessions begins to bring a part of the load
)

// Event is one change of the pool.
type Event struct {
	At   time.Duration
	Kind Kind
	Who  Who
	// N is the factor of slow, the weight of weight and of those who are added.
	N float64
	// Sessions and Load, 0 to 1, are of hot: this part of the live sessions
	// brings that part of the load from here on.
	Sessions, Load float64
	text           string
}

// Who selects instances: by id, by zone, or a number of them.
type Who struct {
	IDs   []string
	Zone  string
	Count int
}

// String is the event as it was written.
func (e Event) String() string { return e.text }

// grammar says how each kind is written.
var grammar = map[Kind]string{
	Add:     "add:COUNT[:WEIGHT]",
	Drain:   "drain:WHO",
	Kill:    "kill:WHO",
	Recover: "recover:WHO",
	Slow:    "slow:WHO:FACTOR",
	Weight:  "weight:WHO:WEIGHT",
	Hot:     "hot:SESSIONS%:LOAD%[:WHO]",
}

// ParseEvent reads TIME:KIND:…, like 30s:add:4, 2m:drain:i3,i5, 5m:kill:zone=b,
// 1m:slow:2:3.5 or 90s:hot:1%:50%. WHO is ids, zone=Z, or how many.
func ParseEvent(text string) (Event, error) {
	e := Event{text: text}
	parts := strings.Split(strings.TrimSpace(text), ":")
	if len(parts) < 2 {
		return e, fmt.Errorf("event %q: want TIME:KIND:…, like 30s:add:4", text)
	}
	at, err := time.ParseDuration(parts[0])
	if err != nil || at < 0 {
		return e, fmt.Errorf("event %q: %q is not a time like 30s or 2m", text, parts[0])
	}
	e.At, e.Kind = at, Kind(parts[1])
	form, known := grammar[e.Kind]
	if !known {
		return e, fmt.Errorf("event %q: %q is not one of add, drain, kill, recover, slow, weight, hot", text, parts[1])
	}
	if err := e.arguments(parts[2:]); err != nil {
		return e, fmt.Errorf("event %q: want TIME:%s: %w", text, form, err)
	}
	return e, nil
}

func (e *Event) arguments(args []string) (err error) {
	least, most := 1, 1
	switch e.Kind {
	case Add:
		most = 2
	case Slow, Weight:
		least, most = 2, 2
	case Hot:
		least, most = 2, 3
	}
	if len(args) < least || len(args) > most {
		return fmt.Errorf("%d arguments", len(args))
	}
	switch e.Kind {
	case Hot:
		return e.hot(args)
	case Add:
		if e.Who, err = parseWho(args[0]); err == nil && (e.Who.Count == 0 || e.Who.Count > 10_000) {
			err = fmt.Errorf("%q is no number of instances", args[0])
		}
		e.N = 100
	default:
		e.Who, err = parseWho(args[0])
	}
	if err != nil || len(args) < 2 {
		return err
	}
	if e.Kind == Slow {
		if e.N, err = strconv.ParseFloat(args[1], 64); err != nil || !(e.N >= 0.01 && e.N <= slowest) {
			return fmt.Errorf("%q is no factor from 0.01 to %d", args[1], slowest)
		}
		return nil
	}
	weight, err := strconv.Atoi(args[1])
	if err != nil || weight < 0 || weight > routing.MaxWeight {
		return fmt.Errorf("%q is no weight: want a whole number from 0 to %d", args[1], routing.MaxWeight)
	}
	e.N = float64(weight)
	return nil
}

// slowest is the highest factor by which requests may take longer.
const slowest = 1000

func (e *Event) hot(args []string) (err error) {
	if e.Sessions, err = parsePercent(args[0]); err != nil {
		return err
	}
	if e.Load, err = parsePercent(args[1]); err != nil {
		return err
	}
	if e.Load > 0.99 {
		return errors.New("at most 99% of the load")
	}
	if len(args) == 3 {
		e.Who, err = parseWho(args[2])
	}
	return err
}

func parsePercent(text string) (float64, error) {
	number, cut := strings.CutSuffix(text, "%")
	p, err := strconv.ParseFloat(number, 64)
	if err != nil || !cut || !(p > 0 && p <= 100) {
		return 0, fmt.Errorf("%q is no percentage above 0%% and up to 100%%", text)
	}
	return p / 100, nil
}

func parseWho(text string) (Who, error) {
	if zone, ok := strings.CutPrefix(text, "zone="); ok && zone != "" {
		return Who{Zone: zone}, nil
	}
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 {
			return Who{}, fmt.Errorf("%d instances", n)
		}
		return Who{Count: n}, nil
	}
	ids := strings.Split(text, ",")
	for i, id := range ids {
		switch {
		case strings.TrimSpace(id) == "":
			return Who{}, fmt.Errorf("%q names nobody: want ids, zone=Z, or how many", text)
		case slices.Contains(ids[:i], id):
			return Who{}, fmt.Errorf("%q names %s twice", text, id)
		}
	}
	return Who{IDs: ids}, nil
}

// weight of the i-th instance, counted from 0.
func (s *Scenario) weight(i int) int {
	switch {
	case i < len(s.Fleet):
		return s.Fleet[i].Weight
	case len(s.Weights) == 0:
		return 100
	}
	return s.Weights[i%len(s.Weights)]
}
