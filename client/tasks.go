package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// TaskKind says what a worker is asked to do.
type TaskKind string

// Kinds of tasks.
const (
	// TaskOffload: put the session's KV cache where the target can read it, and
	// answer the placements.
	TaskOffload TaskKind = "offload"
	// TaskPrewarm: recover the session with [Prewarm] and build its KV cache.
	TaskPrewarm TaskKind = "prewarm"
	// TaskRelease: finish the turn, save, answer the version; go on serving
	// until a new epoch is seen.
	TaskRelease TaskKind = "release"
	// TaskForget: the session was deleted; remove its KV cache everywhere.
	TaskForget TaskKind = "forget"
)

// Task is one thing that Berth asks of this boot of the instance.
type Task struct {
	ID      string
	Kind    TaskKind
	Session SessionKey
	Handle  Handle        // to present in a [RecoverRequest]; none for TaskForget
	Left    time.Duration // until its deadline
	// Moved is set when the session has moved already, and the task only tells of
	// it: a TaskRelease the instance that owned it, a TaskPrewarm the instance that
	// was asked to prewarm it and owns it by now.
	Moved *Owner
}

// TaskAnswer is what a worker says of a task.
type TaskAnswer struct {
	Refused bool   // it will not do it, rather than that it failed
	Reason  string // of a refusal or a failure
	Version uint64 // TaskRelease: the version that was saved
	KV      []Placement
}

// TaskHandler does a task. An error says that it failed; its text is the reason,
// and reaches Berth. ctx ends at the task's deadline.
type TaskHandler func(ctx context.Context, t Task) (TaskAnswer, error)

// TaskHandlers are by kind. Tasks of a kind without one are refused.
type TaskHandlers struct {
	Offload, Prewarm, Release, Forget TaskHandler
	// Moved hears of sessions that have moved, away or to here. Nothing has to be
	// done about it; without one, such tasks are answered unseen.
	Moved TaskHandler
}

func (h *TaskHandlers) any() bool {
	return h.Offload != nil || h.Prewarm != nil || h.Release != nil || h.Forget != nil || h.Moved != nil
}

func (h *TaskHandlers) of(t *Task) TaskHandler {
	if t.Moved != nil {
		if h.Moved == nil {
			return func(context.Context, Task) (TaskAnswer, error) { return TaskAnswer{}, nil }
		}
		return h.Moved
	}
	switch t.Kind {
	case TaskOffload:
		return h.Offload
	case TaskPrewarm:
		return h.Prewarm
	case TaskRelease:
		return h.Release
	case TaskForget:
		return h.Forget
	}
	return nil
}

type wireTask struct {
	ID         string   `json:"id"`
	Kind       TaskKind `json:"kind"`
	Session    string   `json:"session"`
	Tenant     string   `json:"tenant"`
	Pool       string   `json:"pool"`
	Handle     Handle   `json:"handle"`
	Moved      *Owner   `json:"moved"`
	DeadlineMS int64    `json:"deadline_ms"`
	LeaseMS    int64    `json:"lease_ms"`

	polled bool // and not only named by a heartbeat
}

// mute reports whether nobody waits for the task's answer: a notice that is not
// handed out again.
func (w *wireTask) mute() bool { return w.polled && w.Moved != nil && w.LeaseMS == 0 }

// DefaultTasksAtOnce is how many tasks a worker does at the same time. It bounds what
// a worker takes on, not what it is asked for: how many prewarms an instance is given
// at once is for the job's pace to say.
const DefaultTasksAtOnce = 64

const (
	pollWait     = 25 * time.Second
	mostAPoll    = 64               // tasks that one answer may have
	answerBudget = 30 * time.Second // beyond a task's deadline, for its answer
	maxReason    = 1024             // bytes
)

// taskRunner does tasks, as many at once as it has slots, each once however often it
// is handed out.
type taskRunner struct {
	w        *Worker
	handlers TaskHandlers
	slots    chan struct{}
	running  sync.WaitGroup

	mu    sync.Mutex
	under map[string]struct{} // ids of tasks under way
}

func newTaskRunner(w *Worker, h TaskHandlers, atOnce int) *taskRunner {
	return &taskRunner{w: w, handlers: h, slots: make(chan struct{}, positive(atOnce, DefaultTasksAtOnce)), under: map[string]struct{}{}}
}

func (t *taskRunner) wait() { t.running.Wait() }

