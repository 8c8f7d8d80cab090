package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
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
	mode   string // of a drain
	advice string
}

// begin asks for a job, or for what it would do, and follows it unless told
// otherwise.
func (f *JobFlags) begin(ctx context.Context, std *streams, r *RemoteFlags, q *jobRequest) error {
	if f.Deadline < time.Millisecond {
		return fmt.Errorf("--deadline is %s, must be at least 1ms: a job without time moves nothing", f.Deadline)
	}
	answer, status, err := r.ask(ctx, "POST", q.path, q.body)
	var refusal *problem
	switch {
	case errors.As(err, &refusal) && refusal.Code == "no_target":
		if r.JSON {
			fmt.Fprintln(std.out, strings.TrimSpace(string(refusal.document)))
		}
		fmt.Fprintln(std.err, "berth:", err)
		fmt.Fprintln(std.err, "berth:", q.advice)
		return exitCode(exitNoTarget)
	case err != nil:
		return err
	case f.DryRun:
		return show(std, r.JSON, answer, describePlan)
	}
	var job jobAnswer
	if err := json.Unmarshal(answer, &job); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if status == http.StatusOK {
		job.joined(std.err, q.mode)
	}
	return r.conclude(ctx, std, answer, f.Wait)
}

// joined notes that there was a job before, which is followed instead of a new one:
// none of what was asked for changes it.
func (job *jobAnswer) joined(notes io.Writer, mode string) {
	fmt.Fprintf(notes, "berth: %s was there before, and is not changed by what is asked for by now\n", job.name())
	if job.Mode != "" && job.Mode != mode {
		fmt.Fprintf(notes, "berth: it was asked for with --mode %s, not %s: to have that, cancel it (berth jobs cancel %s) and drain again\n", job.Mode, mode, job.ID)
	}
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
	if answer, err = r.lookAgain(ctx, &job, answer); err != nil {
		return err
	}
	if err := show(std, r.JSON, answer, describeJob); err != nil {
		return err
	}
	return exitFor(&job)
}

// exitFor is the exit code that a job's state means. A rebalance that missed some of
// its sessions, and found no others to move in their place, is no success, nor is a
// drain of instances that serve again.
func exitFor(job *jobAnswer) error {
	p := &job.Progress
	switch {
	case job.State == statestore.JobPartial, job.drained() && len(job.unsafe()) > 0,
		job.State == statestore.JobSucceeded && job.Kind == migrations.KindRebalance && p.missed() > 0 && p.Moved < p.Total:
		return exitCode(exitPartial)
	case job.State == statestore.JobFailed, job.State == statestore.JobCancelled:
		return exitCode(exitFailed)
	}
	return nil
}

// instanceNow is what an instance of a drain is after the drain.
type instanceNow struct {
	State      string `json:"state"` // gone: none of that id is registered
	SafeToStop bool   `json:"safe_to_stop"`
}

// lookAgain adds to a drain that succeeded what its instances are by now. The drain
// was of the boots that it found: one that was killed meanwhile is drained with
// nothing left to do, while its successor serves under the same id.
func (r *RemoteFlags) lookAgain(ctx context.Context, job *jobAnswer, answer []byte) ([]byte, error) {
	if !job.drained() {
		return answer, nil
	}
	job.Now = map[string]instanceNow{}
	for _, id := range job.Instances {
		now := instanceNow{State: "gone", SafeToStop: true}
		seen, err := r.insist(ctx, "/v1/instances/"+url.PathEscape(id))
		var refusal *problem
		switch {
		case errors.As(err, &refusal) && refusal.Status == http.StatusNotFound:
		case err != nil:
			return nil, fmt.Errorf("%s succeeded; see whether %s is safe to stop: %w", job.name(), id, err)
		default:
			now = instanceNow{}
			if err := json.Unmarshal(seen, &now); err != nil {
				return nil, fmt.Errorf("read the answer: %w", err)
			}
		}
		job.Now[id] = now
	}
	return withMember(answer, "instances_now", job.Now)
}

// withMember adds a member to the JSON object of an answer.
func withMember(answer []byte, name string, value any) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(answer, &members); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	added, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	members[name] = added
	return json.Marshal(members)
}

// patience is how often something is asked for in vain, a second apart, before the
// command gives up.
const patience = 30

// insist asks until there is an answer or a refusal that stays one. It survives a
// Berth that restarts meanwhile.
func (r *RemoteFlags) insist(ctx context.Context, path string) ([]byte, error) {
	for failures := 1; ; failures++ {
		answer, err := r.call(ctx, "GET", path, nil)
		var refusal *problem
		final := errors.As(err, &refusal) && refusal.Status/100 == 4 && refusal.Status != http.StatusTooManyRequests
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil || final || failures > patience {
			return answer, err
		}
		if pause.For(ctx, time.Second) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// follow shows a bar until the job has ended, and returns its last answer.
func (r *RemoteFlags) follow(ctx context.Context, std *streams, job *jobAnswer) ([]byte, error) {
	bar := progress.NewTold(std.err, whatItDoes(job))
	defer bar.Done()
	for {
		answer, err := r.insist(ctx, "/v1/jobs/"+url.PathEscape(job.ID)+"?wait=2s")
		var refusal *problem
		switch {
		case errors.As(err, &refusal):
			return nil, err
		case err != nil:
			return nil, job.goesOn(err)
		}
		var now jobAnswer // what an answer leaves out is over
		if err := json.Unmarshal(answer, &now); err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		*job = now
		bar.Describe(whatItDoes(job))
		bar.Set(job.Progress.done(), job.Progress.Total)
		if job.State.Ended() {
			return answer, nil
		}
	}
}

// goesOn says of a job that is no longer followed that it does not end with the
// command, and what to do about it.
func (job *jobAnswer) goesOn(because error) error {
	return fmt.Errorf("%w; %s goes on without this command: berth jobs watch %s follows it again, berth jobs cancel %s ends it", because, job.name(), job.ID, job.ID)
}

// whatItDoes says beside the bar what a job is busy with, how fast it is, when it
// will be done, and what holds it up.
func whatItDoes(job *jobAnswer) string {
	p := &job.Progress
	says := []string{job.phase()}
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

// phase is what the job is busy with. A drain that lets sessions linger moves none of
// them before the last of its time.
func (job *jobAnswer) phase() string {
	if p := &job.Progress; job.Mode == string(migrations.ModeLinger) && p.Phase == migrations.PhaseMoving && p.Moved == 0 {
		return "lingering: waiting for sessions to lapse"
	}
	return string(job.Progress.Phase)
}
