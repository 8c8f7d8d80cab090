package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"berth/cmd/berth/internal/figures"
	"berth/migrations"
	"berth/statestore"
)

// Job is a job as its Berth tells of it.
type Job struct {
	ID        string
	Kind      string
	State     statestore.JobState
	Instances []string
	Attempts  int                   // processes that have worked on it
	Spec      *migrations.DrainSpec // of a drain
	Progress  migrations.Progress
}

// Check is what a drain expected before its first move beside what it did. Nothing in
// it is of any other time or job: whoever came back, moved on or was drained again
// since changes none of it.
type Check struct {
	Job       string                `json:"job"`
	State     statestore.JobState   `json:"state"`
	Instances []string              `json:"instances"`
	Spec      *migrations.DrainSpec `json:"spec"`

	Moved           CheckedFigure `json:"moved_sessions"`
	Prewarmed       CheckedFigure `json:"prewarmed_sessions"` // of those moved
	Cold            CheckedFigure `json:"cold_sessions"`      // all others of those moved
	Lapsed          CheckedFigure `json:"lapsed_sessions"`    // not moved, only unbound
	Left            CheckedFigure `json:"left_sessions"`      // still on the instances at its end
	Tokens          CheckedFigure `json:"moved_tokens"`       // in the contexts of those moved
	PrewarmedTokens CheckedFigure `json:"prewarmed_tokens"`   // repeated prewarms count again
	TookMS          CheckedFigure `json:"took_ms"`            // from the first move to the last
	// Misplaced is how many of the moved sessions are on another target than was
	// expected, at least: what the counts of the targets differ by.
	Misplaced int           `json:"misplaced_sessions_at_least"`
	Targets   []CheckTarget `json:"targets"`
	// Unexpected are sessions that left otherwise, by how: nothing is predicted of them.
	Unexpected map[string]int `json:"unexpected"`
	// Unanswered are cold sessions that were to be prewarmed, whose target took no task
	// or did not answer it.
	Unanswered int      `json:"unanswered_prewarms"`
	Notes      []string `json:"notes"`
}

// CheckedFigure is one figure, predicted and as it was; nil where nothing is known.
type CheckedFigure struct {
	Predicted *int64 `json:"predicted"`
	Actual    *int64 `json:"actual"`
}

// CheckTarget is how many sessions an instance got.
type CheckTarget struct {
	Instance  string `json:"instance"`
	Predicted int    `json:"predicted"`
	Actual    int    `json:"actual"`
}

// CheckDrain holds a drain against its own forecast. Its error says why there is
// nothing to compare.
func CheckDrain(job *Job) (*Check, error) {
	if err := job.comparable(); err != nil {
		return nil, fmt.Errorf("check job %s: %w", job.ID, err)
	}
	p, f := &job.Progress, job.Progress.Forecast
	c := &Check{
		Job: job.ID, State: job.State, Instances: job.Instances, Spec: job.Spec,
		Moved:           figure(f.Sessions, p.Moved),
		Prewarmed:       figure(f.Prewarmed, p.Prewarmed),
		Cold:            figure(f.Sessions-f.Prewarmed, p.Moved-p.Prewarmed),
		Lapsed:          figure(f.Lapsed, p.Skipped[migrations.SkippedLapsed]),
		Left:            figure(f.Left, p.Open()),
		Tokens:          figure(f.Tokens, p.Tokens),
		PrewarmedTokens: figure(f.PrewarmedTokens, p.PrewarmedTokens),
		Unexpected:      map[string]int{}, Unanswered: p.Unanswered,
	}
	if f.TookMS > 0 {
		c.TookMS.Predicted = new(f.TookMS)
	}
	if p.Moved > 0 {
		c.TookMS.Actual = new(p.LastMoveMS - p.FirstMoveMS)
	}
	maps.Copy(c.Unexpected, p.Skipped)
	delete(c.Unexpected, migrations.SkippedLapsed)
	c.compareTargets(f.Targets, p.Targets)
	c.note(job)
	return c, nil
}

// comparable says why a job cannot be held against a forecast.
func (job *Job) comparable() error {
	switch {
	case job.Kind != migrations.KindDrain:
		return fmt.Errorf("it is a %s: only drains are checked", job.Kind)
	case job.Spec == nil:
		return errors.New("its Berth does not say what it was asked for: that takes a newer version")
	case job.Spec.Mode == migrations.ModeLinger:
		return errors.New("it lets sessions linger until they lapse: no moves are predicted for that")
	case job.Spec.Mode == migrations.ModeDetach:
		return errors.New("it detaches sessions: no moves are predicted for that")
	case !job.State.Ended():
		return fmt.Errorf("it is %s: wait until it has ended", job.State)
	case job.State == statestore.JobCancelled:
		return errors.New("it was cancelled: it moved what it happened to reach")
	case job.State == statestore.JobFailed:
		return fmt.Errorf("it failed: %s", cmp.Or(job.Progress.Reason, "it does not say why"))
	case job.Progress.Forecast == nil:
		return errors.New("it stored no forecast when it began: it was begun, or taken over, by a version that does not")
	}
	return nil
}

