package scoreboard

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"berth/cmd/berth/internal/figures"
	"berth/cmd/berth/internal/trace"
)

// Report compares policies on one trace. Rates are between 0 and 1.
type Report struct {
	Requests     int      `json:"requests"`
	Sessions     int      `json:"sessions"`
	IdealHitRate float64  `json:"ideal_hit_rate"`
	Policies     []Policy `json:"policies"`
}

// Policy is how one policy did. The package comment defines the figures.
type Policy struct {
	Name                string   `json:"name"`
	HitRate             float64  `json:"hit_rate"`
	ShareOfIdeal        float64  `json:"share_of_ideal"`
	JumpRate            float64  `json:"jump_rate"`      // of the turns that had a predecessor
	ColdJumpRate        float64  `json:"cold_jump_rate"` // of the same turns: jumped and not prewarmed
	RecomputedTokens    int      `json:"recomputed_tokens"`
	PrewarmedTokens     int      `json:"prewarmed_tokens"`
	PrewarmedTokensUsed int      `json:"prewarmed_tokens_used"`
	MaxMeanLoad         float64  `json:"max_mean_load"`
	LostTurns           int      `json:"lost_turns"`
	FailedRequests      int      `json:"failed_requests"`
	AvoidableJumps      int      `json:"avoidable_jumps"` // left an instance still in service
	Events              []Effect `json:"events"`
}

// Effect is what one event did under one policy.
type Effect struct {
	Event
	// Sessions are those whose newest turn the killed or drained instance had
	// served, or those that began on the one that joined.
	Sessions int `json:"sessions"`
	// Moved are the turns that jumped because the instance had left, Warm
	// those of them that were prewarmed where they landed.
	Moved int `json:"moved"`
	Warm  int `json:"warm"`
	// Reshuffled are the avoidable jumps from this event to the next.
	Reshuffled int `json:"reshuffled"`
}

// NewReport returns the report of a trace with these policies, in this order.
func NewReport(t trace.Trace, policies ...Policy) Report {
	return Report{
		Requests:     len(t.Turns),
		Sessions:     t.Sessions,
		IdealHitRate: figures.Round(t.Ideal()),
		Policies:     policies,
	}
}

// WriteJSON writes the report for scripts.
func (r Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// WriteTable writes the report for people: a line for each policy, then what
// each event did under each of them.
func (r Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%d requests of %d sessions; one unbounded shared cache would reuse %s of the prompts\n\n",
		r.Requests, r.Sessions, figures.Percent(r.IdealHitRate))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	figures.Row(table, "policy", "hit rate", "of ideal", "jumps", "cold", "avoidable", "recomputed", "prewarmed", "used", "max/fair", "lost turns", "failed")
	for _, p := range r.Policies {
		figures.Row(table, p.Name, figures.Percent(p.HitRate), figures.Percent(p.ShareOfIdeal), figures.Percent(p.JumpRate), figures.Percent(p.ColdJumpRate),
			strconv.Itoa(p.AvoidableJumps), figures.Short(p.RecomputedTokens), figures.Short(p.PrewarmedTokens), figures.Short(p.PrewarmedTokensUsed),
			strconv.FormatFloat(p.MaxMeanLoad, 'f', 2, 64), strconv.Itoa(p.LostTurns), strconv.Itoa(p.FailedRequests))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return r.writeEvents(w)
}

// writeEvents writes one line for each event with a cell for each policy.
func (r Report) writeEvents(w io.Writer) error {
	if len(r.Policies) == 0 {
		return nil
	}
	fmt.Fprint(w, "\nTurns that jumped because their instance left + turns that jumped although it was in service:\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := []string{"after requests", "event"}
	for _, p := range r.Policies {
		head = append(head, p.Name)
	}
	figures.Row(table, head...)
	for i, e := range r.Policies[0].Events {
		line := []string{strconv.Itoa(e.At), string(e.Kind) + " " + e.Instance}
		for _, p := range r.Policies {
			line = append(line, fmt.Sprintf("%d + %d", p.Events[i].Moved, p.Events[i].Reshuffled))
		}
		figures.Row(table, line...)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
