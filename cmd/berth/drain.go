package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"berth/cmd/berth/internal/progress"
	"berth/migrations"
	"berth/statestore"
)

// Exit codes of `berth drain`, beside 0 for safe to stop and 1 for errors.
const (
	exitPartial  = 3
	exitNoTarget = 4
	exitFailed   = 5
)

// drainCmd drains instances.
type drainCmd struct {
	RemoteFlags `embed:""`
	Instances   []string      `arg:"" help:"Instances to drain."`
	Mode        string        `default:"migrate" enum:"migrate,linger,detach" help:"migrate, linger or detach."`
	Deadline    time.Duration `default:"10m" help:"Time after which the drain ends as partial."`
	Grace       time.Duration `default:"30s" help:"Time for running requests, and for workers to answer."`
	AtDeadline  string        `default:"commit" enum:"commit,leave" help:"Whether idle sessions move cold when the time runs out."`
	IdleBelow   time.Duration `default:"10m" help:"Only sessions idle for less are prewarmed on their target."`
	Wait        bool          `default:"true" negatable:"" help:"Wait until the instances are safe to stop."`
}

type jobAnswer struct {
	ID        string              `json:"id"`
	Kind      string              `json:"kind"`
	State     statestore.JobState `json:"state"`
	Instances []string            `json:"instances"`
	Attempts  int                 `json:"attempts"`
	AgeMS     int64               `json:"age_ms"`
	Progress  jobProgress         `json:"progress"`
}

// jobProgress adds to a job's progress what the commands ask of it.
type jobProgress struct{ migrations.Progress }

func (p *jobProgress) done() int {
	n := p.Moved
	for _, k := range p.Skipped {
		n += k
	}
	return n
}

// Run creates the drain and, unless told otherwise, waits for its end. It exits 0
// when the instances are safe to stop, 3 when the drain is partial, 4 when no
// other instance can take the sessions, 5 when it failed or was cancelled.
func (c *drainCmd) Run(ctx context.Context, std *streams) error {
	grace, idle := c.Grace.Milliseconds(), c.IdleBelow.Milliseconds()
	answer, err := c.call(ctx, "POST", "/v1/drains", migrations.DrainSpec{
		Instances: c.Instances, Mode: migrations.Mode(c.Mode), DeadlineMS: c.Deadline.Milliseconds(), InFlightGraceMS: &grace,
		AtDeadline: migrations.AtDeadline(c.AtDeadline), Prewarm: migrations.Prewarm{IdleBelowMS: &idle},
	})
	if isCode(err, "no_target") {
		fmt.Fprintln(std.err, "berth:", err)
		return exitCode(exitNoTarget)
	}
	if err != nil {
		return err
	}
	var job jobAnswer
	if err := json.Unmarshal(answer, &job); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if c.Wait {
		if answer, err = c.follow(ctx, std, &job); err != nil {
			return err
		}
	}
	if err := show(std, c.JSON, answer, describeJob); err != nil {
		return err
	}
	return exitFor(job.State)
}

// exitFor is the exit code that a job's state means.
func exitFor(state statestore.JobState) error {
	switch state {
	case statestore.JobPartial:
		return exitCode(exitPartial)
	case statestore.JobFailed, statestore.JobCancelled:
		return exitCode(exitFailed)
	}
	return nil
}

// follow shows a bar until the job has ended, and returns its last answer. It
// survives a Berth that restarts meanwhile.
func (c *drainCmd) follow(ctx context.Context, std *streams, job *jobAnswer) ([]byte, error) {
	what := "draining " + strings.Join(job.Instances, ",")
	bar := progress.New(std.err, what, 0)
	defer bar.Done()
	failures := 0
	for {
		answer, err := c.call(ctx, "GET", "/v1/jobs/"+job.ID+"?wait=2s", nil)
		if err == nil {
			err = json.Unmarshal(answer, job)
		}
		if err != nil {
			if failures++; failures > 30 || ctx.Err() != nil {
				return nil, err
			}
			if !sleep(ctx, time.Second) {
				return nil, ctx.Err()
			}
			continue
		}
		failures = 0
		bar.Describe(fmt.Sprintf("%s (%s)", what, job.Progress.Phase))
		bar.Set(job.Progress.done(), job.Progress.Total)
		if job.State.Ended() {
			return answer, nil
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func describeJob(out io.Writer, j *jobAnswer) error {
	p := &j.Progress
	fmt.Fprintf(out, "%s %s: %s, %d of %d sessions left %s", j.Kind, j.ID, j.State, p.done(), p.Total, strings.Join(j.Instances, ","))
	if p.Prewarmed > 0 {
		fmt.Fprintf(out, ", %d of them prewarmed on their target", p.Prewarmed)
	}
	fmt.Fprintln(out)
	if j.State == statestore.JobSucceeded {
		fmt.Fprintln(out, "safe to stop")
	}
	for _, l := range p.Left {
		fmt.Fprintf(out, "left on %s: %s (%s)\n", l.Instance, l.Session, l.Reason)
	}
	return nil
}
