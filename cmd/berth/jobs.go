package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"berth/statestore"
)

// jobsCmd looks at jobs, and controls them.
type jobsCmd struct {
	List   jobsListCmd  `cmd:"" default:"withargs" help:"List jobs, newest first; with an id show that one."`
	Watch  jobsWatchCmd `cmd:"" help:"Follow a job to its end; exits as the command that began it would."`
	Pause  jobPauseCmd  `cmd:"" help:"Let a job wait."`
	Resume jobResumeCmd `cmd:"" help:"Let a paused job go on."`
	Cancel jobCancelCmd `cmd:"" help:"End a job: sessions that moved stay where they are, instances take sessions again."`
}

type jobsListCmd struct {
	RemoteFlags `embed:""`
	Job         string `arg:"" optional:"" help:"Show this job as it stands."`
}

// Run prints a table of jobs, newest first, or one job.
func (c *jobsListCmd) Run(ctx context.Context, std *streams) error {
	if c.Job != "" {
		return c.one(ctx, std)
	}
	answer, err := c.call(ctx, "GET", "/v1/jobs", nil)
	if err != nil {
		return err
	}
	return show(std, c.JSON, answer, func(out io.Writer, list *struct {
		Jobs []jobAnswer `json:"jobs"`
	},
	) error {
		w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "JOB\tKIND\tSTATE\tINSTANCES\tDONE\tTOTAL\tAGE")
		for _, j := range list.Jobs {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", j.ID, j.Kind, j.State, strings.Join(j.Instances, ","),
				j.Progress.Moved+j.Progress.Erased, j.Progress.Total, (time.Duration(j.AgeMS) * time.Millisecond).Round(time.Second))
		}
		return w.Flush()
	})
}

// one prints a job as it stands. Unlike watch it waits for nothing, and succeeds
// whatever became of the job.
func (c *jobsListCmd) one(ctx context.Context, std *streams) error {
	answer, err := c.call(ctx, "GET", "/v1/jobs/"+url.PathEscape(c.Job), nil)
	var refusal *problem
	switch {
	case errors.As(err, &refusal) && refusal.Status == http.StatusNotFound:
		return fmt.Errorf("job %s: %w; berth jobs lists those there are", c.Job, err)
	case err != nil:
		return err
	}
	var job jobAnswer
	if err := json.Unmarshal(answer, &job); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer, err = c.lookAgain(ctx, &job, answer); err != nil {
		return err
	}
	return show(std, c.JSON, answer, func(out io.Writer, j *jobAnswer) error {
		if !j.State.Ended() {
			fmt.Fprintln(out, whatItDoes(j))
		}
		return describeJob(out, j)
	})
}

// JobArg names a job.
type JobArg struct {
	RemoteFlags `embed:""`
	Job         string `arg:"" help:"Id of the job."`
}

type jobsWatchCmd struct {
	JobArg `embed:""`
}

// Run follows a job to its end.
func (c *jobsWatchCmd) Run(ctx context.Context, std *streams) error {
	answer, err := c.call(ctx, "GET", "/v1/jobs/"+url.PathEscape(c.Job), nil)
	if err != nil {
		return err
	}
	return c.conclude(ctx, std, answer, true)
}

type (
	jobPauseCmd  struct{ JobArg }
	jobResumeCmd struct{ JobArg }
	jobCancelCmd struct{ JobArg }
)

// Run pauses a job.
func (c *jobPauseCmd) Run(ctx context.Context, std *streams) error {
	return c.control(ctx, std, "pause")
}

// Run resumes a job.
func (c *jobResumeCmd) Run(ctx context.Context, std *streams) error {
	return c.control(ctx, std, "resume")
}

// Run cancels a job.
func (c *jobCancelCmd) Run(ctx context.Context, std *streams) error {
	return c.control(ctx, std, "cancel")
}

// control asks something of a job; its state says when that is done. To pause or
// resume a job that has ended is an error, to cancel it is only of no use.
func (c *JobArg) control(ctx context.Context, std *streams, action string) error {
	answer, err := c.call(ctx, "POST", "/v1/jobs/"+url.PathEscape(c.Job)+"/"+action, nil)
	if err != nil {
		return err
	}
	var job jobAnswer
	if err := json.Unmarshal(answer, &job); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if !job.State.Ended() || action == "cancel" && job.State == statestore.JobCancelled {
		return show(std, c.JSON, answer, func(out io.Writer, j *jobAnswer) error {
			fmt.Fprintln(out, j.asked(action))
			return describeJob(out, j)
		})
	}
	if c.JSON {
		fmt.Fprintln(std.out, strings.TrimSpace(string(answer)))
	}
	ended := fmt.Errorf("%s: the job had ended already, as %s; see berth jobs watch %s", job.name(), job.State, job.ID)
	if action == "cancel" {
		fmt.Fprintln(std.err, "berth:", ended)
		return nil
	}
	return ended
}

// asked says what comes of an action that was asked of a job, which may take a moment.
func (job *jobAnswer) asked(action string) string {
	switch {
	case action == "cancel" && job.State == statestore.JobCancelled:
		return job.name() + " is cancelled"
	case action == "cancel":
		return fmt.Sprintf("%s will be cancelled: what is under way ends first; berth jobs watch %s follows it", job.name(), job.ID)
	case action == "pause" && job.State == statestore.JobPaused:
		return fmt.Sprintf("%s is paused; berth jobs resume %s lets it go on", job.name(), job.ID)
	case action == "pause":
		return fmt.Sprintf("%s will be paused: what is under way ends first; berth jobs resume %s lets it go on", job.name(), job.ID)
	case job.State == statestore.JobPaused:
		return job.name() + " will go on"
	}
	return job.name() + " goes on"
}
