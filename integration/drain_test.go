package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"testing"
)

// job is a drain as the API shows it.
type job struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Attempts int    `json:"attempts"`
	Progress struct {
		Total     int                       `json:"total"`
		Moved     int                       `json:"moved"`
		Skipped   map[string]int            `json:"skipped"`
		Targets   map[string]int            `json:"targets"`
		Left      []struct{ Reason string } `json:"left"`
		Instances map[string]struct {
			State string `json:"state"`
		} `json:"instances"`
	} `json:"progress"`
}

func (j *job) ended() bool {
	return slices.Contains([]string{"succeeded", "partial", "failed", "cancelled"}, j.State)
}

func (a api) job(ctx context.Context, id string) (j job, err error) {
	return j, a.do(ctx, http.MethodGet, "/v1/jobs/"+id+"?wait=1s", nil, &j)
}

// seat binds sessions to i1, whose names it returns, with one turn each.
func (a api) seat(t *testing.T, by credentials, others string, n int) []string {
	t.Helper()
	return a.group(t, "seated", by, others, n)
}

// group does the same under a name of its own.
func (a api) group(t *testing.T, name string, by credentials, others string, n int) []string {
	t.Helper()
	sessions := make([]string, n)
	for i := range sessions {
		sessions[i] = fmt.Sprintf("%s-%d", name, i)
	}
	forAll(t, n, func(ctx context.Context, i int) error {
		h, err := a.route(ctx, sessions[i], "exclude="+others)
		if err != nil {
			return err
		}
		if h.Instance != by.instance {
			return fmt.Errorf("%s was sent to %s", sessions[i], h.Instance)
		}
		_, err = a.append(ctx, sessions[i], newWrite(by, h.Handle, "op-1"))
		return err
	})
	return sessions
}

// TestDrainOutlivesTheProcessThatRanIt is a light form of the cases T31, a job that
// is stuck after a crash, and T15, a coordinator that is paused past its lease and
// wakes up: another process ends the drain, nothing is counted twice, and what the
// first one still wants to do is refused.
func TestDrainOutlivesTheProcessThatRanIt(t *testing.T) {
	t.Parallel()
	t.Run("which was killed", func(t *testing.T) {
		t.Parallel()
		p, c := drainPair(t)
		sessions, j, lost, left := interruptDrain(t, p, c, (*berth).kill9)
		checkDrained(t, left.api(), c, sessions, j)
		lost.restart(t)
		checkDrained(t, lost.api(), c, sessions, j)
	})
	t.Run("which was paused, and woke up when all was done", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS != "linux" {
			t.Skip("not tested outside Linux: a process that is paused")
		}
		p, c := drainPair(t)
		sessions, j, lost, left := interruptDrain(t, p, c, func(b *berth, t testing.TB) { b.pause(t) })
		checkDrained(t, left.api(), c, sessions, j)
		woken := lost.log.mark()
		lost.resume(t)
		must(t, lost.awaitLine(within(t), woken, "job is let go"))
		checkDrained(t, left.api(), c, sessions, j)
		checkDrained(t, lost.api(), c, sessions, j)
	})
}

func drainPair(t *testing.T) (pair, crew) {
	p := onOneRedis(t)
	return p, hire(t, 3, p.urls()...)
}

const seated = 40

// interruptDrain starts a drain of i1, hurts the process that holds it when a
// quarter of the sessions has moved, and returns when the other one has ended it.
func interruptDrain(t *testing.T, p pair, c crew, hurt func(*berth, testing.TB)) (sessions []string, j job, lost, left *berth) {
	t.Helper()
	ctx := t.Context()
	sessions = p.s1.api().seat(t, c.credentials("i1"), "i2:busy,i3:busy", seated)
	order := map[string]any{
		"instances": []string{"i1"}, "deadline_ms": 10 * 60 * 1000, "in_flight_grace_ms": 2000,
		"pace": map[string]any{"sessions_per_s": 5}, "prewarm": map[string]any{"idle_below_ms": 0},
	}
	must(t, p.s1.api().do(ctx, http.MethodPost, "/v1/drains", order, &j))
	lost, left = holder(t, p, j.ID)
	eventually(t, "a quarter of the sessions has moved", func() (err error) {
		j, err = left.api().job(ctx, j.ID)
		if err == nil && j.Progress.Moved < seated/4 {
			err = fmt.Errorf("%d of %d", j.Progress.Moved, j.Progress.Total)
		}
		return err
	})
	hurt(lost, t)
	if j.ended() || j.Progress.Moved >= seated {
		t.Fatalf("the drain was over before it could be interrupted: %+v", j)
	}
	var again job
	must(t, left.api().do(ctx, http.MethodPost, "/v1/drains", order, &again))
	if again.ID != j.ID {
		t.Errorf("asked again for the drain %s, the other process answers %s", j.ID, again.ID)
	}
	eventually(t, "the other process ends the drain", func() (err error) {
		j, err = left.api().job(ctx, j.ID)
		if err == nil && !j.ended() {
			err = fmt.Errorf("%s with %d moved", j.State, j.Progress.Moved)
		}
		return err
	})
	return sessions, j, lost, left
}

// holder tells which process works on the job. It is the one that was asked,
// unless the other happened to look for work in between.
func holder(t *testing.T, p pair, id string) (held, other *berth) {
	t.Helper()
	eventually(t, "a process holds the job", func() error {
		line := `msg="job is held" job=` + id
		switch {
		case p.s1.log.has(line):
			held, other = p.s1, p.s2
		case p.s2.log.has(line):
			held, other = p.s2, p.s1
		default:
			return errors.New("none does")
		}
		return nil
	})
	return held, other
}

// checkDrained holds the end of the drain against every session, as one process
// tells them.
func checkDrained(t *testing.T, at api, c crew, sessions []string, end job) {
	t.Helper()
	ctx := t.Context()
	j, err := at.job(ctx, end.ID)
	must(t, err)
	p := &j.Progress
	if j.State != "succeeded" || j.Attempts != 2 || p.Total != seated || p.Moved != seated || len(p.Skipped)+len(p.Left) > 0 {
		t.Errorf("the job ended as %+v, want all %d moved by 2 processes", j, seated)
	}
	if p.Targets["i2"]+p.Targets["i3"] != seated || p.Instances["i1"].State != "drained" {
		t.Errorf("targets %v, instances %v", p.Targets, p.Instances)
	}
	states, err := at.states(ctx)
	must(t, err)
	if states["i1"] != "drained" {
		t.Errorf("i1 is %s", states["i1"])
	}
	owned := map[string]int{}
	for _, session := range sessions {
		var h struct {
			Owner   struct{ Instance string } `json:"owner"`
			Changes []struct {
				Instance, Reason string
			} `json:"changes"`
		}
		must(t, at.do(ctx, http.MethodGet, "/v1/sessions/"+session+"/history", nil, &h))
		if len(h.Changes) != 2 || h.Changes[0].Instance != "i1" || h.Changes[1].Instance != h.Owner.Instance {
			t.Errorf("%s had the owners %+v, want i1 and one after it", session, h.Changes)
		}
		owned[h.Owner.Instance]++
		got, err := at.load(ctx, session)
		must(t, err)
		if got.Count != 1 {
			t.Errorf("%s has %d turns, want the one that was saved", session, got.Count)
		}
	}
	if owned["i2"] != p.Targets["i2"] || owned["i3"] != p.Targets["i3"] {
		t.Errorf("sessions are owned by %v, the job counted %v", owned, p.Targets)
	}
}
