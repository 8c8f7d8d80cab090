package services_test

import (
	"fmt"
	"time"

	"berth/services"
)

// usual are the times that a server has if nobody sets them, for tests in virtual
// time: no machine is too slow for them.
func usual(o *services.Options) {
	o.SuspectAfter, o.DownAfter, o.StoreTimeout, o.MissRate = 6*time.Second, 15*time.Second, 100*time.Millisecond, 1_000_000
}

// virtualFleet is workers in a bubble of virtual time, which beat once a second
// while they live, and sessions that they own.
type virtualFleet struct {
	*bundle
	workers map[string]*worker
	dead    map[string]bool
	owners  map[string]string // by session
}

// newVirtualFleet registers the workers i1, i2, …
func newVirtualFleet(b *bundle, n int) *virtualFleet {
	b.t.Helper()
	f := &virtualFleet{b, map[string]*worker{}, map[string]bool{}, map[string]string{}}
	for i := range n {
		w := b.worker(fmt.Sprint("i", i+1))
		f.workers[w.id] = w
	}
	f.pass(3)
	return f
}

// pass lets seconds pass.
func (f *virtualFleet) pass(seconds int) {
	f.t.Helper()
	for range seconds {
		time.Sleep(time.Second)
		for id, w := range f.workers {
			if !f.dead[id] {
				w.beat(0)
			}
		}
	}
}

// seat opens sessions where they are hinted.
func (f *virtualFleet) seat(n int) {
	f.t.Helper()
	owned := map[string]bool{}
	for i := range n {
		session := fmt.Sprint("seated-", i)
		hint := f.route(session).want(200)
		owner := hint.str("instance")
		f.workers[owner].append(session, "first", hint.str("handle"), `"hello"`).want(200)
		f.owners[session], owned[owner] = owner, true
	}
	if len(owned) != len(f.workers) {
		f.t.Fatalf("sessions went only to %v", owned)
	}
}

// each asks for every seated session, for as many new ones, whose owner is "", and
// for as many requests without a session, which are called "-".
func (f *virtualFleet) each(check func(owner string, a answer)) {
	f.t.Helper()
	for session, owner := range f.owners {
		check(owner, f.route(session, "&fallbacks=3"))
		check("", f.route(fmt.Sprint("new-", serial.Add(1)), "&fallbacks=3"))
		check("-", f.call("GET", "/route?fallbacks=3", ""))
	}
}
