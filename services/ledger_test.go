package services

import (
	"testing"

	"berth/statestore"
)

// The holder reads what was counted since its last look, whatever restarts.
func TestLedgerReadsWhatIsNew(t *testing.T) {
	t.Parallel()
	var l ledger
	for i, step := range []struct {
		notes map[string]string
		want  map[string]uint64
	}{
		{map[string]string{"p": `{"i1 x":{"5xx":7}}`}, nil}, // before its time
		{map[string]string{"p": `{"i1 x":{"5xx":8,"ok":2}}`}, map[string]uint64{"5xx": 1, "ok": 2}},
		{map[string]string{"p": `{"i1 x":{"5xx":8,"ok":2}}`, "q": `{"i1 x":{"5xx":3}}`}, map[string]uint64{"5xx": 3}},
		{map[string]string{"q": `{"i1 x":{"5xx":4}}`}, map[string]uint64{"5xx": 1}},
		{map[string]string{"p": `{"i1 x":{"5xx":9,"ok":2}}`, "q": `not JSON`}, map[string]uint64{"5xx": 1}}, // late, not new
		{map[string]string{"p": `{"i1 x":{"5xx":2}}`}, map[string]uint64{"5xx": 2}},                         // a name that began anew
	} {
		texts := map[string][]byte{}
		for process, text := range step.notes {
			texts[process] = []byte(text)
		}
		news, _ := l.read(texts)
		if got := news[statestore.Owner{Instance: "i1", Incarnation: "x"}]; len(got) != len(step.want) || got["5xx"] != step.want["5xx"] || got["ok"] != step.want["ok"] {
			t.Fatalf("look %d: %v, want %v", i, got, step.want)
		}
	}
}
