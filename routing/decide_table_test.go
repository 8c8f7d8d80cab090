package routing

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// world is one combination of everything a decision depends on. The pool has
// the owner, b and c, and three more that keep the mean low; the subsets tell
// them apart.
type world struct {
	ownerState   State // Unknown stands for an owner that is not in the pool
	ownerBreaker Breaker
	ownerLoaded  bool
	othersState  State
	othersOpen   bool // breakers of b, c and the rest
	othersLoaded bool // b and c
	panic, shed  bool

	record      string // none, released, lapsed, live
	incarnation string
	age         time.Duration
	excluded    bool // the owner
	granted     bool // the owner's trial
	subset      []string
	key         string
}

const heavyLoad = 60

var (
	tablePolicy = func() Policy {
		p := DefaultPolicy()
		p.MinStick, p.MaxAge = time.Minute, time.Hour
		return p
	}()
	tableRest = []string{"b", "c", "x", "y", "z"}
)

func tableAddress(id string) string { return "10.0.0." + fmt.Sprint(int(id[0])) + ":80" }

// instances lists the pool of a world.
func (w world) instances() []Instance {
	var list []Instance
	add := func(id string, st State, br Breaker, load int) {
		list = append(list, Instance{
			ID: id, Incarnation: "boot", Address: tableAddress(id), Weight: 100,
			State: st, Breaker: br, Load: Load{Running: load},
		})
	}
	load := func(heavy bool) int {
		if heavy {
			return heavyLoad
		}
		return 0
	}
	if w.ownerState != Unknown {
		add("owner", w.ownerState, w.ownerBreaker, load(w.ownerLoaded))
	}
	breaker := BreakerClosed
	if w.othersOpen {
		breaker = BreakerOpen
	}
	for _, id := range tableRest {
		add(id, w.othersState, breaker, load(w.othersLoaded && id < "d"))
	}
	return list
}

func (w world) request() Request {
	r := Request{Key: w.key, RequestID: tableRequestID, Subset: w.subset}
	if w.excluded {
		r.Exclude = []string{"owner"}
	}
	if w.granted {
		r.Trials = []string{"owner"}
	}
	return r
}

func (w world) rec() Record {
	r := Record{Exists: true, Owner: "owner", Incarnation: w.incarnation, BoundFor: w.age}
	switch w.record {
	case "none":
		return Record{}
	case "released":
		r.Owner = ""
	case "lapsed":
		r.Lapsed = true
	}
	return r
}

// facts are what the rules speak of, worked out from the world alone.
type facts struct {
	world
	session, live        bool
	holds                bool // rule 1 without its exception
	onlyIncarnation      bool
	letsGo, fails        bool     // by its exception; because the owner fails rather than by its load
	eligible, roomy      []string // in the order of the walk
	roomyPast            []string // in the order of the walk as it goes on from the owner
	alive                []string // for panic
	owner                *Instance
	least, lighterOfPair string
}

func inSubset(w world, id string) bool {
	return w.subset == nil || slices.Contains(w.subset, tableAddress(id))
}

// fleetFacts are the part of the facts that all requests of a pool share.
type fleetFacts struct {
	byID map[string]*Instance
	over map[string]bool
}

func (w world) fleetFacts() fleetFacts {
	f := fleetFacts{map[string]*Instance{}, map[string]bool{}}
	chosen := func(in *Instance) bool { return in.State == Ready && in.Breaker == BreakerClosed }
	for _, in := range w.instances() {
		f.byID[in.ID] = &in
	}
	for id, in := range f.byID {
		sum, n := 0.0, 0.0
		for other, in := range f.byID {
			if other != id && chosen(in) {
				sum, n = sum+float64(in.Load.Running), n+1
			}
		}
		if n > 0 {
			f.over[id], _ = floatOver(tablePolicy.Bound, float64(in.Load.Running), sum/n)
		}
	}
	return f
}

