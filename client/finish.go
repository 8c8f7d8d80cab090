package client

import (
	"context"
	"fmt"
	"net/http"
)

// Finished answers a release.
type Finished struct {
	Epoch      uint64     `json:"epoch"`
	Durability Durability `json:"durability"`
	Handle     Handle     `json:"handle"`
}

// Finish releases the session: it belongs to nobody, its context is kept. A
// session that nobody owns any more is no error when that may be the work of
// an earlier copy of this call, whose answer was lost.
func (s *Session) Finish(ctx context.Context) (f Finished, err error) {
	if err := s.takeTurn(ctx); err != nil {
		return f, fmt.Errorf("finish session: %w", err)
	}
	defer s.passTurn()
	err = s.presenting(ctx, hasTurn, func(newest mark) error {
		f, err = s.finish(ctx, newest)
		return err
	})
	return f, err
}

func (s *Session) finish(ctx context.Context, newest mark) (f Finished, err error) {
	if newest.handle == "" {
		return f, fmt.Errorf("finish session: %w", ErrNoHandle)
	}
	k := s.key.call("finish session", http.MethodPost)
	k.path += "/finish"
	by := s.w.credentials(newest.handle)
	k, err = k.withJSON(struct {
		Handle      string `json:"handle"`
		Instance    string `json:"instance"`
		Incarnation string `json:"incarnation"`
	}{string(by.handle), by.instance, by.incarnation})
	if err != nil {
		return f, err
	}
	torn, err := s.w.conn.repeat(ctx, k.into(&f))
	if p := refusal(err); p != nil && p.Code == ErrStaleHandle && torn && p.Owner.nobody() {
		return Finished{}, nil
	}
	if err != nil {
		return Finished{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned = ownership{}
	s.learn(mark{handle: f.Handle, epoch: f.Epoch, version: newest.version, op: newest.op})
	return f, nil
}

// nobody reports whether the session has no owner.
func (o *Owner) nobody() bool { return o == nil || o.Instance == "" }

// Deletion answers a delete.
type Deletion struct {
	Deleted       bool       `json:"deleted"`
	Durability    Durability `json:"durability"`
	ForgetPending int        `json:"forget_pending"` // instances that still hold KV cache of it
}

// Delete ends the session and removes its context. A session that is deleted
// already is no error: nothing is known of its durability then.
func (s *Session) Delete(ctx context.Context) (d Deletion, err error) {
	if err := s.takeTurn(ctx); err != nil {
		return d, fmt.Errorf("delete session: %w", err)
	}
	defer s.passTurn()
	err = s.presenting(ctx, hasTurn, func(newest mark) error {
		d, err = s.delete(ctx, newest)
		return err
	})
	return d, err
}

func (s *Session) delete(ctx context.Context, newest mark) (d Deletion, err error) {
	if newest.handle == "" {
		return d, fmt.Errorf("delete session: %w", ErrNoHandle)
	}
	k := s.key.call("delete session", http.MethodDelete)
	k.set(headerHandle, string(newest.handle))
	_, err = s.w.conn.repeat(ctx, k.into(&d))
	if p := refusal(err); p != nil && p.Code == ErrDeleted {
		d, err = Deletion{}, nil
	}
	if err == nil {
		s.over(newest.epoch)
	}
	return d, err
}
