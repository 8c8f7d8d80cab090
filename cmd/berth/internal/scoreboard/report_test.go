package scoreboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"berth/cmd/berth/internal/trace"
)

func sample() Report {
	t := trace.Trace{Turns: make([]trace.Turn, 12_031), Sessions: 7_373, Blocks: 288_500, SeenBlocks: 105_710}
	events := []Effect{{Event: Event{At: 6015, Kind: Kill, Instance: "i3"}, Sessions: 481, Moved: 40, Reshuffled: 2}}
	return NewReport(t,
		Policy{Name: "berth", HitRate: 0.363, ShareOfIdeal: 0.9907, RecomputedTokens: 999, PrewarmedTokens: 1_943_552, PrewarmedTokensUsed: 437_248, MaxMeanLoad: 1.111, Events: events},
		Policy{Name: "random", HitRate: 0.122, LostTurns: 461, Events: events},
	)
}

func TestReportJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := sample().WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got["requests"] != 12031.0 || got["sessions"] != 7373.0 || got["ideal_hit_rate"] != 0.366412 {
		t.Errorf("head %v", got)
	}
	policy := got["policies"].([]any)[0].(map[string]any)
	for _, member := range []string{
		"name", "hit_rate", "share_of_ideal", "jump_rate", "cold_jump_rate", "recomputed_tokens", "prewarmed_tokens",
		"prewarmed_tokens_used", "max_mean_load", "lost_turns", "failed_requests", "avoidable_jumps", "events",
	} {
		if _, ok := policy[member]; !ok {
			t.Errorf("policy lacks %s", member)
		}
	}
	event := policy["events"].([]any)[0].(map[string]any)
	if event["at"] != 6015.0 || event["kind"] != "kill" || event["instance"] != "i3" || event["moved"] != 40.0 {
		t.Errorf("event %v", event)
	}
}

func TestReportTable(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := sample().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for _, want := range [][]string{
		{"12031", "7373", "36.6"},
		{"policy", "of ideal", "max/fair", "lost turns"},
		{"berth", "36.3 %", "99.1 %", "999", "1.9M", "437k", "1.11"},
		{"random", "12.2 %", "461"},
		{"6015", "kill i3", "40 + 2"},
	} {
		if !slices.ContainsFunc(lines, func(line string) bool { return containsAll(line, want) }) {
			t.Errorf("no line with %q in\n%s", want, out.String())
		}
	}
}

func containsAll(line string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(line, part) {
			return false
		}
	}
	return true
}

var errFull = errors.New("disk full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestReportTellsWriteErrors(t *testing.T) {
	t.Parallel()
	if err := sample().WriteJSON(full{}); !errors.Is(err, errFull) {
		t.Errorf("JSON: %v", err)
	}
	if err := sample().WriteTable(full{}); !errors.Is(err, errFull) {
		t.Errorf("table: %v", err)
	}
}
