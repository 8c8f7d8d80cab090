package services

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"berth/statestore"
)

// noted is a store of which only the notes are read.
type noted struct {
	statestore.Store
	notes map[string][]byte
}

func (n *noted) Notes(context.Context) (map[string][]byte, error) { return n.notes, nil }

// Who polls now and then is never silent, however slowly, and whichever process it
// polls; who does not is silent once a poll and its tasks would be over.
func TestWhoIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &noted{notes: map[string][]byte{}}
		s := &Server{
			store: store, options: Options{TaskLease: time.Minute}, fleet: newFleet(store),
			tallies: newTallies(), looks: newTaskLooks(time.Minute),
		}
		neighbour := newTallies()
		slow, never := boot("slow"), boot("never")
		instances := map[string]*statestore.Instance{}
		born := statestore.Millis(time.Now().UnixMilli())
		for _, who := range []statestore.Owner{slow, never} {
			in := &statestore.Instance{Registered: born}
			in.ID, in.Incarnation = who.Instance, who.Incarnation
			instances[who.Instance] = in
		}
		look := func() func(statestore.Owner) bool {
			image := &fleetImage{loaded: true, instances: instances, read: time.Now()}
			image.view.Now = statestore.Millis(time.Now().UnixMilli())
			s.fleet.image.Store(image)
			mine, _ := s.tallies.note(image)
			other, _ := neighbour.note(image)
			store.notes = map[string][]byte{"one": mine, "two": other, "old": []byte(`{"never boot":{"ok":3}}`)}
			return s.silent(t.Context())
		}
		look()
		s.heard(slow)
		neighbour.polled(never, time.Now().Add(-time.Hour)) // long ago
		if time.Sleep(s.firstPoll() - time.Millisecond); look() != nil {
			t.Error("a process that is very young knows who is silent")
		}
		time.Sleep(s.silence() - s.firstPoll() + time.Millisecond - time.Second)
		if known := look(); known == nil || known(never) || known(slow) {
			t.Error("a process that is young takes one that was heard of for silent")
		}
		if time.Sleep(time.Second); look()(never) {
			t.Error("one is silent in the moment its time is over")
		}
		time.Sleep(time.Second)
		if known := look(); !known(never) || !known(slow) || known(boot("stranger")) {
			t.Error("after the longest silence")
		}
		for range 5 {
			neighbour.polled(slow, time.Now())
			time.Sleep(s.silence() - time.Millisecond)
			if known := look(); known(slow) || !known(never) {
				t.Error("one that polls slowly, elsewhere, is silent")
			}
		}
	})
}

// Who registered while this process listened, and was never heard of, is silent when it
// has had the time to begin. Of who is older than the process that is known later, and of
// who was heard of once as well.
func TestWhoNeverPolledIsSilentSooner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &noted{notes: map[string][]byte{}}
		s := &Server{
			store: store, options: Options{TaskLease: 30 * time.Second}, fleet: newFleet(store),
			tallies: newTallies(), looks: newTaskLooks(time.Minute),
		}
		image := &fleetImage{loaded: true, instances: map[string]*statestore.Instance{}}
		register := func(id string, ago time.Duration) statestore.Owner {
			in := &statestore.Instance{Registered: statestore.Millis(time.Now().Add(-ago).UnixMilli())}
			in.ID, in.Incarnation = id, boot(id).Incarnation
			image.instances[id] = in
			return boot(id)
		}
		silent := func(who statestore.Owner) bool {
			image.read, image.view.Now = time.Now(), statestore.Millis(time.Now().UnixMilli())
			s.fleet.image.Store(image)
			store.notes["one"], _ = s.tallies.note(image)
			known := s.silent(t.Context())
			return known != nil && known(who)
		}
		older := register("older", time.Hour)
		time.Sleep(time.Second)
		never, once := register("never", 0), register("once", 0)
		s.tallies.wrote(never) // it does serve
		silent(once)           // which lets the clock of the store be known
		s.heard(once)
		if time.Sleep(s.firstPoll()); silent(never) {
			t.Error("one is silent in the moment its time to begin is over")
		}
		time.Sleep(time.Millisecond)
		if !silent(never) || silent(older) || silent(once) {
			t.Errorf("after %v: never %v, older %v, once %v", s.firstPoll(), silent(never), silent(older), silent(once))
		}
		time.Sleep(s.silence() - s.firstPoll())
		if !silent(never) || !silent(older) || !silent(once) {
			t.Errorf("after %v: never %v, older %v, once %v", s.silence(), silent(never), silent(older), silent(once))
		}
		if late := register("late", 0); silent(late) {
			t.Error("one that was just registered is silent")
		}
	})
}

func boot(id string) statestore.Owner { return statestore.Owner{Instance: id, Incarnation: "boot"} }
