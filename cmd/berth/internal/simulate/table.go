package simulate

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"berth/cmd/berth/internal/figures"
)

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s on %d instances, %s after a warm-up of %s: %d turns; one unbounded shared cache would reuse %s of the prompts\n\n",
		r.Workload, r.Instances, r.Duration, r.Warmup, r.Turns, figures.Percent(r.IdealHitRate))
	if r.Refused > 0 {
		fmt.Fprintf(w, "%d turns more found no instance that could serve them\n\n", r.Refused)
	}
	outcomes := append([]Outcome{r.Outcome}, r.Others...)
	for _, part := range []func(*tabwriter.Writer){
		func(t *tabwriter.Writer) { writePolicies(t, outcomes) },
		r.writeEvents, r.writeMoves, r.writeRamps, r.writeSeries,
	} {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		part(t)
		if err := t.Flush(); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return nil
}

func writePolicies(t *tabwriter.Writer, outcomes []Outcome) {
	figures.Row(t, "policy", "hit rate", "jumps", "live jumps", "recomputed", "prewarmed", "max/mean", "stddev", "peak", "first token", "p99", "failed tries")
	for _, o := range outcomes {
		figures.Row(t, o.Policy, figures.Percent(o.HitRate), figures.Percent(o.JumpRate), strconv.Itoa(o.LiveJumps),
			figures.Short(o.RecomputedTokens), figures.Short(o.PrewarmedTokens), decimal(o.MaxMean), decimal(o.StdDevMean),
			decimal(o.PeakMaxMean)+" at "+o.PeakAt, millis(o.MeanTTFTMS), millis(o.P99TTFTMS), strconv.Itoa(o.FailedTries))
	}
}

func (r *Report) writeEvents(t *tabwriter.Writer) {
	if len(r.Events) == 0 {
		return
	}
	fmt.Fprint(t, "\nWhat each event did under berth: sessions with affinity whose place changed by it, and turns of them that jumped; hit rate: until the next\n\n")
	figures.Row(t, "event", "held", "moved", "live jumps", "key space", "hit rate", "recomputed", "prewarmed", "failed tries", "safe to stop")
	for _, e := range r.Events {
		safe := ""
		if e.SafeAfterMS > 0 {
			safe = "after " + (time.Duration(e.SafeAfterMS) * time.Millisecond).String()
		} else if e.Kind == Drain {
			safe = "not yet"
		}
		figures.Row(t, e.Event, strconv.Itoa(e.Bound), strconv.Itoa(e.MovedSessions), strconv.Itoa(e.LiveJumps), figures.Percent(e.MovedShare),
			figures.Percent(e.HitRate), figures.Short(e.RecomputedTokens), figures.Short(e.PrewarmedTokens), strconv.Itoa(e.FailedTries), safe)
	}
}

// writeMoves says who moved where, and why.
func (r *Report) writeMoves(t *tabwriter.Writer) {
	for _, e := range r.Events {
		if e.LiveJumps == 0 {
			continue
		}
		var why []string
		for _, reason := range slices.Sorted(maps.Keys(e.Why)) {
			why = append(why, fmt.Sprintf("%s %d", reason, e.Why[reason]))
		}
		from, n := mostOf(e.From)
		to, most := mostOf(e.To)
		fmt.Fprintf(t, "\n%s: live jumps by reason: %s; %d left %s", e.Event, strings.Join(why, ", "), n, from)
		if others := len(e.From) - 1; others > 0 {
			fmt.Fprintf(t, ", %d left %d others", e.LiveJumps-n, others)
		}
		fmt.Fprintf(t, "; they came to %d instances, most to %s (%d)", len(e.To), to, most)
	}
	if r.JumpsOfNoEvent > 0 {
		fmt.Fprintf(t, "\nno event: %d live jumps, of sessions that left instances over their bound", r.JumpsOfNoEvent)
	}
	fmt.Fprintln(t)
}

func (r *Report) writeRamps(t *tabwriter.Writer) {
	for _, e := range r.Events {
		if len(e.Ramp) == 0 {
			continue
		}
		fmt.Fprintf(t, "\n%s: new sessions that began on the newcomers, by step of their ramp\n\n", e.Event)
		figures.Row(t, "from", "weight", "new sessions", "on newcomers", "share", "expected")
		for _, s := range e.Ramp {
			figures.Row(t, s.At, strconv.Itoa(s.Percent)+" %", strconv.Itoa(s.New), strconv.Itoa(s.Theirs),
				fine(s.Share), fine(s.Expected))
		}
	}
}

// rowsOfSeries keeps the table on a screen; JSON and the plot have every sample.
const rowsOfSeries = 15

func (r *Report) writeSeries(t *tabwriter.Writer) {
	fmt.Fprint(t, "\nOver time, under berth: the worst of each stretch, and its sums\n\n")
	figures.Row(t, "until", "max/mean", "stddev", "hit rate", "live jumps", "new sessions", "recomputed", "waiting")
	for stretch := range slices.Chunk(r.Series, max(1, (len(r.Series)+rowsOfSeries-1)/rowsOfSeries)) {
		s := worst(stretch)
		figures.Row(t, (time.Duration(s.AtS) * time.Second).String(), decimal(s.MaxMean), decimal(s.StdDevMean), figures.Percent(s.HitRate),
			strconv.Itoa(s.LiveJumps), strconv.Itoa(s.New), figures.Short(s.Recomputed), strconv.Itoa(s.Waiting))
	}
}

// worst joins samples: sums of what is counted, the worst of what is measured.
func worst(stretch []Sample) Sample {
	w := stretch[0]
	for _, s := range stretch[1:] {
		w.AtS = s.AtS
		w.MaxMean, w.StdDevMean = max(w.MaxMean, s.MaxMean), max(w.StdDevMean, s.StdDevMean)
		w.HitRate, w.Waiting = min(w.HitRate, s.HitRate), max(w.Waiting, s.Waiting)
		w.Jumps, w.LiveJumps, w.New, w.Recomputed = w.Jumps+s.Jumps, w.LiveJumps+s.LiveJumps, w.New+s.New, w.Recomputed+s.Recomputed
	}
	return w
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) }
func fine(x float64) string    { return strconv.FormatFloat(100*x, 'f', 2, 64) + " %" }
func millis(ms int64) string   { return (time.Duration(ms) * time.Millisecond).String() }