// poll asks for tasks whenever there is room for some.
func (t *taskRunner) poll(ctx context.Context) error {
	var failures backoff
	for {
		room, err := t.room(ctx)
		if err != nil {
			return err
		}
		tasks, err := t.ask(ctx, room)
		switch {
		case err == nil:
			failures.rounds = 0
			t.start(ctx, tasks)
			continue
		case errors.Is(err, ErrStaleIncarnation), ctx.Err() != nil:
			return err
		}
		// Unknown instance: the heartbeat registers again.
		t.w.conn.log().DebugContext(ctx, "asking for tasks failed", "instance", t.w.instance.ID, "error", err)
		if err := sleep(ctx, failures.next()); err != nil {
			return err
		}
		failures.rounds++
	}
}

// room waits until a task could run, and returns how many could.
func (t *taskRunner) room(ctx context.Context) (int, error) {
	select {
	case t.slots <- struct{}{}:
		<-t.slots
		return cap(t.slots) - len(t.slots), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (t *taskRunner) ask(ctx context.Context, room int) ([]wireTask, error) {
	k := t.w.call("ask for tasks", http.MethodGet, "/tasks")
	k.query = url.Values{"wait": {pollWait.String()}, "max": {strconv.Itoa(min(max(1, room), mostAPoll))}}
	k.set(headerIncarnation, t.w.Incarnation())
	k.wait = pollWait
	var answer struct {
		Tasks []wireTask `json:"tasks"`
	}
	err := t.w.conn.once(ctx, k.into(&answer))
	for i := range answer.Tasks {
		answer.Tasks[i].polled = true
	}
	return answer.Tasks, err
}

// start begins the tasks that are not under way. It is called by the poll and
// by the heartbeat, which must not wait: tasks without a slot wait by themselves.
func (t *taskRunner) start(ctx context.Context, tasks []wireTask) {
	for _, task := range tasks {
		t.mu.Lock()
		_, known := t.under[task.ID]
		t.under[task.ID] = struct{}{}
		t.mu.Unlock()
		if known {
			continue
		}
		t.running.Go(func() {
			defer func() {
				t.mu.Lock()
				delete(t.under, task.ID)
				t.mu.Unlock()
			}()
			select {
			case t.slots <- struct{}{}:
				defer func() { <-t.slots }()
				t.run(ctx, task)
			case <-ctx.Done():
			}
		})
	}
}

// run does one task and answers it. A worker that is stopping leaves its tasks
// to their lease.
func (t *taskRunner) run(ctx context.Context, wire wireTask) {
	left := ms(wire.DeadlineMS)
	task := Task{
		ID: wire.ID, Kind: wire.Kind, Handle: wire.Handle, Left: left, Moved: wire.Moved,
		Session: SessionKey{ID: wire.Session, Tenant: wire.Tenant, Pool: wire.Pool},
	}
	result, answer := t.handle(ctx, task)
	if ctx.Err() != nil || wire.mute() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, left+answerBudget)
	defer cancel()
	if err := t.answer(ctx, task, result, answer); err != nil {
		t.w.conn.log().WarnContext(ctx, "a task's answer was not taken", "instance", t.w.instance.ID, "kind", string(task.Kind), "error", err)
	}
}

func (t *taskRunner) handle(ctx context.Context, task Task) (result string, answer TaskAnswer) {
	do := t.handlers.of(&task)
	if do == nil {
		return "refused", TaskAnswer{Reason: "this worker does no such tasks"}
	}
	ctx, cancel := context.WithTimeout(ctx, task.Left)
	defer cancel()
	answer, err := do(ctx, task)
	switch {
	case err != nil:
		answer.Reason = err.Error()
		return "failed", answer
	case answer.Refused:
		return "refused", answer
	}
	return "done", answer
}

func (t *taskRunner) answer(ctx context.Context, task Task, result string, a TaskAnswer) error {
	k, err := t.w.call("answer a task", http.MethodPost, "/tasks/"+url.PathEscape(task.ID)).withJSON(struct {
		Incarnation string      `json:"incarnation"`
		Result      string      `json:"result"`
		Reason      string      `json:"reason,omitempty"`
		Version     uint64      `json:"version,omitempty"`
		KV          []Placement `json:"kv,omitempty"`
	}{t.w.Incarnation(), result, strings.ToValidUTF8(a.Reason[:min(len(a.Reason), maxReason)], ""), a.Version, a.KV})
	if err != nil {
		return err
	}
	_, err = t.w.conn.repeat(ctx, k)
	return err
}
