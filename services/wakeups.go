package services

import "sync"

// wakeups lets long polls wait for an event by topic.
type wakeups struct {
	mu     sync.Mutex
	topics map[string]chan struct{}
}

func newWakeups() *wakeups { return &wakeups{topics: map[string]chan struct{}{}} }

// next is closed at the topic's next event. Ask for it before looking at the
// store, so that nothing falls between.
func (w *wakeups) next(topic string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.topics[topic]
	if !ok {
		c = make(chan struct{})
		w.topics[topic] = c
	}
	return c
}

func (w *wakeups) wake(topic string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c, ok := w.topics[topic]; ok {
		close(c)
		delete(w.topics, topic)
	}
}

func (w *wakeups) all() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for topic, c := range w.topics {
		close(c)
		delete(w.topics, topic)
	}
}

func taskTopic(instance string) string { return "task/" + instance }
func jobTopic(job string) string       { return "job/" + job }
