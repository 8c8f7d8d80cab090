package boltstore

import (
	"context"
	"fmt"
	"time"

	"berth/statestore"
)

// task is the stored form of a task.
type task struct {
	statestore.Task
	Seq uint64 `json:"seq"` // its place in the order of all tasks
}

// PutTasks stores tasks, but for those whose id is stored already.
func (s *Store) PutTasks(ctx context.Context, tasks []statestore.Task, deadline time.Duration) error {
	for _, t := range tasks {
		if err := checkID("task", t.ID); err != nil {
			return err
		}
		if err := checkOwner(t.For); err != nil {
			return err
		}
	}
	return s.write(ctx, func(w *writer) error {
		for _, t := range tasks {
			if w.get(bTasks, []byte(t.ID)) != nil {
				continue
			}
			seq, err := w.tx.Bucket(bTasks).NextSequence()
			if err != nil {
				return fmt.Errorf("number task: %w", err)
			}
			t.Deadline, t.LeaseEnd = w.now.Add(deadline), 0
			w.putJSON(bTasks, []byte(t.ID), &task{Task: t, Seq: seq})
			w.put(bTaskQueue, queueKey(t.For, seq), []byte(t.ID))
			if t.Job != "" {
				w.put(bTaskJobs, taskJobKey(t.Job, seq), []byte(t.ID))
			} else {
				w.put(bTaskDue, dueKey(t.Deadline, []byte(t.ID)), []byte{})
			}
			w.emit(statestore.Event{Kind: statestore.EventTasks, Instance: t.For.Instance})
		}
		return nil
	})
}

// queueKey is where an open task waits for the boot it is meant for.
func queueKey(o statestore.Owner, seq uint64) []byte {
	return append(prefixed(o.Instance, o.Incarnation), be64(seq)...)
}

func taskJobKey(job string, seq uint64) []byte { return append(prefixed(job), be64(seq)...) }

// LeaseTasks hands out open tasks, oldest first.
func (s *Store) LeaseTasks(ctx context.Context, by statestore.Owner, limit int, length time.Duration) ([]statestore.Task, statestore.Millis, error) {
	var out []statestore.Task
	var now statestore.Millis
	lease := func(w *writer) error {
		now = w.now
		open, err := w.openTasks(by, limit)
		out = nil
		for _, t := range open {
			t.LeaseEnd = w.now.Add(length)
			out = append(out, t.Task)
			if t.Notice() {
				t.Result = statestore.TaskDone
				w.delete(bTaskQueue, queueKey(t.For, t.Seq))
			}
			w.putJSON(bTasks, []byte(t.ID), t)
		}
		return err
	}
	// Workers poll: an empty queue must not cost them the writer's turn.
	empty := false
	err := s.read(ctx, func(r *reader) error {
		now = r.now
		open, err := r.openTasks(by, 1)
		empty = len(open) == 0
		return err
	})
	if err != nil || empty {
		return nil, now, err
	}
	if err := s.write(ctx, lease); err != nil {
		return nil, now, err
	}
	return out, now, nil
}

// OpenTasks reads open tasks, oldest first.
func (s *Store) OpenTasks(ctx context.Context, by statestore.Owner, limit int) (out []statestore.Task, now statestore.Millis, err error) {
	err = s.read(ctx, func(r *reader) error {
		out, now = nil, r.now
		open, err := r.openTasks(by, limit)
		for _, t := range open {
			out = append(out, t.Task)
		}
		return err
	})
	return out, now, err
}

// openTasks is up to limit tasks that may be handed out.
func (r *reader) openTasks(by statestore.Owner, limit int) ([]*task, error) {
	var open []*task
	err := r.each(bTaskQueue, prefixed(by.Instance, by.Incarnation), func(_, id []byte) (bool, error) {
		t := &task{}
		if _, err := r.getJSON(bTasks, id, t); err != nil {
			return false, err
		}
		if len(open) < limit && r.now < t.Deadline && r.now >= t.LeaseEnd {
			open = append(open, t)
		}
		return len(open) < limit, nil
	})
	return open, err
}

// FinishTask stores the answer to a task, once.
func (s *Store) FinishTask(ctx context.Context, by statestore.Owner, id string, a statestore.TaskAnswer) (statestore.Task, error) {
	if a.Result == statestore.TaskOpen {
		return statestore.Task{}, fmt.Errorf("an answer must have a result: %w", statestore.ErrInvalid)
	}
	t := &task{}
	err := s.write(ctx, func(w *writer) error {
		found, err := w.getJSON(bTasks, []byte(id), t)
		switch {
		case err != nil:
			return err
		case !found, t.For != by, t.Result == statestore.TaskOpen && w.now >= t.Deadline:
			return fmt.Errorf("task %q: %w", id, statestore.ErrNotFound)
		case t.Result != statestore.TaskOpen:
			return nil
		}
		t.Result, t.Reason, t.Version = a.Result, a.Reason, a.Version
		w.putJSON(bTasks, []byte(id), t)
		w.delete(bTaskQueue, queueKey(t.For, t.Seq))
		if t.Job != "" {
			w.emit(statestore.Event{Kind: statestore.EventJob, Job: t.Job})
		}
		return nil
	})
	if err != nil {
		return statestore.Task{}, err
	}
	return t.Task, nil
}

// ReadTasks reads tasks by their ids.
func (s *Store) ReadTasks(ctx context.Context, ids []string) (tasks []statestore.Task, err error) {
	err = s.read(ctx, func(r *reader) error {
		tasks = nil
		for _, id := range ids {
			t := &task{}
			found, err := r.getJSON(bTasks, []byte(id), t)
			if err != nil {
				return err
			}
			if found {
				tasks = append(tasks, t.Task)
			}
		}
		return nil
	})
	return tasks, err
}

// TasksOf reads the tasks of a job in the order they were put.
func (s *Store) TasksOf(ctx context.Context, job string) ([]statestore.Task, error) {
	var tasks []statestore.Task
	err := s.read(ctx, func(r *reader) error {
		found, err := r.tasksOf(job)
		for _, t := range found {
			tasks = append(tasks, t.Task)
		}
		return err
	})
	return tasks, err
}

func (r *reader) tasksOf(job string) ([]*task, error) {
	var tasks []*task
	err := r.each(bTaskJobs, prefixed(job), func(_, id []byte) (bool, error) {
		t := &task{}
		found, err := r.getJSON(bTasks, id, t)
		if err == nil && !found {
			err = fmt.Errorf("index of tasks: %w", ErrDamaged)
		}
		tasks = append(tasks, t)
		return err == nil, err
	})
	return tasks, err
}

// DropTasks forgets the tasks of a job.
func (s *Store) DropTasks(ctx context.Context, job string) error {
	return s.write(ctx, func(w *writer) error { return w.dropTasksOf(job) })
}

func (w *writer) dropTasksOf(job string) error {
	tasks, err := w.tasksOf(job)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if err := w.dropTask([]byte(t.ID)); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) dropTask(id []byte) error {
	t := &task{}
	found, err := w.getJSON(bTasks, id, t)
	if err != nil || !found {
		return err
	}
	w.delete(bTasks, id)
	w.delete(bTaskQueue, queueKey(t.For, t.Seq))
	w.delete(bTaskJobs, taskJobKey(t.Job, t.Seq))
	return nil
}
