package migrations

import (
	"testing"
	"time"

	"berth/statestore"
)

// Lingering sessions stay until they lapse, or until the last tenth of the time,
// where at_deadline says so.
func TestLinger(t *testing.T) {
	for _, c := range []struct {
		name     string
		at       AtDeadline
		deadline time.Duration
		want     statestore.JobState
		moved    int
		lapsed   int
	}{
		{"until they lapse", DeadlineLeave, 10 * time.Minute, statestore.JobSucceeded, 0, 10},
		{"and are left at the deadline", DeadlineLeave, 150 * time.Second, statestore.JobPartial, 0, 0},
		{"and move before the deadline", DeadlineCommit, 150 * time.Second, statestore.JobSucceeded, 10, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.lives.Affinity = 3 * time.Minute
				a := w.register("a").beating()
				w.register("b")
				a.creates(0, 10)
				began := time.Now()
				job := w.starts("one", w.store).drains(w, DrainSpec{
					Instances: []string{"a"}, Mode: ModeLinger, AtDeadline: c.at, DeadlineMS: c.deadline.Milliseconds(),
				})
				w.pass(130 * time.Second)
				if _, bound := w.truth("a", 10); bound != 10 {
					t.Errorf("after %v %d are bound", time.Since(began), bound)
				}
				got := w.ends(job.ID, c.want)
				if got.Moved != c.moved || got.Skipped[SkippedLapsed] != c.lapsed {
					t.Errorf("progress %+v", got)
				}
				if c.want == statestore.JobPartial && (len(got.Left) != 10 || got.Left[0].Reason != BlockedDeadline) {
					t.Errorf("left: %+v", got.Left)
				}
			})
		})
	}
}

// Of a short time the last tenth would be over before the hints are: what lingers moves
// early enough.
func TestLingerForAShortTime(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.register("a").beating()
		w.register("b")
		a.creates(0, 10)
		job := w.starts("one", w.store).drains(w, DrainSpec{Instances: []string{"a"}, Mode: ModeLinger, DeadlineMS: 60_000})
		w.pass(42 * time.Second)
		if _, bound := w.truth("a", 10); bound != 10 {
			t.Errorf("%d are bound", bound)
		}
		if got := w.ends(job.ID, statestore.JobSucceeded); got.Moved != 10 {
			t.Errorf("progress %+v", got)
		}
	})
}
