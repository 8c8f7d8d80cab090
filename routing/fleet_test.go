package routing

import (
	"fmt"
	"testing"
)

// readyFleet is n ready instances i0, i1, … of incarnation "boot" without load.
func readyFleet(n int) []Instance {
	list := make([]Instance, n)
	for i := range list {
		list[i] = Instance{
			ID:          fmt.Sprintf("i%d", i),
			Incarnation: "boot",
			Address:     fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250+1),
			Weight:      100,
			State:       Ready,
		}
	}
	return list
}

func mustSnapshot(t testing.TB, spec Spec) *Snapshot {
	t.Helper()
	s, err := NewSnapshot(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pool is a snapshot of the instances under the default policy.
func pool(t testing.TB, list []Instance) *Snapshot {
	t.Helper()
	return mustSnapshot(t, Spec{Version: 1, Policy: DefaultPolicy(), Instances: list})
}

// keyOwnedBy finds a key whose walk begins at an instance.
func keyOwnedBy(t testing.TB, s *Snapshot, id string) string {
	t.Helper()
	for i := range 100_000 {
		key := fmt.Sprintf("k%d", i)
		if owner, _ := s.Ring().Owner(key); owner == id {
			return key
		}
	}
	t.Fatalf("no key belongs to %s", id)
	return ""
}

// bind is the record of a session that its owner has just served.
func bind(in *Instance) Record {
	return Record{Exists: true, Owner: in.ID, Incarnation: in.Incarnation}
}
