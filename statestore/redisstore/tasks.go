package redisstore

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/statestore"
)

// taskBatch is how many tasks one transaction stores or forgets, and taskRead how many
// one look reads.
const (
	taskBatch = 100
	taskRead  = 500
)

// task is the stored form of a task.
type task struct {
	statestore.Task
	Place string `json:"place"` // in the order of all tasks, as text
}

// place is where the i-th of the tasks that are put at one moment stands.
func place(now statestore.Millis, i int) string { return fmt.Sprintf("%013x%06x", int64(now), i) }

// queued is where an open task waits for the boot it is meant for.
func (t *task) queued() string { return packOwner(t.For) + "\x00" + t.Place + "\x00" + t.ID }

func (t *task) ofJob() string { return t.Job + "\x00" + t.Place + "\x00" + t.ID }

// taskID is the id in a member of taskqueue or taskjobs, after its prefix.
func taskID(member, prefix string) string { return member[len(prefix)+len(place(0, 0))+1:] }

func taskCells(ids []string) []cell {
	cells := make([]cell, len(ids))
	for i, id := range ids {
		cells[i] = cell{tTasks, id}
	}
	return cells
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
	for batch := range slices.Chunk(tasks, taskBatch) {
		var ids []string
		for _, t := range batch {
			ids = append(ids, t.ID)
		}
		err := s.transact(ctx, taskCells(ids), func(t *tx) error { return t.putTasks(batch, deadline) })
		if err != nil {
			return fmt.Errorf("put tasks: %w", err)
		}
	}
	return nil
}

func (t *tx) putTasks(tasks []statestore.Task, deadline time.Duration) error {
	put, told := map[string]bool{}, map[string]bool{}
	for i, one := range tasks {
		if t.get(tTasks, one.ID) != "" || put[one.ID] {
			continue
		}
		put[one.ID] = true
		one.Deadline, one.LeaseEnd = t.now.Add(deadline), 0
		stored := &task{Task: one, Place: place(t.now, i)}
		if err := t.setJSON(tTasks, one.ID, stored); err != nil {
			return err
		}
		t.list(tTaskQueue, stored.queued(), 0)
		if one.Job != "" {
			t.list(tTaskJobs, stored.ofJob(), 0)
		} else {
			t.list(tTaskDue, one.ID, int64(one.Deadline))
		}
		if who := one.For.Instance; !told[who] {
			told[who] = true
			t.tell(statestore.Event{Kind: statestore.EventTasks, Instance: who})
		}
	}
	return nil
}

// taskPage is how many tasks one look at an index asks for.
const taskPage = 64

// listed yields the ids of tasks in an index, in order and in pages, under a prefix
// that ends with NUL.
func (s *Store) listed(ctx context.Context, in table, prefix string) iter.Seq2[[]string, error] {
	past := "(" + prefix[:len(prefix)-1] + "\x01"
	return func(yield func([]string, error) bool) {
		for from, more := "["+prefix, true; more; {
			var members []string
			err := s.ask(ctx, func() (err error) {
				members, err = s.client.ZRangeByLex(ctx, s.table(in), lexRange(from, past, taskPage)).Result()
				return err
			})
			var ids []string
			for _, m := range members {
				if len(m) <= len(prefix)+len(place(0, 0))+1 {
					err = ErrDamaged
					break
				}
				ids = append(ids, taskID(m, prefix))
			}
			if err != nil {
				yield(nil, fmt.Errorf("read %s: %w", tableNames[in], err))
				return
			}
			if more = len(members) == taskPage; more {
				from = "(" + members[len(members)-1]
			}
			if !yield(ids, nil) {
				return
			}
		}
	}
}

// LeaseTasks hands out open tasks, oldest first.
func (s *Store) LeaseTasks(ctx context.Context, by statestore.Owner, limit int, length time.Duration) (out []statestore.Task, now statestore.Millis, err error) {
	for ids, err := range s.listed(ctx, tTaskQueue, packOwner(by)+"\x00") {
		if err != nil {
			return nil, 0, err
		}
		var leased []statestore.Task
		if leased, now, err = s.leaseTasks(ctx, ids, limit-len(out), length); err != nil {
			return nil, 0, err
		}
		if out = append(out, leased...); len(out) >= limit {
			return out, now, nil
		}
	}
	return out, now, nil
}

// leaseTasks hands out up to limit of the tasks that are open. What becomes of the
// others meanwhile is no business of this lease: a worker that answers would hold up
// its own poll.
func (s *Store) leaseTasks(ctx context.Context, ids []string, limit int, length time.Duration) (out []statestore.Task, now statestore.Millis, err error) {
	err = s.transact(ctx, taskCells(ids), func(t *tx) error {
		out, now = nil, t.now
		for _, id := range ids {
			var one task
			found, err := t.getJSON(tTasks, id, &one)
			if err != nil {
				return err
			}
			if !found || !one.open(t.now) || len(out) >= limit {
				t.loosen(tTasks, id)
				continue
			}
			one.LeaseEnd = t.now.Add(length)
			out = append(out, one.Task)
			if one.Notice() {
				one.Result = statestore.TaskDone
				t.unlist(tTaskQueue, one.queued())
			}
			if err := t.setJSON(tTasks, id, &one); err != nil {
				return err
			}
		}
		return nil
	})
	return out, now, err
}

