package redisstore

import (
	"errors"
	"fmt"
	"testing"

	"berth/integration/redistest"
	"berth/statestore"
)

// Rows that were lost stop no worker: its boot is still the present one.
func TestLostRowsStopNobody(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Standalone(t).URL)
	by := statestore.Owner{Instance: "i1", Incarnation: statestore.IncarnationDigest("x")}
	if _, err := s.Register(t.Context(), statestore.InstanceSpec{ID: by.Instance, Pool: "p", Incarnation: by.Incarnation}); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Del(t.Context(), s.table(tLoads)).Err(); err != nil {
		t.Fatal(err)
	}
	old := statestore.Owner{Instance: by.Instance, Incarnation: statestore.IncarnationDigest("before")}
	if _, err := s.Heartbeat(t.Context(), old, statestore.Heartbeat{}); !errors.Is(err, statestore.ErrStaleIncarnation) {
		t.Errorf("the boot before: %v", err)
	}
	for want := range uint64(2) {
		if in, err := s.Heartbeat(t.Context(), by, statestore.Heartbeat{Running: 3}); err != nil || in.Beats != want+1 {
			t.Fatalf("%+v, %v", in, err)
		}
	}
}

// More heartbeats than one call counts are counted by several.
func TestManyHeartbeats(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Standalone(t).URL)
	beats := make([]statestore.Beat, beatPage+7)
	for i := range beats {
		by := statestore.Owner{Instance: fmt.Sprintf("i%d", i), Incarnation: "x"}
		beats[i] = statestore.Beat{By: by, Heartbeat: statestore.Heartbeat{Ready: true, Running: i}}
		if _, err := s.Register(t.Context(), statestore.InstanceSpec{ID: by.Instance, Pool: "p", Incarnation: by.Incarnation}); err != nil {
			t.Fatal(err)
		}
	}
	answers, err := s.Heartbeats(t.Context(), beats)
	if err != nil || len(answers) != len(beats) {
		t.Fatalf("%d answers, %v", len(answers), err)
	}
	for i, a := range answers {
		if a.Err != nil || a.Instance.ID != beats[i].By.Instance || a.Instance.LastBeat.Running != i || a.Instance.Lifecycle != statestore.Ready {
			t.Fatalf("answer %d: %+v, %v", i, a.Instance, a.Err)
		}
	}
}

// What heartbeats cost Redis, a thousand at a time and with a table of a thousand.
func BenchmarkHeartbeats(b *testing.B) {
	s := open(b, redistest.Standalone(b).URL)
	beats := make([]statestore.Beat, 1000)
	for i := range beats {
		by := statestore.Owner{Instance: fmt.Sprintf("i%d", i), Incarnation: "x"}
		beats[i] = statestore.Beat{By: by, Heartbeat: statestore.Heartbeat{Ready: true, Running: i}}
		if _, err := s.Register(b.Context(), statestore.InstanceSpec{ID: by.Instance, Pool: "p", Incarnation: by.Incarnation}); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := s.Heartbeats(b.Context(), beats); err != nil {
		b.Fatal(err)
	}
	if _, err := s.FleetView(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Run("fifty", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Heartbeats(b.Context(), beats[:50]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("view", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Heartbeats(b.Context(), beats[:1]); err != nil {
				b.Fatal(err)
			}
			if _, err := s.FleetView(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
