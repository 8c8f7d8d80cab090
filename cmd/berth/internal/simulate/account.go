package simulate

import (
	"cmp"
	"slices"
	"time"
)

// cause names the account of the event that made something happen; 0 is none.
type cause int16

// account is what one event is charged with, whenever it happens: events may come
// in the same second and each is charged with its own.
type account struct {
	event   int // index in the scenario, -1 for what no event did
	who     []string
	stretch *sums // of the time until the next event; events of one moment have one
	bound   int   // sessions with affinity that the instances held
	moved   int
	jumps   int // of sessions with affinity
	again   int // blocks computed again
	failed  int // tries
	reasons map[string]int
	from    map[string]int
	to      map[string]int
	prewarm int
	drained time.Duration // until the last of its instances was safe to stop
	watch   *rampWatch    // of those who join
	steps   []Step
}

func newAccount(event int, stretch *sums) account {
	return account{event: event, stretch: stretch, reasons: map[string]int{}, from: map[string]int{}, to: map[string]int{}}
}

// open begins the account of an event.
func (b *books) open(e *engine, event int, who []*instance) cause {
	last := b.accounts[len(b.accounts)-1].event
	if last < 0 || b.sc.Events[last].At != b.sc.Events[event].At {
		b.since = new(sums)
	}
	a := newAccount(event, b.since)
	for _, in := range who {
		a.who = append(a.who, in.id)
	}
	for i := range e.sessions {
		if s := &e.sessions[i]; s.live(e) && slices.ContainsFunc(who, func(in *instance) bool { return in.index == s.owner }) {
			a.bound++
		}
	}
	b.accounts = append(b.accounts, a)
	return cause(len(b.accounts) - 1)
}

// newcomer begins to watch who begins on an instance that joins.
func (b *books) newcomer(in *instance, c cause) {
	a := &b.accounts[c]
	if a.watch == nil {
		a.watch = &rampWatch{members: map[int32]bool{}}
	}
	a.watch.members[in.index] = true
	if !slices.Contains(a.who, in.id) {
		a.who = append(a.who, in.id)
	}
	in.gained = c
}

// began books the first turn of a session.
func (b *books) began(in *instance) {
	for i := range b.accounts {
		b.accounts[i].watch.count(in)
	}
}

// leaves books that an instance is taken away: it is nobody's newcomer any more.
func (b *books) leaves(in *instance, c cause) {
	in.lost = c
	for i := range b.accounts {
		b.accounts[i].watch.forget(in)
	}
}

// displace books that an instance takes the place of its sessions away. One that
// has not come to its new place since an earlier event took the old one jumps
// because of that event.
func (b *books) displace(e *engine, in *instance, c cause) {
	a := &b.accounts[c]
	for i := range e.sessions {
		if s := &e.sessions[i]; s.owner == in.index && s.live(e) {
			a.moved++
			if s.displaced == 0 {
				s.displaced = c
			}
		}
	}
}

// hit is what took something from an instance since it joined.
func (in *instance) hit() cause {
	if in.lost > in.gained {
		return in.lost
	}
	return 0
}

// causeOfJump is the event that made a session jump whose place nobody took away:
// what happened to the instance that it left, or to the session itself, else that
// its new one joined. Policies that remember nobody place every turn afresh, so
// under them only what happened since the last turn counts, and every change of
// the members may shuffle anybody.
func (e *engine) causeOfJump(i int32, to *instance) cause {
	s := &e.sessions[i]
	from := e.fleet[s.last]
	pressed := max(from.pressed, e.hot[i].by)
	if !e.pol.senses() {
		pressed = 0
	}
	if e.pol.binds() {
		return cmp.Or(max(from.hit(), pressed), to.gained)
	}
	for _, c := range []cause{from.hit(), to.gained, e.reshaped} {
		if c > 0 && e.sc.Events[e.books.accounts[c].event].At > s.bound {
			return c
		}
	}
	return pressed
}
