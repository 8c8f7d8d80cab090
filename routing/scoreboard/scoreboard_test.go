package main

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
)

// A measurement means nothing if an adapter asks a library wrongly.
func TestEverySubjectPlacesKeysOnItsMembers(t *testing.T) {
	keys := sessionKeys(2000)
	for _, s := range subjects() {
		t.Run(s.name, func(t *testing.T) {
			members := memberNames(7, 11)
			table, err := s.build(members[:10], s.points, patience())
			if err != nil {
				t.Fatal(err)
			}
			defer table.stop()
			seen := owners(&table, keys)
			for _, id := range seen {
				if !slices.Contains(members[:10], id) {
					t.Fatalf("a key belongs to %q, who is no member", id)
				}
			}
			if len(slices.Compact(slices.Sorted(slices.Values(seen)))) != 10 {
				t.Error("not every member owns a key")
			}
			if err := table.add(members[10]); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(owners(&table, keys), members[10]) {
				t.Error("the newcomer owns no key")
			}
			if table.remove == nil {
				return
			}
			if err := table.remove(members[4]); err != nil {
				t.Fatal(err)
			}
			if slices.Contains(owners(&table, keys), members[4]) {
				t.Error("who left still owns a key")
			}
		})
	}
}

func TestMovementTellsNeedlessMoves(t *testing.T) {
	before := []string{"a", "a", "b", "b", "c"}
	after := []string{"a", "n", "n", "c", "c"}
	if moved, needless := movement(before, after, "n"); moved != 3 || needless != 1 {
		t.Errorf("moved %d, needless %d, want 3 and 1", moved, needless)
	}
}

func TestRunPrintsBothForms(t *testing.T) {
	args := []string{"-keys", "2048", "-fleets", "1", "-rounds", "3", "-only", "go-jump"}
	var table, script bytes.Buffer
	if err := run(args, &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "| berth | 512 (default) |") || !strings.Contains(table.String(), "dgryski/go-jump") {
		t.Errorf("the table lacks a row:\n%s", table.String())
	}
	if err := run(append(args, "-json"), &script, io.Discard); err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(script.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 3 || r.Rows[0].Lookup1000 == nil || r.Machine.Go == "" {
		t.Errorf("the report is not whole: %+v", r)
	}
	if err := run([]string{"-keys", "1000"}, io.Discard, io.Discard); err == nil {
		t.Error("fewer keys than a round has were accepted")
	}
}