func (w world) facts(fleet fleetFacts) facts {
	f := facts{world: w, session: w.key != "", live: w.record == "live" && w.key != ""}
	admitted := func(id string) bool { return inSubset(w, id) && (id != "owner" || !w.excluded) }
	trial := func(in *Instance) bool { return in.ID == "owner" && w.granted && in.Breaker == BreakerTrial }

	f.owner = fleet.byID["owner"]
	if in := f.owner; f.live && in != nil {
		mayServe := slices.Contains([]State{Ready, Suspect, Cordoned, Draining}, in.State)
		same := w.incarnation == in.Incarnation
		f.holds = mayServe && admitted("owner") && same
		f.onlyIncarnation = mayServe && admitted("owner") && !same
		f.letsGo = w.age > tablePolicy.MinStick && in.Breaker != BreakerClosed && !trial(in) ||
			w.age > tablePolicy.MaxAge && fleet.over["owner"]
		f.fails = w.age > tablePolicy.MinStick && (in.Breaker == BreakerOpen || in.Breaker == BreakerTrial) && !trial(in)
	}
	for _, id := range tableWalk(w, false) {
		in := fleet.byID[id]
		if !admitted(id) {
			continue
		}
		if slices.Contains([]State{Ready, Suspect, Down}, in.State) {
			f.alive = append(f.alive, id)
		}
		if in.State != Ready || in.Breaker != BreakerClosed && !trial(in) {
			continue
		}
		f.eligible = append(f.eligible, id)
		if !fleet.over[id] {
			f.roomy = append(f.roomy, id)
		}
	}
	f.roomyPast = pastOwner(tableWalk(w, false), f.roomy)
	if len(f.eligible) > 0 {
		f.least = lightest(fleet, slices.Sorted(slices.Values(f.eligible)))
		f.lighterOfPair = f.pickOfTwo(fleet)
	}
	return f
}

// pastOwner has those of a list that a walk comes to past the owner ahead of the rest.
func pastOwner(walk, list []string) []string {
	owner := slices.Index(walk, "owner")
	ahead := func(id string) bool { return slices.Index(walk, id) < owner }
	var past, rest []string
	for _, id := range list {
		if ahead(id) {
			rest = append(rest, id)
		} else {
			past = append(past, id)
		}
	}
	return append(past, rest...)
}

func lightest(fleet fleetFacts, ids []string) string {
	least := ids[0]
	for _, id := range ids[1:] {
		if fleet.byID[id].Load.Running < fleet.byID[least].Load.Running {
			least = id
		}
	}
	return least
}

func (f *facts) pickOfTwo(fleet fleetFacts) string {
	pair := []string{f.eligible[0]}
	for _, id := range tableWalk(f.world, true) {
		if slices.Contains(f.eligible, id) && id != pair[0] {
			pair = append(pair, id)
			break
		}
	}
	return lightest(fleet, pair)
}

// rule is one line of the contract: when it fits, and what it answers.
type rule struct {
	name   string
	fits   func(f *facts) bool
	answer func(f *facts) (id string, reason Reason)
}

func first(ids []string, reason Reason) (string, Reason) { return ids[0], reason }

// tableRules divide all worlds between them: the guards exclude each other.
var tableRules = []rule{
	{"1 bound", func(f *facts) bool { return f.holds && !f.letsGo },
		func(*facts) (string, Reason) { return "owner", ReasonBound }},
	{"1 bound, nowhere to go", func(f *facts) bool { return f.holds && f.letsGo && len(f.roomy) == 0 },
		func(*facts) (string, Reason) { return "owner", ReasonBound }},
	{"1 breaker, failing", func(f *facts) bool { return f.holds && f.letsGo && f.fails && len(f.roomy) > 0 },
		func(f *facts) (string, Reason) { return first(f.roomy, ReasonBreaker) }},
	{"1 breaker, load", func(f *facts) bool { return f.holds && f.letsGo && !f.fails && len(f.roomy) > 0 },
		func(f *facts) (string, Reason) { return first(f.roomyPast, ReasonBreaker) }},
	{"2 replaced", func(f *facts) bool { return f.onlyIncarnation && len(f.eligible) > 0 },
		func(f *facts) (string, Reason) { return first(f.eligible, ReasonReplaced) }},
	{"2 failover", func(f *facts) bool { return f.live && !f.holds && !f.onlyIncarnation && len(f.eligible) > 0 },
		func(f *facts) (string, Reason) { return first(f.eligible, ReasonFailover) }},
	{"3 new", func(f *facts) bool { return f.loose() && f.firstIsRoomy() && f.record == "none" },
		func(f *facts) (string, Reason) { return first(f.roomy, ReasonNew) }},
	{"3 lapsed", func(f *facts) bool { return f.loose() && f.firstIsRoomy() && f.record != "none" },
		func(f *facts) (string, Reason) { return first(f.roomy, ReasonLapsed) }},
	{"3 over bound", func(f *facts) bool { return f.loose() && !f.firstIsRoomy() && len(f.roomy) > 0 },
		func(f *facts) (string, Reason) { return first(f.roomy, ReasonOverBound) }},
	{"3 all over, shed", func(f *facts) bool { return f.allOver() && f.shed },
		func(*facts) (string, Reason) { return "", ReasonNone }},
	{"3 all over, least elsewhere", func(f *facts) bool { return f.allOver() && !f.shed && f.least != f.eligible[0] },
		func(f *facts) (string, Reason) { return f.least, ReasonOverBound }},
	{"3 all over, new on the least", func(f *facts) bool {
		return f.allOver() && !f.shed && f.least == f.eligible[0] && f.record == "none"
	}, func(f *facts) (string, Reason) { return f.least, ReasonNew }},
	{"3 all over, lapsed on the least", func(f *facts) bool {
		return f.allOver() && !f.shed && f.least == f.eligible[0] && f.record != "none"
	}, func(f *facts) (string, Reason) { return f.least, ReasonLapsed }},
	{"4 stateless", func(f *facts) bool { return !f.session && len(f.eligible) > 0 },
		func(f *facts) (string, Reason) { return f.lighterOfPair, ReasonStateless }},
	{"panic, owner alive", func(f *facts) bool { return f.nobody() && f.panic && f.ownerAlive() },
		func(*facts) (string, Reason) { return "owner", ReasonPanic }},
	{"panic", func(f *facts) bool { return f.nobody() && f.panic && !f.ownerAlive() && len(f.alive) > 0 },
		func(f *facts) (string, Reason) { return first(f.alive, ReasonPanic) }},
	{"none", func(f *facts) bool { return f.nobody() && !(f.panic && len(f.alive) > 0) },
		func(*facts) (string, Reason) { return "", ReasonNone }},
}

