package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"berth/cmd/berth/internal/pause"
	"berth/cmd/berth/internal/progress"
	"berth/migrations"
	"berth/statestore"
)

// jobsCmd looks at jobs, and controls them.
type jobsCmd struct {
	List   jobsListCmd  `cmd:"" default:"withargs" help:"List jobs, newest first."`
	Watch  jobsWatchCmd `cmd:"" help:"Follow a job to its end; exits as the command that began it would."`
	Pause  jobPauseCmd  `cmd:"" help:"Let a job wait."`
	Resume jobResumeCmd `cmd:"" help:"Let a paused job go on."`
	Cancel jobCancelCmd `cmd:"" help:"End a job: sessions that moved stay where they are, instances take sessions again."`
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

// done is how many sessions need nothing more of the job, moved or not.
func (p *jobProgress) done() int {
	n := p.Moved + p.Erased
	for _, k := range p.Skipped {
		n += k
	}
	return n
}

// detached is how many of the sessions that left have no instance: moved to nobody.
func (p *jobProgress) detached() int {
	n := p.Moved
	for _, k := range p.Targets {
		n -= k
	}
	return max(0, n)
}

// missed is how many sessions were not there to be moved. One that lapsed or left
// by itself is where it should be.
func (p *jobProgress) missed() int {
	return p.done() - p.Moved - p.Skipped[migrations.SkippedLapsed] - p.Skipped[migrations.SkippedAlreadyMoved]
}

// jobRequest is how a job is asked for, and what else to do if nobody can take
// the sessions.
type jobRequest struct {
	path   string
	body   any
	advice string
}

// begin asks for a job, or for what it would do, and follows it unless told
// otherwise.
func (f *JobFlags) begin(ctx context.Context, std *streams, r *RemoteFlags, q *jobRequest) error {
	answer, err := r.call(ctx, "POST", q.path, q.body)
	switch {
	case isCode(err, "no_target"):
		fmt.Fprintln(std.err, "berth:", err)
		fmt.Fprintln(std.err, "berth:", q.advice)
		return exitCode(exitNoTarget)
	case err != nil:
		return err
	case f.DryRun:
		return show(std, r.JSON, answer, describePlan)
	}
	return r.conclude(ctx, std, answer, f.Wait)
}

// conclude shows a job, after its end if it is waited for, and exits as its state
// says.
func (r *RemoteFlags) conclude(ctx context.Context, std *streams, answer []byte, wait bool) error {
	var job jobAnswer
	err := json.Unmarshal(answer, &job)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if wait {
		if answer, err = r.follow(ctx, std, &job); err != nil {
			return err
		}
	}
	if err := show(std, r.JSON, answer, describeJob); err != nil {
		return err
	}
	return exitFor(&job)
}

// exitFor is the exit code that a job's state means. A rebalance that missed some of
// its sessions, and found no others to move in their place, is no success.
func exitFor(job *jobAnswer) error {
	p := &job.Progress
	switch {
	case job.State == statestore.JobPartial,
		job.State == statestore.JobSucceeded && job.Kind == migrations.KindRebalance && p.missed() > 0 && p.Moved < p.Total:
		return exitCode(exitPartial)
	case job.State == statestore.JobFailed, job.State == statestore.JobCancelled:
		return exitCode(exitFailed)
	}
	return nil
}

// patience is how often a job is asked for in vain, a second apart, before the
// command gives up.
const patience = 30

// follow shows a bar until the job has ended, and returns its last answer. It
// survives a Berth that restarts meanwhile.
func (r *RemoteFlags) follow(ctx context.Context, std *streams, job *jobAnswer) ([]byte, error) {
	bar := progress.New(std.err, whatItDoes(job), 0)
	defer bar.Done()
	failures := 0
	for {
		answer, err := r.call(ctx, "GET", "/v1/jobs/"+job.ID+"?wait=2s", nil)
		if err == nil {
			err = json.Unmarshal(answer, job)
		}
		if err != nil {
			if failures++; failures > patience || ctx.Err() != nil {
				return nil, err
			}
			if pause.For(ctx, time.Second) != nil {
				return nil, ctx.Err()
			}
			continue
		}
		failures = 0
		bar.Describe(whatItDoes(job))
		bar.Set(job.Progress.done(), job.Progress.Total)
		if job.State.Ended() {
			return answer, nil
		}
	}
}

// whatItDoes says beside the bar what a job is busy with, how fast it is, when it
// will be done, and what holds it up.
func whatItDoes(job *jobAnswer) string {
	p := &job.Progress
	says := []string{string(p.Phase)}
	if p.RatePerS >= 0.1 && p.done() < p.Total {
		says = append(says, fmt.Sprintf("%.1f/s", p.RatePerS))
	}
	if p.EtaMS > 0 {
		says = append(says, "about "+(time.Duration(p.EtaMS)*time.Millisecond).Round(time.Second).String()+" left")
	}
	for _, reason := range slices.Sorted(maps.Keys(p.Blocked)) {
		says = append(says, fmt.Sprintf("%d blocked: %s", p.Blocked[reason], reason))
	}
	for _, id := range slices.Sorted(maps.Keys(p.Instances)) {
		if because := p.Instances[id].Because; because != "" && because != migrations.BecauseSessions {
			says = append(says, id+" waits for "+because)
		}
	}
	says = slices.DeleteFunc(says, func(s string) bool { return s == "" })
	return strings.TrimSuffix(job.title()+" ("+strings.Join(says, ", ")+")", " ()")
}

// title is what the job is about.
func (job *jobAnswer) title() string {
	what := map[string]string{migrations.KindDrain: "draining", migrations.KindRebalance: "rebalancing", migrations.KindErase: "ending the sessions of a key"}[job.Kind]
	return strings.TrimSpace(what + " " + strings.Join(job.Instances, ","))
}

// name is the kind and the id, once each.
func (job *jobAnswer) name() string {
	if strings.HasPrefix(job.ID, job.Kind+"-") {
		return job.ID
	}
	return job.Kind + " " + job.ID
}

// describeJob prints what became of a job's sessions, and what is left to do.
func describeJob(out io.Writer, j *jobAnswer) error {
	p := &j.Progress
	detached := p.detached()
	if j.Kind == migrations.KindErase {
		fmt.Fprintf(out, "%s: %s, %d of %d sessions erased", j.name(), j.State, p.Erased, p.Total)
	} else {
		fmt.Fprintf(out, "%s: %s, %d of %d sessions moved", j.name(), j.State, p.Moved-detached, p.Total)
	}
	if j.Kind == migrations.KindDrain {
		fmt.Fprintf(out, " off %s", strings.Join(j.Instances, ","))
	}
	if p.Prewarmed > 0 {
		fmt.Fprintf(out, ", %d of them prewarmed on their target", p.Prewarmed)
	}
	if detached > 0 {
		fmt.Fprintf(out, ", %d detached", detached)
	}
	for _, reason := range slices.Sorted(maps.Keys(p.Skipped)) {
		fmt.Fprintf(out, ", %d skipped: %s", p.Skipped[reason], reason)
	}
	fmt.Fprintln(out)
	if j.Kind == migrations.KindDrain && j.State == statestore.JobSucceeded {
		fmt.Fprintln(out, "safe to stop")
	}
	if detached > 0 {
		fmt.Fprintln(out, "detached sessions have no instance: their contexts are kept, and are rebuilt by whoever serves them next")
	}
	if p.Reason != "" {
		fmt.Fprintln(out, p.Reason)
	}
	for _, l := range p.Left {
		if l.Session == "" {
			fmt.Fprintf(out, "%s is not safe to stop: %s\n", l.Instance, l.Reason)
			continue
		}
		fmt.Fprintf(out, "left on %s: %s (%s)\n", l.Instance, l.Session, l.Reason)
	}
	return nil
}

// describePlan prints what a job would do.
func describePlan(out io.Writer, p *migrations.Preview) error {
	fmt.Fprintf(out, "%d sessions would move, of %d tokens and %d bytes; %d of them, %d tokens, would be prewarmed\n",
		p.Sessions, p.Tokens, p.Bytes, p.PrewarmSessions, p.PrewarmTokens)
	if p.Unbound > 0 {
		fmt.Fprintf(out, "%d would only be unbound\n", p.Unbound)
	}
	if p.Waiting > 0 {
		fmt.Fprintf(out, "%d would be waited for\n", p.Waiting)
	}
	for _, reason := range slices.Sorted(maps.Keys(p.Blocked)) {
		fmt.Fprintf(out, "%d could not move now: %s\n", p.Blocked[reason], reason)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	if len(p.Targets) > 0 {
		fmt.Fprintln(w, "TARGET\tSESSIONS\tTOKENS")
	}
	for _, id := range slices.Sorted(maps.Keys(p.Targets)) {
		fmt.Fprintf(w, "%s\t%d\t%d\n", id, p.Targets[id].Sessions, p.Targets[id].Tokens)
	}
	return w.Flush()
}

type jobsListCmd struct {
	RemoteFlags `embed:""`
}

// Run prints a table of jobs, newest first.
func (c *jobsListCmd) Run(ctx context.Context, std *streams) error {
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
		return show(std, c.JSON, answer, describeJob)
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
