package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"berth/migrations"
	"berth/statestore"
)

type jobAnswer struct {
	ID        string                `json:"id"`
	Kind      string                `json:"kind"`
	Mode      string                `json:"mode"` // of a drain
	State     statestore.JobState   `json:"state"`
	Instances []string              `json:"instances"`
	Attempts  int                   `json:"attempts"`
	Spec      *migrations.DrainSpec `json:"spec"` // of a drain
	AgeMS     int64                 `json:"age_ms"`
	Progress  jobProgress           `json:"progress"`

	Now map[string]instanceNow `json:"instances_now"` // added by lookAgain
}

// drained reports whether the job has emptied the instances that it was for.
func (job *jobAnswer) drained() bool {
	return job.Kind == migrations.KindDrain && job.State == statestore.JobSucceeded
}

// unsafe are the instances of a drain that succeeded which must not be stopped all
// the same.
func (job *jobAnswer) unsafe() []string {
	return slices.DeleteFunc(slices.Clone(job.Instances), func(id string) bool { return job.Now[id].SafeToStop })
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
	if j.Kind == migrations.KindRebalance && j.State == statestore.JobSucceeded && p.Total == 0 {
		_, err := fmt.Fprintf(out, "%s: %s, nothing to do: no instance is over its bound\n", j.name(), j.State)
		return err
	}
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
	if j.drained() {
		j.describeSafety(out)
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
	j.describeWaysOn(out)
	return nil
}

// describeSafety says which instances of a drain that succeeded are safe to stop.
func (job *jobAnswer) describeSafety(out io.Writer) {
	unsafe := job.unsafe()
	if len(unsafe) == 0 {
		fmt.Fprintln(out, "safe to stop")
		return
	}
	for _, id := range job.Instances {
		switch state := job.Now[id].State; {
		case !slices.Contains(unsafe, id):
			fmt.Fprintf(out, "%s is safe to stop\n", id)
		case job.Progress.Instances[id].State == "gone":
			fmt.Fprintf(out, "%s is not safe to stop: what was drained is gone, and it was started again under the same id: the new boot is %s\n", id, state)
		default:
			fmt.Fprintf(out, "%s is not safe to stop: it was drained, and was uncordoned or started again since: it is %s\n", id, state)
		}
	}
	fmt.Fprintf(out, "berth drain %s drains what runs there by now\n", strings.Join(unsafe, " "))
}

// describeWaysOn says what may be done after a drain that did not succeed.
func (job *jobAnswer) describeWaysOn(out io.Writer) {
	if job.Kind != migrations.KindDrain {
		return
	}
	switch job.State {
	case statestore.JobCancelled:
		open := slices.DeleteFunc(slices.Clone(job.Instances), job.leftDrained)
		for _, id := range job.Instances {
			if job.leftDrained(id) {
				fmt.Fprintf(out, "%s was %s by then, and stays so\n", id, job.Progress.Instances[id].State)
			}
		}
		if len(open) > 0 {
			fmt.Fprintf(out, "%s: open as before the drain; sessions that moved stay where they are\n", strings.Join(open, ","))
			fmt.Fprintf(out, "berth drain %s begins anew\n", strings.Join(open, " "))
		}
	case statestore.JobPartial, statestore.JobFailed:
		for _, id := range job.Instances {
			if job.leftDrained(id) {
				continue
			}
			fmt.Fprintf(out, "%s stays draining and gets no sessions: berth drain %s tries again, berth uncordon %s gives it sessions again\n", id, id, id)
		}
		fmt.Fprintln(out, "(while a drain runs, berth jobs cancel ends it and gives its instances back)")
	}
}

// nothing says why a job would do nothing; empty for one that would do something.
func nothing(p *migrations.Preview) string {
	over := strings.Join(p.OverBound, ", ")
	switch {
	case p.Sessions+p.Unbound+p.Waiting+len(p.Blocked) > 0:
		return ""
	case p.OverBound == nil:
		return "nothing to do: there is no session to move"
	case over == "":
		return "nothing to do: no instance that is asked about is over its bound"
	}
	return "nothing to do: " + over + " is over its bound, but no session there may move: they are idle, or have been there for less than the policy's min_stick_ms"
}

// leftDrained reports whether nothing was left to do for an instance when the job ended.
func (job *jobAnswer) leftDrained(id string) bool {
	state := job.Progress.Instances[id].State
	return state == "drained" || state == "gone"
}

// describePlan prints what a job would do.
func describePlan(out io.Writer, p *migrations.Preview) error {
	if why := nothing(p); why != "" {
		_, err := fmt.Fprintln(out, why)
		return err
	}
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
