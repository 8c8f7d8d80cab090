package services

import (
	"context"
	"fmt"
	"time"

	"berth/statestore"
	"berth/statestore/handle"
)

// maxTaskWait bounds a long poll; taskRecheck is how often it looks without
// being woken, since the feed may lose an event.
const (
	maxTaskWait = 55 * time.Second
	taskRecheck = time.Second
	maxTasks    = 64
)

type taskBody struct {
	ID      string `json:"id"`
	Kind    string `json:"kind" enum:"offload,prewarm,release,forget"`
	Session string `json:"session"`
	Tenant  string `json:"tenant"`
	Pool    string `json:"pool"`
	Handle  string `json:"handle,omitempty"`
	// Moved is set in a notice: the session belongs to that instance by now.
	Moved *OwnerRef `json:"moved,omitempty" doc:"a notice, there is nothing left to do before: the session has moved there"`

	DeadlineMS int64 `json:"deadline_ms" doc:"time left for an answer"`
	LeaseMS    int64 `json:"lease_ms" doc:"time after which the task is handed out again; 0 in a heartbeat's answer, and for a notice, which needs none"`
}

type pollTasksInput struct {
	ID          string `path:"id"`
	Incarnation string `header:"X-Berth-Incarnation" required:"true"`
	Wait        string `query:"wait" doc:"how long to wait for a task, like 25s; default: not at all"`
	Max         int    `query:"max" minimum:"1" maximum:"64" default:"8"`
}

type pollTasksOutput struct {
	CacheControl string `header:"Cache-Control"`
	Body         struct {
		Tasks []taskBody `json:"tasks"`
	}
}

func (s *Server) pollTasks(ctx context.Context, in *pollTasksInput) (*pollTasksOutput, error) {
	by, err := s.speaker(ctx, in.ID, in.Incarnation)
	if err != nil {
		return nil, err
	}
	wait, err := parseWait(in.Wait, maxTaskWait)
	if err != nil {
		return nil, err
	}
	if _, err := s.fleet.instance(ctx, by); err != nil {
		return nil, err
	}
	s.heard(by)
	defer s.heard(by)
	out := &pollTasksOutput{CacheControl: "no-store"}
	out.Body.Tasks = []taskBody{}
	err = s.await(ctx, taskTopic(in.ID), wait, func() (bool, error) {
		tasks, now, err := s.store.LeaseTasks(ctx, by, min(in.Max, maxTasks), s.options.TaskLease)
		if err != nil {
			return false, fmt.Errorf("lease tasks of instance %s: %w", in.ID, err)
		}
		for _, t := range tasks {
			out.Body.Tasks = append(out.Body.Tasks, s.taskBody(t, now))
		}
		return len(tasks) > 0, nil
	})
	return out, err
}

// await calls look until it is satisfied, the wait is over, or the caller is
// gone; it looks again at every event of the topic.
func (s *Server) await(ctx context.Context, topic string, wait time.Duration, look func() (bool, error)) error {
	until := time.Now().Add(wait)
	waiting := s.wakeups.join(topic)
	defer s.wakeups.leave(topic, waiting)
	for {
		woken := s.wakeups.event(waiting)
		done, err := look()
		if done || err != nil {
			return err
		}
		left := min(time.Until(until), taskRecheck)
		if left <= 0 || s.stopping.Load() {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
		case <-woken:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// taskBody signs what the worker needs for the task.
func (s *Server) taskBody(t statestore.Task, now statestore.Millis) taskBody {
	body := taskBody{
		ID: t.ID, Kind: string(t.Kind), Session: t.Session.ID, Tenant: t.Session.Tenant, Pool: t.Session.Pool,
		DeadlineMS: max(0, t.Deadline.Sub(now).Milliseconds()),
	}
	if !t.Notice() {
		body.LeaseMS = s.options.TaskLease.Milliseconds()
	}
	if t.Kind == statestore.TaskForget {
		return body // there is no session any more
	}
	if t.Notice() {
		body.Moved = s.ownerRef(t.Owner, t.Epoch)
	}
	h := handle.Handle{
		Purpose: handle.Save, Session: t.Session.Digest(), Floor: t.Floor,
		Expires: s.fleet.storeWall().Add(s.policyOf(t.Session.Pool).lifetimes.Retention),
	}
	if t.Kind == statestore.TaskPrewarm {
		h.Purpose = handle.Prewarm
	}
	h.Name(t.For.Instance)
	body.Handle = s.handles.Sign(&h)
	return body
}

type answerTaskInput struct {
	ID   string `path:"id"`
	Task string `path:"task"`
	Body struct {
		Incarnation string      `json:"incarnation" minLength:"1" maxLength:"128"`
		Result      string      `json:"result" enum:"done,refused,failed"`
		Reason      string      `json:"reason,omitempty" maxLength:"1024"`
		Version     uint64      `json:"version,omitempty" doc:"release: the version that was saved"`
		KV          []Placement `json:"kv,omitempty" doc:"placements of the session on this instance"`
	}
}

func (s *Server) answerTask(ctx context.Context, in *answerTaskInput) (*struct{}, error) {
	by, err := s.speaker(ctx, in.ID, in.Body.Incarnation)
	if err != nil {
		return nil, err
	}
	kv, err := s.answeredPlacements(ctx, by, in.Body.KV)
	if err != nil {
		return nil, err
	}
	task, err := s.store.FinishTask(ctx, by, in.Task, statestore.TaskAnswer{
		Result: statestore.TaskResult(in.Body.Result), Reason: in.Body.Reason, Version: in.Body.Version,
	})
	if err != nil {
		return nil, fmt.Errorf("answer a task of instance %s: %w", in.ID, err)
	}
	s.heard(by)
	if kv == nil || task.Kind == statestore.TaskForget {
		return nil, nil
	}
	if err := s.store.PutPlacements(ctx, task.Session, by, kv); err != nil {
		return nil, fmt.Errorf("put placements of session %s: %w", s.tag(task.Session.Digest()), err)
	}
	return nil, nil
}

// answeredPlacements is the stored form of the placements that come with an
// answer, nil if there are none.
func (s *Server) answeredPlacements(ctx context.Context, by statestore.Owner, list []Placement) ([]byte, error) {
	if len(list) == 0 {
		return nil, nil
	}
	instance, err := s.fleet.instance(ctx, by)
	if err != nil {
		return nil, err
	}
	return checkPlacements(list, instance, "body.kv")
}

// parseWait reads a long poll's duration, like 25s.
func parseWait(s string, limit time.Duration) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, invalid("query.wait", "want a duration like 25s")
	}
	return min(d, limit), nil
}
