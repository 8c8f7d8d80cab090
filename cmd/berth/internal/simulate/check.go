package simulate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"berth/cmd/berth/internal/figures"
	"berth/routing"
)

// Job is a drain that was really made.
type Job struct {
	ID              string
	Instances       []string
	Age             time.Duration // since it was created
	Moved           int
	Skipped         int // lapsed, expired or deleted before they moved
	Targets         map[string]int
	PrewarmedTokens int
}

// Check is what the simulation of a drain says beside what it did.
type Check struct {
	Job       string        `json:"job"`
	Instances []string      `json:"instances"`
	Known     int           `json:"sessions_known"` // still stored with the move as their newest change
	Moved     CheckedFigure `json:"moved_sessions"`
	MaxMean   CheckedFigure `json:"max_mean_of_targets"`
	Took      CheckedFigure `json:"took_s"` // from the first move to the last
	Prewarmed CheckedFigure `json:"prewarmed_tokens"`
	// SameTarget is the part of the known sessions that went where the
	// simulation puts them.
	SameTarget float64       `json:"same_target"`
	Targets    []CheckTarget `json:"targets"`
}

// CheckedFigure is one figure, predicted and as it was.
type CheckedFigure struct {
	Predicted float64 `json:"predicted"`
	Actual    float64 `json:"actual"`
}

// CheckTarget is how many sessions an instance got.
type CheckTarget struct {
	Instance  string `json:"instance"`
	Predicted int    `json:"predicted"`
	Actual    int    `json:"actual"`
}

// CheckDrain plays the drain again on the fleet as it was before: what the job
// moved is put back, and moved as the simulation moves it. Loads are those of
// now, so instances that were over their bound then may not be.
func CheckDrain(sc Scenario, f *Fleet, job Job) (*Check, error) {
	c := &Check{Job: job.ID, Instances: job.Instances}
	snap, err := fleetSnapshot(&sc, f, job.Instances)
	if err != nil {
		return nil, err
	}
	names, err := newStandIns(sc.Policy.Ring)
	if err != nil {
		return nil, err
	}
	plan := &placing{tally: routing.NewTally(snap, job.Instances...), parts: map[string]float64{}}
	moved := c.replay(f, job, &sc.Move, func(hash uint64) string { return plan.place(names.key(hash), 0) })
	c.Moved = CheckedFigure{float64(moved), float64(job.Moved)}
	for i := range c.Targets {
		c.Targets[i].Actual = job.Targets[c.Targets[i].Instance]
	}
	for id, n := range job.Targets {
		if !slices.ContainsFunc(c.Targets, func(t CheckTarget) bool { return t.Instance == id }) {
			c.Targets = append(c.Targets, CheckTarget{Instance: id, Actual: n})
		}
	}
	slices.SortFunc(c.Targets, func(a, b CheckTarget) int { return cmp.Compare(a.Instance, b.Instance) })
	c.MaxMean = c.unevenness(len(f.Replicas) - len(job.Instances))
	c.Prewarmed.Actual = float64(job.PrewarmedTokens)
	return c, nil
}

// fleetSnapshot is the pool with the sources in it.
func fleetSnapshot(sc *Scenario, f *Fleet, sources []string) (*routing.Snapshot, error) {
	spec := routing.Spec{Version: 1, Policy: sc.Policy}
	for _, r := range f.Replicas {
		in := routing.Instance{ID: r.ID, Weight: r.Weight, State: r.State, RampPercent: r.RampPercent, Zone: r.Zone}
		if slices.Contains(sources, r.ID) {
			in.State = routing.Draining
		}
		spec.Instances = append(spec.Instances, in)
	}
	return routing.NewSnapshot(spec, nil)
}

// replay places every session that the job moved, in the order of the moves, and
// compares with where it is.
func (c *Check) replay(f *Fleet, job Job, pace *Move, place func(hash uint64) string) (moved int) {
	var list []*Stored
	for i := range f.Sessions {
		s := &f.Sessions[i]
		if s.Moved != nil && s.Moved.Ago <= job.Age && slices.Contains(job.Instances, s.Moved.From) || slices.Contains(job.Instances, s.Owner) && s.Live {
			list = append(list, s)
		}
	}
	slices.SortStableFunc(list, func(a, b *Stored) int { return cmp.Compare(b.movedAgo(), a.movedAgo()) })
	targets, same := map[string]int{}, 0
	var first, last time.Duration
	for _, s := range list {
		target := place(s.Hash)
		if target == "" {
			continue
		}
		moved++
		targets[target]++
		if s.Moved == nil {
			continue
		}
		if c.Known++; target == s.Owner {
			same++
		}
		first, last = max(first, s.Moved.Ago), min(cmp.Or(last, s.Moved.Ago), s.Moved.Ago)
		if idle := s.Idle - s.Moved.Ago; idle >= 0 && idle < pace.IdleBelow {
			c.Prewarmed.Predicted += float64(s.Tokens)
		}
	}
	c.SameTarget = figures.Ratio(same, c.Known)
	c.Took = CheckedFigure{figures.Round(float64(moved) / pace.SessionsPerS), (first - last).Seconds()}
	for id, n := range targets {
		c.Targets = append(c.Targets, CheckTarget{Instance: id, Predicted: n})
	}
	return moved
}

func (s *Stored) movedAgo() time.Duration {
	if s.Moved == nil {
		return 0
	}
	return s.Moved.Ago
}

// unevenness is what the busiest target got, over the mean of those that could.
func (c *Check) unevenness(targets int) CheckedFigure {
	var most, sum CheckedFigure
	for _, t := range c.Targets {
		most.Predicted, most.Actual = max(most.Predicted, float64(t.Predicted)), max(most.Actual, float64(t.Actual))
		sum.Predicted, sum.Actual = sum.Predicted+float64(t.Predicted), sum.Actual+float64(t.Actual)
	}
	over := func(most, sum float64) float64 {
		if sum == 0 {
			return 0
		}
		return figures.Round(most * float64(targets) / sum)
	}
	return CheckedFigure{over(most.Predicted, sum.Predicted), over(most.Actual, sum.Actual)}
}

// WriteTable writes the check for people.
func (c *Check) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "job %s, drain of %v: %d of its moves can still be seen, %s of them went where the simulation puts them\n\n",
		c.Job, c.Instances, c.Known, figures.Percent(c.SameTarget))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	figures.Row(t, "", "predicted", "actual")
	for _, row := range []struct {
		name string
		CheckedFigure
	}{
		{"sessions moved", c.Moved}, {"busiest target / mean", c.MaxMean}, {"seconds from first to last move", c.Took}, {"prewarmed tokens, if workers take tasks", c.Prewarmed},
	} {
		figures.Row(t, row.name, plain(row.Predicted), plain(row.Actual))
	}
	for _, target := range c.Targets {
		figures.Row(t, "to "+target.Instance, plain(float64(target.Predicted)), plain(float64(target.Actual)))
	}
	return t.Flush()
}

func plain(x float64) string { return fmt.Sprintf("%.6g", x) }
