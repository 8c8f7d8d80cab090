package services_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// What any replica is told of an instance stands in its note, for the holder of
// the health lease to judge; a process that ends takes its note along.
func TestOutcomesAreTold(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	a, b := setupOn(t, store), setupOn(t, store)
	incarnation := a.register("i1", `{"address":"10.0.0.1:8000"}`).want(200).str("incarnation")
	eventually(t, "the other replica knows it", func() bool { return b.call("GET", "/route?session=s", "").status == 503 })
	b.call("GET", "/route?session=s&exclude=i1:5xx,stranger:connect", "").want(503)
	b.call("POST", "/v1/outcomes", `{"outcomes":[
		{"instance":"i1","result":"5xx","status":503},{"instance":"i1","result":"ok"},{"instance":"i1","result":"client","status":400}]}`).want(202)
	want := map[string]uint64{"5xx": 1, "busy": 1, "ok": 1, "client": 1}
	told := func() (counts map[string]uint64, notes int) {
		all, err := store.Notes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range all {
			var said map[string]map[string]uint64
			if err := json.Unmarshal(text, &said); err != nil {
				t.Fatal(err)
			}
			for boot, c := range said {
				if !strings.HasPrefix(boot, "i1 ") || strings.Contains(boot, incarnation) {
					t.Fatalf("a note about %q: want the digest of i1's incarnation, and nothing of strangers", boot)
				}
				counts = c
			}
		}
		return counts, len(all)
	}
	eventually(t, "both processes tell, and one of them the outcomes", func() bool {
		counts, notes := told()
		return notes == 2 && len(counts) == len(want) && counts["5xx"] == 1 && counts["busy"] == 1 && counts["ok"] == 1 && counts["client"] == 1
	})
	b.stop()
	if _, notes := told(); notes != 1 {
		t.Fatalf("%d notes after one of two processes ended", notes)
	}
}
