package boltstore

import (
	"fmt"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"berth/statestore"
)

// A file of before has the heartbeats of an instance in its record.
func TestHeartbeatsInRecordsAreReadAndMoved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	s := openAt(t, path, Options{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	by := statestore.Owner{Instance: "i1", Incarnation: "x"}
	record := `{"id":"i1","pool":"p","incarnation":"x","lifecycle":"ready","beats":41,"last_beat":{"running":3,"waiting":0},"registered":1,"beat_at":5}`
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		if err := tx.DeleteBucket(bBeats); err != nil {
			return err
		}
		return tx.Bucket(bInstances).Put([]byte(by.Instance), []byte(record))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	s = openAt(t, path, Options{})
	weight := 7
	holds := func(act string, beats uint64, running int) {
		t.Helper()
		v, err := s.FleetView(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if in := v.Instances[0]; in.Beats != beats || in.LastBeat.Running != running || in.BeatAt == 0 {
			t.Fatalf("%s: %+v", act, in)
		}
	}
	holds("as it was", 41, 3)
	if _, err := s.SetOverride(t.Context(), "i1", statestore.OverrideChange{Override: statestore.Override{Weight: &weight}, SetWeight: true}); err != nil {
		t.Fatal(err)
	}
	holds("with an operator's word", 41, 3)
	if in, err := s.Heartbeat(t.Context(), by, statestore.Heartbeat{Running: 5}); err != nil || in.Beats != 42 || in.EffectiveWeight() != 7 {
		t.Fatalf("%+v, %v", in, err)
	}
	holds("with a heartbeat", 42, 5)
}

// What the heartbeats of fifty of a thousand instances cost.
func BenchmarkHeartbeats(b *testing.B) {
	s := openTest(b, Options{})
	beats := make([]statestore.Beat, 1000)
	for i := range beats {
		by := statestore.Owner{Instance: fmt.Sprintf("i%d", i), Incarnation: "x"}
		beats[i] = statestore.Beat{By: by, Heartbeat: statestore.Heartbeat{Ready: true, Running: i}}
	}
	err := s.write(b.Context(), func(w *writer) error {
		for i := range beats {
			w.putInstance(statestore.Instance{InstanceSpec: statestore.InstanceSpec{ID: beats[i].By.Instance, Incarnation: "x"}})
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.FleetView(b.Context()); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		if _, err := s.Heartbeats(b.Context(), beats[n:n+50]); err != nil {
			b.Fatal(err)
		}
		n = (n + 50) % len(beats)
	}
}
