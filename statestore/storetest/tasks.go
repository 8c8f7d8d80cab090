package storetest

import (
	"fmt"
	"time"

	"berth/statestore"
)

func (w *world) task(id string, by statestore.Owner) statestore.Task {
	return statestore.Task{
		ID: id, Kind: statestore.TaskPrewarm, For: by, Session: w.key, Job: "job-1",
		Floor: statestore.Floor{Epoch: 1 << 60, Version: 7, Op: statestore.DigestOp("op")},
	}
}

func (w *world) putTasks(deadline time.Duration, tasks ...statestore.Task) {
	w.Helper()
	w.ok("put tasks", w.store.PutTasks(w.ctx, tasks, deadline))
}

// leased are the ids of the tasks that are handed out.
func (w *world) leased(by statestore.Owner, limit int, lease time.Duration) []string {
	w.Helper()
	tasks, now, err := w.store.LeaseTasks(w.ctx, by, limit, lease)
	w.ok("lease tasks", err)
	if now == 0 {
		w.Fatal("tasks came without the store's clock")
	}
	ids := []string{}
	for _, t := range tasks {
		ids = append(ids, t.ID)
		if t.For != by || t.LeaseEnd <= now || t.Deadline <= now {
			w.Fatalf("a task that was handed out at %d: %+v", now, t)
		}
	}
	return ids
}

func tasksLeased(w *world) {
	w.shorten()
	a := w.worker("a").by
	equal(w, "no tasks", w.leased(a, 8, time.Minute), []string{})
	w.putTasks(time.Hour, w.task("1", a), w.task("2", a), w.task("3", a))
	lease := w.lives.Affinity
	equal(w, "the first two", w.leased(a, 2, lease), []string{"1", "2"})
	equal(w, "the rest", w.leased(a, 8, time.Hour), []string{"3"})
	equal(w, "none left", w.leased(a, 8, lease), []string{})
	w.pass(lease)
	equal(w, "those whose lease is over", w.leased(a, 8, lease), []string{"1", "2"})
	w.putTasks(time.Hour, w.task("1", a)) // stored already
	equal(w, "none left", w.leased(a, 8, lease), []string{})

	tasks, err := w.store.TasksOf(w.ctx, "job-1")
	w.ok("read tasks", err)
	want := w.task("1", a)
	want.Deadline, want.LeaseEnd = tasks[0].Deadline, tasks[0].LeaseEnd
	equal(w, "a task as it was put", tasks[0], want)
}

// waiting are the ids of the tasks that could be handed out.
func (w *world) waiting(by statestore.Owner, limit int) []string {
	w.Helper()
	tasks, now, err := w.store.OpenTasks(w.ctx, by, limit)
	w.ok("read open tasks", err)
	if now == 0 {
		w.Fatal("open tasks came without the store's clock")
	}
	ids := []string{}
	for _, t := range tasks {
		ids = append(ids, t.ID)
		if t.For != by || t.LeaseEnd > now || t.Deadline <= now {
			w.Fatalf("a task that waits at %d: %+v", now, t)
		}
	}
	return ids
}

func tasksWait(w *world) {
	w.shorten()
	a := w.worker("a").by
	equal(w, "no tasks", w.waiting(a, 8), []string{})
	w.putTasks(time.Hour, w.task("1", a), w.task("2", a), w.task("3", a))
	equal(w, "another's", w.waiting(w.worker("b").by, 8), []string{})
	equal(w, "the first two", w.waiting(a, 2), []string{"1", "2"})
	equal(w, "all, as they were only read", w.waiting(a, 8), []string{"1", "2", "3"})
	equal(w, "handed out", w.leased(a, 1, w.lives.Affinity), []string{"1"})
	equal(w, "the others", w.waiting(a, 8), []string{"2", "3"})
	w.ok("answer", w.finish(a, "2", statestore.TaskAnswer{Result: statestore.TaskDone}))
	equal(w, "one is answered", w.waiting(a, 8), []string{"3"})
	w.pass(w.lives.Affinity)
	equal(w, "a lease is over", w.waiting(a, 8), []string{"1", "3"})
	many := []statestore.Task{}
	for i := range 150 {
		many = append(many, w.task(fmt.Sprintf("many-%03d", i), a))
	}
	w.putTasks(w.lives.Affinity, many...)
	equal(w, "more than a page", len(w.waiting(a, 1000)), 152)
	w.pass(w.lives.Affinity)
	equal(w, "after the deadline of most", w.waiting(a, 8), []string{"1", "3"})
}

func tasksOfBoot(w *world) {
	w.shorten()
	a := w.worker("a")
	next := a.reboot().by
	w.putTasks(w.lives.Affinity, w.task("1", a.by), w.task("2", a.by))
	equal(w, "another's", w.leased(w.worker("b").by, 8, time.Minute), []string{})
	equal(w, "the next boot's", w.leased(next, 8, time.Minute), []string{})
	done := statestore.TaskAnswer{Result: statestore.TaskDone}
	w.refusedAs(w.finish(next, "1", done), statestore.ErrNotFound)
	w.refusedAs(w.finish(a.by, "nobody", done), statestore.ErrNotFound)
	equal(w, "its own", w.leased(a.by, 1, time.Hour), []string{"1"})
	w.pass(w.lives.Affinity)
	equal(w, "after the deadline", w.leased(a.by, 8, time.Minute), []string{})
	w.refusedAs(w.finish(a.by, "1", done), statestore.ErrNotFound)
}

