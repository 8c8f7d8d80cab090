package integration_test

import (
	"bytes"
	"context"
	"regexp"
	"sync"
)

// journal keeps what a process logs, over its restarts.
type journal struct {
	mu   sync.Mutex
	text []byte
	more chan struct{} // closed at the next write
}

func newJournal() *journal { return &journal{more: make(chan struct{})} }

// Write takes in output of the process.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text = append(j.text, p...)
	close(j.more)
	j.more = make(chan struct{})
	return len(p), nil
}

// mark is the present end.
func (j *journal) mark() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.text)
}

// await waits until text stands after the mark.
func (j *journal) await(ctx context.Context, after int, text string) error {
	for {
		j.mu.Lock()
		found, more := bytes.Contains(j.text[after:], []byte(text)), j.more
		j.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (j *journal) has(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return bytes.Contains(j.text, []byte(text))
}

// count is how often text stands after the mark.
func (j *journal) count(after int, text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return bytes.Count(j.text[after:], []byte(text))
}

// find is the first match, "" for none.
func (j *journal) find(what *regexp.Regexp) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return string(what.Find(j.text))
}

// tail is the end of the log.
func (j *journal) tail() string {
	const most = 8 << 10
	j.mu.Lock()
	defer j.mu.Unlock()
	return string(bytes.TrimSpace(j.text[max(0, len(j.text)-most):]))
}
