package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/cmd/berth/internal/pause"
	"berth/cmd/berth/internal/progress"
	"berth/migrations"
	"berth/statestore"
)

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