func tasksAnswered(w *world) {
	a := w.worker("a").by
	w.putTasks(time.Hour, w.task("1", a))
	w.leased(a, 1, time.Minute)
	answer := statestore.TaskAnswer{Result: statestore.TaskRefused, Reason: "no room", Version: 9}
	w.ok("answer", w.finish(a, "1", answer))
	w.ok("answer again", w.finish(a, "1", answer))
	w.ok("answer otherwise", w.finish(a, "1", statestore.TaskAnswer{Result: statestore.TaskDone}))
	tasks, err := w.store.TasksOf(w.ctx, "job-1")
	w.ok("read tasks", err)
	if len(tasks) != 1 || tasks[0].Result != answer.Result || tasks[0].Reason != answer.Reason || tasks[0].Version != answer.Version {
		w.Fatalf("tasks: %+v", tasks)
	}
	w.putTasks(time.Hour, w.task("1", a))
	equal(w, "an answered task", w.leased(a, 8, time.Minute), []string{})
}

func tasksDropped(w *world) {
	a := w.worker("a").by
	other := w.task("3", a)
	other.Job = "job-2"
	w.putTasks(time.Hour, w.task("1", a), w.task("2", a), other)
	w.leased(a, 1, time.Minute)
	w.ok("answer", w.finish(a, "1", statestore.TaskAnswer{Result: statestore.TaskDone}))
	count := func(job string, want int) {
		w.Helper()
		tasks, err := w.store.TasksOf(w.ctx, job)
		w.ok("read tasks", err)
		equal(w, "tasks of "+job, len(tasks), want)
	}
	count("job-1", 2)
	count("job-2", 1)
	w.ok("drop", w.store.DropTasks(w.ctx, "job-1"))
	count("job-1", 0)
	count("job-2", 1)
	w.refusedAs(w.finish(a, "2", statestore.TaskAnswer{Result: statestore.TaskDone}), statestore.ErrNotFound)
	equal(w, "what is left", w.leased(a, 8, time.Minute), []string{"3"})
}

func noticesLeased(w *world) {
	w.shorten()
	a, b := w.worker("a").by, w.worker("b").by
	notice := w.task("n", a)
	notice.Job, notice.Owner, notice.Epoch = "", b, 9
	w.putTasks(time.Hour, notice, w.task("1", a))
	tasks, _, err := w.store.LeaseTasks(w.ctx, a, 1, w.lives.Affinity)
	w.ok("lease tasks", err)
	if len(tasks) != 1 || !tasks[0].Notice() || tasks[0].Owner != b || tasks[0].Epoch != 9 {
		w.Fatalf("the notice: %+v", tasks)
	}
	equal(w, "the task", w.leased(a, 8, w.lives.Affinity), []string{"1"})
	w.pass(w.lives.Affinity)
	equal(w, "after the lease of both", w.leased(a, 8, time.Minute), []string{"1"})
	w.ok("answer it all the same", w.finish(a, "n", statestore.TaskAnswer{Result: statestore.TaskDone}))
}

func tasksRead(w *world) {
	a := w.worker("a").by
	var put []statestore.Task
	var ids []string
	for i := range 1200 { // more than a page
		id := fmt.Sprintf("many-%04d", i)
		put, ids = append(put, w.task(id, a)), append(ids, id)
	}
	w.putTasks(time.Hour, put...)
	w.leased(a, 1, time.Minute)
	w.ok("answer", w.finish(a, ids[1], statestore.TaskAnswer{Result: statestore.TaskDone}))
	tasks, err := w.store.ReadTasks(w.ctx, append([]string{"nobody"}, ids...))
	w.ok("read tasks", err)
	var read []string
	for i := range tasks {
		read = append(read, tasks[i].ID)
	}
	equal(w, "those that are stored", read, ids)
	if tasks[0].LeaseEnd == 0 || tasks[1].Result != statestore.TaskDone || tasks[2].LeaseEnd != 0 || tasks[2].Result != statestore.TaskOpen {
		w.Fatalf("one that is handed out, one that is answered and one that waits: %+v", tasks[:3])
	}
	none, err := w.store.ReadTasks(w.ctx, nil)
	w.ok("read none", err)
	equal(w, "without ids", len(none), 0)
}

// finish answers a task; an accepted answer returns the task as it was put.
func (w *world) finish(by statestore.Owner, id string, a statestore.TaskAnswer) error {
	w.Helper()
	t, err := w.store.FinishTask(w.ctx, by, id, a)
	if err == nil && (t.ID != id || t.For != by || t.Result == statestore.TaskOpen) {
		w.Fatalf("answered task %q of %v, got %+v", id, by, t)
	}
	return err
}
