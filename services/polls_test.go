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
		if time.Sleep(s.silence() - time.Second); look() != nil {
			t.Error("a process that is young knows who is silent")
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

func boot(id string) statestore.Owner { return statestore.Owner{Instance: id, Incarnation: "boot"} }
