package roster

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"berth/statestore"
)

func anyRow(t *rapid.T) Row {
	name := rapid.StringMatching(`[A-Za-z0-9._-]{1,64}`)
	count := rapid.IntRange(0, 1_000_000)
	return Row{
		By:    statestore.Owner{Instance: name.Draw(t, "instance"), Incarnation: name.Draw(t, "incarnation")},
		Beats: rapid.Uint64Range(0, 1<<53).Draw(t, "beats"),
		At:    statestore.Millis(rapid.Int64Range(0, 1<<50).Draw(t, "at")),
		Last: statestore.Heartbeat{
			Ready: rapid.Bool().Draw(t, "ready"), Running: count.Draw(t, "running"), Waiting: count.Draw(t, "waiting"),
			MaxRunning: count.Draw(t, "max"), KVUsage: rapid.Float64Range(0, 1).Draw(t, "usage"),
			KVGeneration:  rapid.Uint64().Draw(t, "generation"),
			PrefixQueries: rapid.Uint64().Draw(t, "queries"), PrefixHits: rapid.Uint64().Draw(t, "hits"),
		},
	}
}

func TestRowsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		row := anyRow(t)
		stored := row.Append(nil)
		got, err := ReadRow(stored)
		if err != nil || got != row {
			t.Fatalf("%+v, %v, want %+v", got, err, row)
		}
		if !row.SameBoot(stored) {
			t.Fatal("it is not of its own boot")
		}
		row.By.Incarnation += "x"
		if row.SameBoot(stored) {
			t.Fatal("it is of another boot")
		}
		for n := range stored {
			if _, err := ReadRow(stored[:n]); !errors.Is(err, ErrDamaged) {
				t.Fatalf("the first %d of %d bytes: %v", n, len(stored), err)
			}
		}
		if _, err := ReadRow(append(stored, 0)); !errors.Is(err, ErrDamaged) {
			t.Fatalf("a byte more: %v", err)
		}
	})
}

func FuzzReadRow(f *testing.F) {
	row := Row{By: statestore.Owner{Instance: "i1", Incarnation: "x"}, Beats: 1, At: 2}
	f.Add(row.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		row, err := ReadRow(b)
		if err != nil {
			return
		}
		again, err := ReadRow(row.Append(nil))
		if err != nil || again.By != row.By || again.Beats != row.Beats {
			t.Fatalf("%+v, %v, want %+v", again, err, row)
		}
	})
}

// fleet is the answer of a store that holds n instances, to who knows nothing.
func fleet(t testing.TB, n int) (Answer, []Row) {
	t.Helper()
	a := Answer{Version: 1, Members: 1, Table: []byte{}, Records: map[string]string{}, Policies: map[string]string{"p": `{"Version":3,"Doc":"e30="}`}}
	rows := make([]Row, n)
	for i := range rows {
		in := statestore.Instance{
			InstanceSpec: statestore.InstanceSpec{ID: fmt.Sprintf("i%05d", i), Incarnation: "x", Labels: map[string]string{"rs": "r1"}},
			Lifecycle:    statestore.Ready,
		}
		text, err := json.Marshal(&in)
		if err != nil {
			t.Fatal(err)
		}
		a.Records[in.ID] = string(text)
		rows[i] = RowOf(&in)
		a.Table = rows[i].Append(a.Table)
	}
	return a, rows
}

func take(t testing.TB, c *Cache, a Answer) statestore.FleetView {
	t.Helper()
	v, err := c.Take(c.Last(), a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestOtherLoadsDecodeNoMember(t *testing.T) { //nolint:paralleltest // counts allocations
	var c Cache
	a, rows := fleet(t, 1000)
	first := take(t, &c, a)
	table := []byte{}
	for i := range rows {
		rows[i].Beats, rows[i].Last.Running = 7, i
		table = rows[i].Append(table)
	}
	other := Row{By: statestore.Owner{Instance: "i00001", Incarnation: "another boot"}, Beats: 99}
	table = other.Append(table)
	known := c.Last()
	allocs := testing.AllocsPerRun(10, func() {
		if _, err := c.Take(known, Answer{Version: 2, Members: 1, Table: table}); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 3 {
		t.Errorf("%v allocations for a new table of %d rows", allocs, len(rows))
	}
	v := take(t, &c, Answer{Version: 3, Members: 1, Table: table, Now: 5})
	if v.Now != 5 || v.Version != 3 || !reflect.DeepEqual(v.Policies, first.Policies) {
		t.Fatalf("the view %d of %d: %v", v.Version, v.Now, v.Policies)
	}
	for i, in := range v.Instances {
		if in.Beats != 7 || in.LastBeat.Running != i || in.Labels["rs"] != "r1" || first.Instances[i].Beats != 0 {
			t.Fatalf("instance %d: %+v, before %+v", i, in, first.Instances[i])
		}
	}
}

func TestNothingNewIsTheSameView(t *testing.T) {
	t.Parallel()
	var c Cache
	a, _ := fleet(t, 3)
	first := take(t, &c, a)
	v := take(t, &c, Answer{Version: 1, Members: 1, Now: 9})
	if v.Now != 9 || &v.Instances[0] != &first.Instances[0] {
		t.Fatalf("another view: %+v", v)
	}
}

// Of the members only those are decoded whose record changed.
func TestOtherMembersKeepTheRest(t *testing.T) {
	t.Parallel()
	var c Cache
	a, rows := fleet(t, 3)
	first := take(t, &c, a)
	changed := first.Instances[1]
	changed.Lifecycle = statestore.Draining
	text, err := json.Marshal(&changed)
	if err != nil {
		t.Fatal(err)
	}
	b := Answer{
		Version: 2, Members: 2, Table: rows[0].Append(nil),
		Records: map[string]string{"i00000": a.Records["i00000"], "i00001": string(text)}, Policies: map[string]string{},
	}
	v := take(t, &c, b)
	if len(v.Instances) != 2 || v.Instances[1].Lifecycle != statestore.Draining || len(v.Policies) != 0 {
		t.Fatalf("%+v", v)
	}
	if reflect.ValueOf(v.Instances[0].Labels).Pointer() != reflect.ValueOf(first.Instances[0].Labels).Pointer() {
		t.Error("a record that did not change was decoded")
	}
	b.Records, b.Version, b.Members = map[string]string{"i00001": "{"}, 3, 3
	if _, err := c.Take(c.Last(), b); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged record: %v", err)
	}
	if _, err := c.Take(c.Last(), Answer{Version: 4, Members: 2, Table: []byte("short")}); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged table: %v", err)
	}
	if _, ok := c.Last().Member(2, "i00001"); !ok {
		t.Error("damage took the last image away")
	}
}

func BenchmarkOtherLoads(b *testing.B) {
	var c Cache
	a, _ := fleet(b, 1000)
	take(b, &c, a)
	known := c.Last()
	for b.Loop() {
		if _, err := c.Take(known, Answer{Version: 2, Members: 1, Table: a.Table}); err != nil {
			b.Fatal(err)
		}
	}
}
