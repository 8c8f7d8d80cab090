package simulate

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"berth/migrations"
	"berth/statestore"
)

// drained is a drain that went wrong in places: two sessions left by themselves, one
// stayed, and two went to another target than was expected.
func drained() *Job {
	return &Job{
		ID: "j", Kind: migrations.KindDrain, State: statestore.JobPartial, Instances: []string{"i1", "i2"}, Attempts: 1,
		Spec: &migrations.DrainSpec{
			Mode: migrations.ModeMigrate, DeadlineMS: 60_000, Pace: migrations.Pace{SessionsPerS: 2.5, TokensPerS: 1e4},
			InFlightGraceMS: new(int64(1000)), Prewarm: migrations.Prewarm{IdleBelowMS: new(int64(5000)), MaxTokens: 900},
		},
		Progress: migrations.Progress{
			Total: 14, Moved: 10, Prewarmed: 3, Tokens: 1100, PrewarmedTokens: 450, Unanswered: 4,
			Skipped:     map[string]int{migrations.SkippedLapsed: 1, migrations.SkippedAlreadyMoved: 2},
			Targets:     map[string]int{"i3": 4, "i4": 4, "i5": 2},
			FirstMoveMS: 500, LastMoveMS: 6100,
			Forecast: &migrations.Forecast{
				Sessions: 13, Prewarmed: 8, Tokens: 1300, PrewarmedTokens: 800, Lapsed: 1, TookMS: 4800,
				Targets: map[string]int{"i3": 7, "i4": 6},
			},
		},
	}
}

// Every figure is set beside what the drain itself counted, and what it could not
// expect is told apart.
func TestCheckSetsFiguresSideBySide(t *testing.T) {
	t.Parallel()
	c, err := CheckDrain(drained())
	if err != nil {
		t.Fatal(err)
	}
	for what, x := range map[string]struct {
		got               CheckedFigure
		predicted, actual int64
	}{
		"moved": {c.Moved, 13, 10}, "prewarmed": {c.Prewarmed, 8, 3}, "cold": {c.Cold, 5, 7}, "lapsed": {c.Lapsed, 1, 1},
		"left": {c.Left, 0, 1}, "tokens": {c.Tokens, 1300, 1100}, "prewarmed tokens": {c.PrewarmedTokens, 800, 450}, "took": {c.TookMS, 4800, 5600},
	} {
		if *x.got.Predicted != x.predicted || *x.got.Actual != x.actual {
			t.Errorf("%s: predicted %d, actual %d; want %d and %d", what, *x.got.Predicted, *x.got.Actual, x.predicted, x.actual)
		}
	}
	if want := []CheckTarget{{"i3", 7, 4}, {"i4", 6, 4}, {"i5", 0, 2}}; !slices.Equal(c.Targets, want) || c.Misplaced != 2 {
		t.Errorf("targets %v, %d misplaced", c.Targets, c.Misplaced)
	}
	if want := map[string]int{migrations.SkippedAlreadyMoved: 2}; !maps.Equal(c.Unexpected, want) || c.Unanswered != 4 {
		t.Errorf("unexpected %v, unanswered %d", c.Unexpected, c.Unanswered)
	}
	var table strings.Builder
	if err := c.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"drain of i1,i2: partial", "a second at most 2.5 sessions, 10000 tokens; 1m0s for all; prewarmed are those idle below 5s, up to 900 tokens in all",
		"sessions gone otherwise: already_moved", "4 of the cold sessions", "at least 2 of the moved",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
}

// What is not known is not made up: the time without a pace, and that of no move at all.
func TestCheckMakesNothingUp(t *testing.T) {
	t.Parallel()
	job := drained()
	job.Attempts = 3
	job.Spec.Pace, job.Spec.InFlightGraceMS = migrations.Pace{}, new(int64)
	job.Progress = migrations.Progress{Forecast: &migrations.Forecast{}}
	c, err := CheckDrain(job)
	if err != nil {
		t.Fatal(err)
	}
	if c.TookMS.Predicted != nil || c.TookMS.Actual != nil || c.Targets == nil || c.Unexpected == nil {
		t.Errorf("of no move at all: %+v", c)
	}
	var table strings.Builder
	if err := c.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no pace; 1m0s for all; nobody is prewarmed", "no time is predicted", "3 processes worked on it"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Job){
		"it is a rebalance":      func(j *Job) { j.Kind, j.Spec = migrations.KindRebalance, nil },
		"linger":                 func(j *Job) { j.Spec.Mode = migrations.ModeLinger },
		"detaches":               func(j *Job) { j.Spec.Mode = migrations.ModeDetach },
		"it is running":          func(j *Job) { j.State = statestore.JobRunning },
		"was cancelled":          func(j *Job) { j.State = statestore.JobCancelled },
		"it failed: its reason":  func(j *Job) { j.State, j.Progress.Reason = statestore.JobFailed, "its reason" },
		"stored no forecast":     func(j *Job) { j.Progress.Forecast = nil },
		"takes a newer version":  func(j *Job) { j.Spec = nil },
		"check job j: it failed": func(j *Job) { j.State = statestore.JobFailed },
	} {
		job := drained()
		change(job)
		if c, err := CheckDrain(job); err == nil || c != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error that says %q", err, want)
		}
	}
}