// open reports whether the task may be handed out.
func (t *task) open(now statestore.Millis) bool {
	return t.Result == statestore.TaskOpen && now < t.Deadline && now >= t.LeaseEnd
}

// OpenTasks reads open tasks, oldest first.
func (s *Store) OpenTasks(ctx context.Context, by statestore.Owner, limit int) (out []statestore.Task, now statestore.Millis, err error) {
	for ids, err := range s.listed(ctx, tTaskQueue, packOwner(by)+"\x00") {
		if err != nil {
			return nil, 0, err
		}
		t, err := s.peek(ctx, taskCells(ids)...)
		if err != nil {
			return nil, 0, fmt.Errorf("read tasks: %w", err)
		}
		now = t.now
		for _, id := range ids {
			var one task
			found, err := t.getJSON(tTasks, id, &one)
			if err != nil {
				return nil, 0, err
			}
			if found && one.open(now) {
				out = append(out, one.Task)
			}
			if len(out) == limit {
				return out, now, nil
			}
		}
	}
	return out, now, nil
}

// FinishTask stores the answer to a task, once.
func (s *Store) FinishTask(ctx context.Context, by statestore.Owner, id string, a statestore.TaskAnswer) (statestore.Task, error) {
	if a.Result == statestore.TaskOpen {
		return statestore.Task{}, fmt.Errorf("an answer must have a result: %w", statestore.ErrInvalid)
	}
	var one task
	err := s.transact(ctx, taskCells([]string{id}), func(t *tx) error {
		one = task{}
		found, err := t.getJSON(tTasks, id, &one)
		switch {
		case err != nil:
			return err
		case !found, one.For != by, one.Result == statestore.TaskOpen && t.now >= one.Deadline:
			return fmt.Errorf("task %q: %w", id, statestore.ErrNotFound)
		case one.Result != statestore.TaskOpen:
			return nil
		}
		one.Result, one.Reason, one.Version = a.Result, a.Reason, a.Version
		t.unlist(tTaskQueue, one.queued())
		if one.Job != "" {
			t.tell(statestore.Event{Kind: statestore.EventJob, Job: one.Job})
		}
		return t.setJSON(tTasks, id, &one)
	})
	if err != nil {
		return statestore.Task{}, err
	}
	return one.Task, nil
}

// ReadTasks reads tasks by their ids.
func (s *Store) ReadTasks(ctx context.Context, ids []string) (tasks []statestore.Task, err error) {
	for batch := range slices.Chunk(ids, taskRead) {
		found, err := s.readTasks(ctx, batch)
		if err != nil {
			return nil, fmt.Errorf("read tasks: %w", err)
		}
		tasks = append(tasks, found...)
	}
	return tasks, nil
}

func (s *Store) readTasks(ctx context.Context, ids []string) (tasks []statestore.Task, err error) {
	t, err := s.peek(ctx, taskCells(ids)...)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		var one task
		found, err := t.getJSON(tTasks, id, &one)
		if err != nil {
			return nil, err
		}
		if found {
			tasks = append(tasks, one.Task)
		}
	}
	return tasks, nil
}

// TasksOf reads the tasks of a job in the order they were put.
func (s *Store) TasksOf(ctx context.Context, job string) (tasks []statestore.Task, err error) {
	for ids, err := range s.listed(ctx, tTaskJobs, job+"\x00") {
		if err != nil {
			return nil, err
		}
		found, err := s.readTasks(ctx, ids)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, found...)
	}
	return tasks, nil
}

// DropTasks forgets the tasks of a job.
func (s *Store) DropTasks(ctx context.Context, job string) error {
	for ids, err := range s.listed(ctx, tTaskJobs, job+"\x00") {
		if err == nil {
			err = s.dropTasks(ctx, ids)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) dropTasks(ctx context.Context, ids []string) error {
	for batch := range slices.Chunk(ids, taskBatch) {
		err := s.transact(ctx, taskCells(batch), func(t *tx) error {
			for _, id := range batch {
				if err := t.dropTask(id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("drop tasks: %w", err)
		}
	}
	return nil
}

func (t *tx) dropTask(id string) error {
	var one task
	found, err := t.getJSON(tTasks, id, &one)
	t.unlist(tTaskDue, id)
	if err != nil || !found {
		return err
	}
	t.drop(tTasks, id)
	t.unlist(tTaskQueue, one.queued())
	t.unlist(tTaskJobs, one.ofJob())
	return nil
}

// sweepTasks forgets up to limit tasks that belong to no job, once their time is
// over; the tasks of a job are forgotten with it.
func (s *Store) sweepTasks(ctx context.Context, limit int) error {
	t, err := s.peek(ctx)
	if err != nil {
		return err
	}
	var ids []string
	err = s.ask(ctx, func() (err error) {
		until := strconv.FormatInt(int64(t.now), 10)
		ids, err = s.client.ZRangeByScore(ctx, s.table(tTaskDue), &redis.ZRangeBy{Min: "-inf", Max: until, Count: int64(limit)}).Result()
		return err
	})
	if err != nil {
		return fmt.Errorf("sweep tasks: %w", err)
	}
	return s.dropTasks(ctx, ids)
}
