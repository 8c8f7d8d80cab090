package simulate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"berth/cmd/berth/internal/figures"
)

// explain says why the cheapest of a knob's values was not chosen; nil where it was.
func (t *Tuning) explain(tried []Tried, present float64) *Kept {
	cheapest := slices.MinFunc(tried, func(a, b Tried) int { return cmp.Compare(a.Cost, b.Cost) })
	at := func(is func(Tried) bool) *Tried { return &tried[slices.IndexFunc(tried, is)] }
	chosen, before := at(func(x Tried) bool { return x.Chosen }), at(func(x Tried) bool { return x.Value == present })
	if cheapest.Cost == chosen.Cost {
		return nil
	}
	act, what := "kept", "the difference"
	if chosen != before {
		act, what = "recommended", fmt.Sprintf("what that gains on the %s before, %.4f,", before.value(), cheapest.Gain)
	}
	reason := fmt.Sprintf("is within the noise (± %.4f with 95 %% over %d populations)", cheapest.Needed, t.Populations)
	if cheapest.Needed == leastGain(before.Cost) {
		reason = fmt.Sprintf("is below half a percent of the cost (%.4f), for which nothing is changed", cheapest.Needed)
	}
	return &Kept{
		Knob: chosen.Knob, Value: chosen.Value, Cheaper: cheapest.Value,
		Why: fmt.Sprintf("%s %s is %s though %s costs %.4f less: %s %s", chosen.Knob, chosen.value(), act, cheapest.value(), chosen.Cost-cheapest.Cost, what, reason),
	}
}

// WriteTable writes what was tried.
func (t *Tuning) WriteTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	figures.Row(table, "", "knob", "value", "cost", "± 95 %", "gains", "must gain", "max/mean", "peak", "live jumps", "recomputed", "prewarmed", "first token", "p99")
	last := ""
	var idle []string
	for _, x := range t.Tried {
		if !x.Played {
			if x.Chosen {
				idle = append(idle, fmt.Sprintf("%s %s", x.Knob, x.value()))
			}
			continue
		}
		mark, name := "", ""
		if x.Chosen {
			mark = "*"
		}
		if x.Knob != last {
			last, name = x.Knob, x.Knob
		}
		figures.Row(table, mark, name, x.value(), exact(x.Cost), t.doubt(&x), exact(x.Gain), exact(x.Needed), decimal(x.MaxMean), decimal(x.Peak),
			strconv.Itoa(x.LiveJumps), figures.Short(x.Recomputed), figures.Short(x.Prewarmed), millis(x.MeanTTFTMS), millis(x.P99TTFTMS))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(idle) > 0 {
		fmt.Fprintf(w, "\nKept, because every value costs the same where nobody joins or is drained: %s.\n", strings.Join(idle, ", "))
	}
	if len(t.Kept) > 0 {
		fmt.Fprintln(w)
	}
	for _, k := range t.Kept {
		fmt.Fprintf(w, "%s.\n", k.Why)
	}
	_, err := fmt.Fprintf(w, "\nCost: seconds a turn that instances compute, times max/mean, and that users wait for the first token. %s\n"+
		"The starting policy costs %.4f, the recommended one %.4f (* marks what it has).\n", t.rule(), t.Before, t.After)
	return err
}

// rule says when a value is chosen.
func (t *Tuning) rule() string {
	if t.Populations == 1 {
		return "There is one\npopulation, so that what chance brings about is not known: a value is chosen for what it gains on the\n" +
			"one that the knob had when that is above half a percent."
	}
	return fmt.Sprintf("± is what\nchance brings about in it, with 95 %%, over the %d populations that each value is played with. A value is chosen for\n"+
		"what it gains on the one that the knob had, in the same populations, when that is above what chance brings about in\n"+
		"the difference and half a percent of the cost: what it must gain.", t.Populations)
}

// doubt is how sure a cost is, for people.
func (t *Tuning) doubt(x *Tried) string {
	if t.Populations == 1 {
		return "not known"
	}
	return exact(x.Doubt)
}

// exact writes a cost, of which differences are small.
func exact(cost float64) string { return strconv.FormatFloat(cost, 'f', 4, 64) }

// value is the knob's, for people.
func (x *Tried) value() string {
	if x.Knob == boundKnob && x.Value == noBound || x.Knob == churnKnob && x.Value == 0 {
		return "none"
	}
	return strconv.FormatFloat(x.Value, 'f', -1, 64)
}
