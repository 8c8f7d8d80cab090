package migrations

import (
	"context"
	"time"

	"berth/statestore"
)

// posting is tasks that are put up with one call of the store. While one is sent the
// next gathers, so that a job which asks hundreds of sessions at once costs the store
// few calls, and a worker finds many tasks when it looks.
type posting struct {
	within time.Duration
	tasks  []statestore.Task
	sent   chan struct{} // closed once err is known
	err    error
}

// put puts a task up, with others that come at the same time. The error is the
// store's, or ctx's; a task whose ctx ends may be put up all the same.
func (b *board) put(ctx context.Context, t statestore.Task, within time.Duration) error {
	p := b.join(ctx, t, within)
	select {
	case <-p.sent:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// join adds a task to the posting that gathers, or begins one.
func (b *board) join(ctx context.Context, t statestore.Task, within time.Duration) *posting {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.next
	if p == nil || p.within != within {
		p = &posting{within: within, sent: make(chan struct{})}
		b.next = p
		ctx = context.WithoutCancel(ctx) // those who wait have contexts of their own
		b.under.Go(func() { b.send(ctx, p) })
	}
	p.tasks = append(p.tasks, t)
	return p
}

// send sends a posting when its turn has come.
func (b *board) send(ctx context.Context, p *posting) {
	b.posts <- struct{}{}
	defer func() { <-b.posts }()
	b.mu.Lock()
	if b.next == p {
		b.next = nil
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	p.err = b.store.PutTasks(ctx, p.tasks, p.within)
	close(p.sent)
}