func (f *facts) loose() bool { return f.session && !f.live && len(f.eligible) > 0 }

func (f *facts) firstIsRoomy() bool { return len(f.roomy) > 0 && f.roomy[0] == f.eligible[0] }

func (f *facts) allOver() bool { return f.loose() && len(f.roomy) == 0 }

func (f *facts) nobody() bool { return !f.holds && len(f.eligible) == 0 }

func (f *facts) ownerAlive() bool {
	return f.live && slices.Contains(f.alive, "owner") && f.incarnation == f.owner.Incarnation
}

// TestEveryCombinationHasOneRule goes through every owner state, breaker, load,
// age, exclusion, subset, record and fleet: exactly one rule fits, and Decide
// answers what it says.
func TestEveryCombinationHasOneRule(t *testing.T) {
	t.Parallel()
	used := map[string]int{}
	n := 0
	eachPool(func(w world) {
		policy := tablePolicy
		policy.Panic, policy.Shed = w.panic, w.shed
		s, err := NewSnapshot(Spec{Policy: policy, Instances: w.instances()}, tableRings[w.ownerState == Unknown])
		if err != nil {
			t.Fatal(err)
		}
		fleet := w.fleetFacts()
		eachRequest(w, func(w world) {
			n++
			f := w.facts(fleet)
			r := onlyRule(t, &f)
			used[r.name]++
			wantID, wantReason := r.answer(&f)
			checkDecision(t, w, Decide(s, w.request(), w.rec()), wantID, wantReason, r.name)
		})
	})
	t.Logf("%d combinations, by rule: %v", n, used)
	for _, r := range tableRules {
		if used[r.name] == 0 {
			t.Errorf("no combination reaches rule %q", r.name)
		}
	}
}

// onlyRule is the rule that fits; there has to be one, and no second.
func onlyRule(t *testing.T, f *facts) rule {
	t.Helper()
	var fitting rule
	n := 0
	for _, r := range tableRules {
		if r.fits(f) {
			fitting = r
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%+v: %d rules fit", f.world, n)
	}
	return fitting
}

func checkDecision(t *testing.T, w world, d Decision, wantID string, wantReason Reason, name string) {
	t.Helper()
	id := ""
	if d.Instance != nil {
		id = d.Instance.ID
	}
	if id != wantID || d.Reason != wantReason || d.Shed != (name == "3 all over, shed") {
		t.Fatalf("%+v\nrule %q says %q, %s; decided %q, %s, shed %v", w, name, wantID, wantReason, id, d.Reason, d.Shed)
	}
	previous := ""
	if w.key != "" && (w.record == "lapsed" || w.record == "live") && id != "owner" && id != "" {
		previous = "owner"
	}
	if d.Jump != (previous != "") || d.Previous != previous {
		t.Fatalf("%+v: jump %v from %q, want from %q", w, d.Jump, d.Previous, previous)
	}
	wantTrial := id == "owner" && w.granted && w.ownerBreaker == BreakerTrial && wantReason != ReasonPanic
	if d.Trial != wantTrial {
		t.Fatalf("%+v: trial %v, want %v", w, d.Trial, wantTrial)
	}
}
