package services

import "sync"

// wakeups lets long polls wait for an event by topic. A topic is there while
// somebody waits for it.
type wakeups struct {
	mu     sync.Mutex
	topics map[string]*topic
}

type topic struct {
	next    chan struct{} // closed at the next event
	waiting int
}

func newWakeups() *wakeups { return &wakeups{topics: map[string]*topic{}} }

// join begins to wait for a topic; leave has to follow.
func (w *wakeups) join(name string) *topic {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[name]
	if t == nil {
		t = &topic{next: make(chan struct{})}
		w.topics[name] = t
	}
	t.waiting++
	return t
}

// event is closed at the topic's next event. Ask for it before looking at the
// store, so that nothing falls between.
func (w *wakeups) event(t *topic) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return t.next
}

func (w *wakeups) leave(name string, t *topic) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.waiting--; t.waiting == 0 {
		delete(w.topics, name)
	}
}

func (w *wakeups) wake(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[name]; t != nil {
		t.wake()
	}
}

func (w *wakeups) all() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.topics {
		t.wake()
	}
}

func (t *topic) wake() {
	close(t.next)
	t.next = make(chan struct{})
}

func taskTopic(instance string) string { return "task/" + instance }
func jobTopic(job string) string       { return "job/" + job }
