package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// SessionKey names a session. Tenant and Pool are the worker's own when empty.
type SessionKey struct {
	ID     string // opaque UTF-8 of 1 to 256 bytes without control characters
	Tenant string
	Pool   string
}

func (k SessionKey) validate() error {
	switch {
	case k.ID == "" || len(k.ID) > 256:
		return fmt.Errorf("session id has %d bytes, 1 to 256 are allowed", len(k.ID))
	case !utf8.ValidString(k.ID):
		return errors.New("session id is not UTF-8")
	case strings.ContainsFunc(k.ID, func(r rune) bool { return r < 0x20 || (r >= 0x7f && r <= 0x9f) }):
		return errors.New("session id has a control character")
	}
	return nil
}

// call begins a call about the session.
func (k SessionKey) call(act, method string) call {
	segment, header := sessionPath(k.ID)
	c := call{act: act, method: method, path: "/v1/sessions/" + segment}
	c.set(headerSession, header)
	k.identify(&c)
	return c
}

// identify adds tenant and pool.
func (k SessionKey) identify(c *call) {
	c.set(headerTenant, k.Tenant)
	c.set(headerPool, k.Pool)
}

// ErrNoHandle is a write without a handle: nobody told this session anything yet.
// Offer it the handle of a route, or recover it.
var ErrNoHandle = errors.New("no handle for the session: offer that of a route, or recover first")

// Session is one session as one worker knows it: the newest handle, what the
// worker's own copy of the context covers, and the accepted writes that the
// store might still lose. Keep one Session per session for as long as its copy
// of the context.
//
// It is safe for concurrent use. Its writes go out one at a time, each with the
// handle that the one before it was answered: of two that named the same place
// a store that goes back could lose one and keep the other, and nothing would
// show it.
type Session struct {
	w   *Worker
	key SessionKey

	turn chan struct{} // holds a token while nobody writes or repairs

	mu      sync.Mutex
	newest  mark // presented by writes
	hint    mark // newest of a route: only those can claim
	owned   ownership
	copy    copied
	journal journal
	repairs int // finished so far: tells a caller that another one repaired
	// lostFrom is the op of the first accepted write that the store is known to
	// have lost, "" for none: it is repaired before anything else is written.
	lostFrom string
}

// ownership is the epoch that a boot of the instance last was told to own. The
// zero value is none.
type ownership struct {
	epoch uint64
	boot  string
}

// Open begins to keep track of a session. It makes no call.
func (w *Worker) Open(key SessionKey) (*Session, error) {
	if key.Pool == "" {
		key.Pool = w.instance.Pool
	}
	if err := key.validate(); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	s := &Session{w: w, key: key, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	s.journal.maxWrites, s.journal.maxBytes = w.conn.cfg.KeepWrites, w.conn.cfg.KeepBytes
	return s, nil
}

// String says nothing: a session's id and handle belong in no log.
func (s *Session) String() string { return "[session]" }

// GoString is for %#v.
func (s *Session) GoString() string { return s.String() }

// Key names the session.
func (s *Session) Key() SessionKey { return s.key }

// Offer gives the session what a gateway passed on with a request, or a task
// brought. An older handle than the one held changes nothing.
func (s *Session) Offer(h Hint) {
	m := mark{handle: h.Handle, epoch: h.Epoch, version: h.Version}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learn(m)
	if m.newer(s.hint) {
		s.hint = m
	}
}

// learn keeps the newer handle. One of a later owner that knows of fewer writes
// than were accepted here shows a loss, unless the session has begun anew; a
// repair finds out.
func (s *Session) learn(m mark) {
	if s.newest.op == "" && m.op != "" && m.samePlace(s.newest) {
		s.newest.op = m.op // a read had told the place before the write was answered
	}
	if !m.newer(s.newest) {
		return
	}
	s.newest = m
	if i := s.journal.beyond(m); i >= 0 {
		s.lost(s.journal.writes[i])
	}
}

// lost notes that the store may have lost this write and those after it.
func (s *Session) lost(k *kept) {
	if i := s.journal.index(s.lostFrom); i < 0 || s.journal.index(k.write.Op) < i {
		s.lostFrom = k.write.Op
	}
}

// takeTurn waits until nobody else writes or repairs.
func (s *Session) takeTurn(ctx context.Context) error {
	select {
	case <-s.turn:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another write of the session: %w", ctx.Err())
	}
}

func (s *Session) passTurn() { s.turn <- struct{}{} }

// Handle is the newest handle held, for the answer to a gateway that keeps one;
// "" if none is.
func (s *Session) Handle() Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest.handle
}

// Current reports whether this boot of the instance owns the session at the
// hint's epoch and its own copy has everything that the hint knows of: then
// there is nothing to recover. A session that is new to Berth has nothing to
// recover either, unless the worker holds something of a life of it before.
func (s *Session) Current(h Hint) bool {
	boot := s.w.Incarnation()
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.New && s.copy == (copied{}) && s.owned == (ownership{}) && s.newest.version == 0 {
		return true
	}
	return s.owned == ownership{h.Epoch, boot} && s.copy.covers(h.Epoch, h.Version)
}

// Have describes the worker's own copy for a [RecoverRequest]; nil if Berth has
// to send everything. It holds for a copy whose turns stand in the order of
// the versions that the receipts told. Writes with AtEnd do not add to it,
// because requests that run in parallel may have ordered them in two ways.
func (s *Session) Have() *HaveCopy {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.copy.handle == "" {
		return nil
	}
	return &HaveCopy{Handle: s.copy.handle, Turns: s.copy.turns}
}

// over forgets a life of the session that ended, by expiry or a delete: all that
// was told up to the epoch. The next handle that is offered begins anew.
func (s *Session) over(epoch uint64) {
	s.drop(epoch)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range []*mark{&s.newest, &s.hint} {
		if m.epoch <= epoch {
			*m = mark{}
		}
	}
	if s.copy.epoch <= epoch {
		s.copy = copied{}
	}
}

// drop gives up the repair of what was answered up to the epoch.
func (s *Session) drop(epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal.dropThrough(epoch)
	if s.journal.index(s.lostFrom) < 0 {
		s.lostFrom = ""
	}
}
