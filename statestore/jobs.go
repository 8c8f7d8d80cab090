package statestore

import (
	"context"
	"time"
)

// JobState is where a job is.
type JobState string

// States of a job. The last four are ends.
const (
	JobPending    JobState = "pending"
	JobPlanning   JobState = "planning"
	JobRunning    JobState = "running"
	JobPaused     JobState = "paused"
	JobCancelling JobState = "cancelling"
	JobSucceeded  JobState = "succeeded"
	JobPartial    JobState = "partial"
	JobFailed     JobState = "failed"
	JobCancelled  JobState = "cancelled"
)

// Ended reports whether the job does nothing more.
func (s JobState) Ended() bool {
	switch s {
	case JobSucceeded, JobPartial, JobFailed, JobCancelled:
		return true
	}
	return false
}

// Control is what an operator asked of a running job.
type Control string

// Controls. The zero value asks nothing.
const (
	ControlNone   Control = ""
	ControlPause  Control = "pause"
	ControlCancel Control = "cancel"
)

// Job is a stored piece of long work. What Spec and Progress mean is the
// business of the package that runs it.
type Job struct {
	ID       string   `json:"id"`
	Kind     string   `json:"kind"`
	Pool     string   `json:"pool"`
	Sources  []Owner  `json:"sources,omitempty"`
	State    JobState `json:"state"`
	Control  Control  `json:"control,omitempty"`
	Attempts int      `json:"attempts"` // holdings so far
	Spec     []byte   `json:"spec"`
	Progress []byte   `json:"progress,omitempty"`
	Created  Millis   `json:"created"`
	Updated  Millis   `json:"updated"`
	Deadline Millis   `json:"deadline"`
	Ended    Millis   `json:"ended,omitempty"`
	Holder   string   `json:"holder,omitempty"`
	Token    uint64   `json:"token"`
	LeaseEnd Millis   `json:"lease_end"`
}

// Ref names the present holding.
func (j *Job) Ref() JobRef { return JobRef{ID: j.ID, Token: j.Token} }

// Jobs are stored, leased and fenced.
type Jobs interface {
	// CreateJob stores j with its deadline given as a time from now. While a
	// job of the same kind with the same sources has not ended, that one is
	// returned instead, with existed true.
	CreateJob(ctx context.Context, j Job, deadline time.Duration) (job Job, existed bool, err error)
	// AcquireJob takes over a job whose lease is free or over, with a higher
	// token and one more attempt. LeaseHeldError otherwise; ErrNotFound.
	AcquireJob(ctx context.Context, id, holder string, ttl time.Duration) (Job, error)
	// SaveJob stores state and progress and renews the lease, if the token is
	// still the job's (LeaseHeldError). It answers the job with what operators
	// asked meanwhile.
	SaveJob(ctx context.Context, ref JobRef, state JobState, progress []byte, ttl time.Duration) (Job, error)
	// ControlJob stores an operator's wish; a job that has ended is unchanged.
	ControlJob(ctx context.Context, id string, c Control) (Job, error)
	Job(ctx context.Context, id string) (Job, Millis, error)
	// Jobs lists all jobs, newest first, with the store's clock.
	Jobs(ctx context.Context) ([]Job, Millis, error)
	// PurgeJobs forgets jobs that ended longer than keep ago, with their tasks and
	// tokens, and the fences of those of their sources that are not registered any
	// more: an incarnation never comes back. One that still is keeps its fence.
	PurgeJobs(ctx context.Context, keep time.Duration) (int, error)
}

// TaskKind says what a worker is asked to do.
type TaskKind string

// Kinds of tasks.
const (
	TaskOffload TaskKind = "offload"
	TaskPrewarm TaskKind = "prewarm"
	TaskRelease TaskKind = "release"
	TaskForget  TaskKind = "forget"
)

// TaskResult is a worker's answer. The zero value: none yet.
type TaskResult string

// Results of tasks.
const (
	TaskOpen    TaskResult = ""
	TaskDone    TaskResult = "done"
	TaskRefused TaskResult = "refused"
	TaskFailed  TaskResult = "failed"
)

// Task is one thing asked of one boot of an instance.
type Task struct {
	ID      string     `json:"id"`
	Kind    TaskKind   `json:"kind"`
	For     Owner      `json:"for"`
	Session SessionKey `json:"session"`
	Floor   Floor      `json:"floor"` // what its handle will say
	// Owner and Epoch are set in a notice that the session has moved: who owns it
	// now. There is nothing left to do before.
	Owner    Owner      `json:"owner,omitzero"`
	Epoch    uint64     `json:"epoch,omitempty"`
	Job      string     `json:"job,omitempty"`
	Deadline Millis     `json:"deadline"`
	LeaseEnd Millis     `json:"lease_end,omitempty"`
	Result   TaskResult `json:"result,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Version  uint64     `json:"version,omitempty"`
}

// Notice reports whether the task only tells that the session has moved.
func (t *Task) Notice() bool { return !t.Owner.IsZero() }

// Tasks are pulled by workers, leased, and answered once.
type Tasks interface {
	// PutTasks stores tasks that end after the given time. A task whose id is
	// stored already is left as it is.
	PutTasks(ctx context.Context, tasks []Task, deadline time.Duration) error
	// LeaseTasks hands out up to limit open tasks whose lease is over. A notice is
	// done with that: it is handed out once.
	LeaseTasks(ctx context.Context, by Owner, limit int, lease time.Duration) ([]Task, Millis, error)
	// OpenTasks reads up to limit of those that LeaseTasks would hand out, oldest
	// first, and leaves them open.
	OpenTasks(ctx context.Context, by Owner, limit int) ([]Task, Millis, error)
	// FinishTask stores the answer of the boot it was meant for, and returns the
	// task with it. A repeated answer changes nothing. ErrNotFound when the task
	// is over or another's.
	FinishTask(ctx context.Context, by Owner, id string, a TaskAnswer) (Task, error)
	// ReadTasks reads those of the tasks that are stored, answered or not, in the
	// order of the ids, of which none is there twice.
	ReadTasks(ctx context.Context, ids []string) ([]Task, error)
	// TasksOf reads the tasks of a job, answered or not.
	TasksOf(ctx context.Context, job string) ([]Task, error)
	// DropTasks forgets the tasks of a job.
	DropTasks(ctx context.Context, job string) error
}

// TaskAnswer is what a worker says of a task.
type TaskAnswer struct {
	Result  TaskResult
	Reason  string
	Version uint64
}
