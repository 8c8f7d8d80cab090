package services

import (
	"context"
	"sync"
	"time"

	"berth/statestore"
)

// beatTasks is how many tasks a heartbeat's answer names.
const beatTasks = 8

// taskLooks remembers which boots had no task when their queue was last looked at,
// so that their heartbeats look again only after an event, or after recheck: a
// task that was handed out and never answered is open again, and no event says so.
type taskLooks struct {
	recheck time.Duration
	began   time.Time

	mu sync.Mutex
	of map[string]*taskLook // by instance
}

type taskLook struct {
	boot   string
	events int       // since the look was begun
	empty  time.Time // when it found nothing; zero: not known
}

func newTaskLooks(recheck time.Duration) *taskLooks {
	return &taskLooks{recheck: recheck, began: time.Now(), of: map[string]*taskLook{}}
}

// begin returns the look to make, nil if there is nothing to find.
func (l *taskLooks) begin(by statestore.Owner) *taskLook {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.of[by.Instance]; last != nil && last.boot == by.Incarnation && !last.empty.IsZero() && time.Since(last.empty) < l.recheck {
		return nil
	}
	if len(l.of) >= maxInstances {
		clear(l.of) // instances come and go; those that are there look once more
	}
	look := &taskLook{boot: by.Incarnation}
	l.of[by.Instance] = look
	return look
}

// nothing says that a look found nothing, which holds unless an event came since
// it was begun.
func (l *taskLooks) nothing(look *taskLook) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if look.events == 0 {
		look.empty = time.Now()
	}
}

// event makes the next heartbeat of the instance look.
func (l *taskLooks) event(instance string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if look := l.of[instance]; look != nil {
		look.events++
		look.empty = time.Time{}
	}
}

// gap makes every next heartbeat look: events were lost.
func (l *taskLooks) gap() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, look := range l.of {
		look.events++
		look.empty = time.Time{}
	}
}

// waitingTasks names the tasks that wait for a boot. It hands out none of them:
// only who polls takes tasks, and is known by that to work together.
func (s *Server) waitingTasks(ctx context.Context, by statestore.Owner) []taskBody {
	bodies := []taskBody{}
	look := s.looks.begin(by)
	if look == nil {
		return bodies
	}
	tasks, now, err := s.store.OpenTasks(ctx, by, beatTasks)
	if err != nil {
		// The heartbeat is counted; the next one looks again.
		s.log.Warn("tasks not read", "instance", by.Instance, "error", err)
		return bodies
	}
	if len(tasks) == 0 {
		s.looks.nothing(look)
	}
	for _, t := range tasks {
		body := s.taskBody(t, now)
		body.LeaseMS = 0
		bodies = append(bodies, body)
	}
	return bodies
}