func figure[T int | uint64](predicted, actual T) CheckedFigure {
	return CheckedFigure{new(int64(predicted)), new(int64(actual))} //nolint:gosec // counts of sessions and tokens
}

func (c *Check) compareTargets(predicted, actual map[string]int) {
	all := maps.Clone(predicted)
	if all == nil {
		all = map[string]int{}
	}
	maps.Copy(all, actual)
	more, fewer := 0, 0
	c.Targets = []CheckTarget{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		t := CheckTarget{id, predicted[id], actual[id]}
		c.Targets = append(c.Targets, t)
		more, fewer = more+max(0, t.Actual-t.Predicted), fewer+max(0, t.Predicted-t.Actual)
	}
	c.Misplaced = min(more, fewer)
}

// note says how the prediction was made, and what is not known.
func (c *Check) note(job *Job) {
	c.Notes = []string{
		"predicted: by the drain itself before its first move, from the sessions, loads and targets of that moment and its own limits, as if no turn ran, nobody came back and workers did at once what they are asked",
		"actual: what the drain counted; what sessions did later is no part of it, nor is what cold ones that came back had to compute",
	}
	if c.TookMS.Predicted == nil {
		c.Notes = append(c.Notes, "no time is predicted: its pace bounds nothing here")
	} else {
		c.Notes = append(c.Notes, "its time is predicted from its pace alone: waits for turns and for workers, and pauses, come on top; half a second of them may be made up for")
	}
	if c.Unanswered > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d of the cold sessions were to be prewarmed, and their targets took no task or did not answer it", c.Unanswered))
		if *c.Prewarmed.Predicted > *c.Prewarmed.Actual {
			c.Notes = append(c.Notes, "a worker is expected to prewarm until it is known to poll for nothing: a minute after it registered at the earliest, two for one that has polled or is older than the Berth that ran the drain")
		}
	}
	if job.Attempts > 1 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d processes worked on it one after the other: in between nothing moved, and a move just before a change is dated at that change", job.Attempts))
	}
}

// WriteTable writes the check for people.
func (c *Check) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "job %s, drain of %s: %s\n%s\n\n", c.Job, strings.Join(c.Instances, ","), c.State, describeLimits(c.Spec))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	figures.Row(t, "", "predicted", "actual")
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	row := func(name string, f CheckedFigure) {
		figures.Row(t, name, orDash(f.Predicted, count), orDash(f.Actual, count))
	}
	row("sessions moved", c.Moved)
	row("of them prewarmed", c.Prewarmed)
	row("of them cold", c.Cold)
	row("sessions lapsed before their turn", c.Lapsed)
	row("sessions left behind", c.Left)
	row("tokens of the sessions moved", c.Tokens)
	row("tokens prewarmed, repeats included", c.PrewarmedTokens)
	seconds := func(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 1, 64) }
	figures.Row(t, "seconds from first to last move", orDash(c.TookMS.Predicted, seconds), orDash(c.TookMS.Actual, seconds))
	for _, target := range c.Targets {
		figures.Row(t, "to "+target.Instance, strconv.Itoa(target.Predicted), strconv.Itoa(target.Actual))
	}
	for _, how := range slices.Sorted(maps.Keys(c.Unexpected)) {
		figures.Row(t, "sessions gone otherwise: "+how, "-", strconv.Itoa(c.Unexpected[how]))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nat least %d of the moved sessions are on another target than predicted\n", c.Misplaced)
	for _, note := range c.Notes {
		fmt.Fprintln(w, note)
	}
	return nil
}

// orDash writes a figure, or that it is not known.
func orDash(n *int64, write func(int64) string) string {
	if n == nil {
		return "-"
	}
	return write(*n)
}

// describeLimits says what a drain was told to keep to.
func describeLimits(s *migrations.DrainSpec) string {
	var pace []string
	for _, x := range []struct {
		what string
		perS float64
	}{{"sessions", s.Pace.SessionsPerS}, {"bytes", s.Pace.BytesPerS}, {"tokens", s.Pace.TokensPerS}, {"prewarmed tokens", s.Prewarm.TokensPerS}} {
		if x.perS > 0 {
			pace = append(pace, strconv.FormatFloat(x.perS, 'g', -1, 64)+" "+x.what)
		}
	}
	text := "no pace"
	if len(pace) > 0 {
		text = "a second at most " + strings.Join(pace, ", ")
	}
	text += fmt.Sprintf("; %s for all", time.Duration(s.DeadlineMS)*time.Millisecond)
	switch idle := s.Prewarm.IdleBelowMS; {
	case s.InFlightGraceMS != nil && *s.InFlightGraceMS == 0, idle != nil && *idle == 0:
		return text + "; nobody is prewarmed"
	case idle != nil:
		text += fmt.Sprintf("; prewarmed are those idle below %s", time.Duration(*idle)*time.Millisecond)
	}
	if s.Prewarm.MaxTokens > 0 {
		text += fmt.Sprintf(", up to %d tokens in all", s.Prewarm.MaxTokens)
	}
	return text
}
