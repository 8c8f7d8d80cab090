package trace

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTextKeepsItsSize(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		session, n := rapid.IntRange(0, 1e6).Draw(t, "session"), rapid.IntRange(0, 100).Draw(t, "turn")
		tokens := rapid.IntRange(0, 6000).Draw(t, "tokens")
		text := Text(session, n, tokens)
		want := min(16<<10, max(4, 4*tokens))
		if len(text) > want || len(text) <= want-utf8.UTFMax {
			t.Fatalf("%d bytes for %d tokens, want %d", len(text), tokens, want)
		}
		if quoted, err := json.Marshal(text); err != nil || string(quoted) != `"`+text+`"` || !utf8.ValidString(text) {
			t.Fatalf("text needs escaping in JSON: %q (%v)", text, err)
		}
		if text != Text(session, n, tokens) {
			t.Fatal("two texts for one turn")
		}
		if tokens > 20 && (text == Text(session, n+1, tokens) || text == Text(session+1, n, tokens)) {
			t.Fatal("two turns say the same")
		}
	})
}
