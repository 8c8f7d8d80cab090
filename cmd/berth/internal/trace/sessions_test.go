package trace

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestConversationFigures(t *testing.T) {
	t.Parallel()
	all, err := Load(Conversation(), 0)
	if err != nil {
		t.Fatal(err)
	}
	turns := make([]int, all.Sessions)
	for i, turn := range all.Turns {
		if turn.N != turns[turn.Session] {
			t.Fatalf("request %d is turn %d of session %d, want %d", i, turn.N, turn.Session, turns[turn.Session])
		}
		turns[turn.Session]++
	}
	continued := 0
	for _, n := range turns {
		if n > 1 {
			continued++
		}
	}
	if len(all.Turns) != 12_031 || all.Sessions != 7_373 || continued != 2_259 {
		t.Errorf("%d requests, %d sessions, %d with more than one turn; want 12031, 7373, 2259",
			len(all.Turns), all.Sessions, continued)
	}
	if all.SeenBlocks != 105_710 || all.Blocks != 288_500 || math.Round(all.Ideal()*1e4) != 3664 {
		t.Errorf("ideal is %d of %d blocks = %.4f, want 105710 of 288500 = 0.3664",
			all.SeenBlocks, all.Blocks, all.Ideal())
	}
}

// requestLines writes a trace of full blocks, one request for each list.
func requestLines(requests ...[]int) string {
	var b strings.Builder
	for i, blocks := range requests {
		fmt.Fprintf(&b, `{"timestamp":%d,"input_length":%d,"output_length":10,"hash_ids":%s}`+"\n",
			i, len(blocks)*BlockTokens, strings.ReplaceAll(fmt.Sprint(blocks), " ", ","))
	}
	return b.String()
}

func TestLoadGroupsBySharedBlocks(t *testing.T) {
	t.Parallel()
	type turn struct{ session, n, seen, newTokens int }
	for _, tc := range []struct {
		name     string
		requests [][]int
		want     []turn
	}{
		{"the block all share makes no session", [][]int{{0, 1}, {0, 2}}, []turn{{0, 0, 0, 1034}, {1, 0, 1, 1034}}},
		{"a longer prompt continues", [][]int{{0, 1}, {0, 1, 2, 3}}, []turn{{0, 0, 0, 1034}, {0, 1, 2, 1024}}},
		{"a cut prompt continues too", [][]int{{0, 1, 2}, {0, 1}}, []turn{{0, 0, 0, 1546}, {0, 1, 2, 10}}},
		{
			"the last block seen before decides", [][]int{{0, 1}, {0, 2}, {0, 1, 2, 3}, {3}},
			[]turn{{0, 0, 0, 1034}, {1, 0, 1, 1034}, {1, 1, 3, 1024}, {1, 2, 1, 10}},
		},
		{"only leading blocks can be reused", [][]int{{0, 1, 2}, {0, 9, 2}}, []turn{{0, 0, 0, 1546}, {0, 1, 1, 10 + 0}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := Load(strings.NewReader(requestLines(tc.requests...)), 0)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range tc.want {
				g := got.Turns[i]
				if (turn{g.Session, g.N, g.Seen, g.NewTokens}) != want {
					t.Errorf("request %d is session %d turn %d, seen %d, new %d; want %+v", i, g.Session, g.N, g.Seen, g.NewTokens, want)
				}
			}
		})
	}
}

func TestLoadStopsAtTheLimit(t *testing.T) {
	t.Parallel()
	text := requestLines([]int{0, 1}, []int{0, 2}) + "damaged"
	got, err := Load(strings.NewReader(text), 2)
	if err != nil || len(got.Turns) != 2 || got.Sessions != 2 {
		t.Errorf("read %d turns of %d sessions, error %v; want 2 of 2", len(got.Turns), got.Sessions, err)
	}
	if _, err := Load(strings.NewReader(text), 0); err == nil {
		t.Error("no error for the damaged third line")
	}
	if _, err := Load(strings.NewReader("\n"), 0); err == nil {
		t.Error("no error for an empty trace")
	}
}
