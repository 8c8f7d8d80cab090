package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"
)

// RecoverMode says what the caller wants of a session.
type RecoverMode string

// Modes of a recover.
const (
	Claim   RecoverMode = "claim"   // own it: needs the handle of a route that names this instance, or an owner that is gone
	Prewarm RecoverMode = "prewarm" // build its KV cache ahead of a move
	Read    RecoverMode = "read"
)

// RecoverRequest asks for a session's context.
type RecoverRequest struct {
	Mode RecoverMode
	// Handle is presented instead of the one held, for example that of a
	// prewarm task.
	Handle Handle
	// Have describes the caller's own copy, see [Session.Have]. Nil asks for
	// every turn.
	Have *HaveCopy
	// NoTurns leaves the turns out of the answer.
	NoTurns bool
	// AcceptLost takes the session over although the store holds less than was
	// promised. What this Session had kept for repair comes back as
	// Recovery.Dropped.
	AcceptLost bool
}

// HaveCopy is a caller's own copy of a context: its first Turns turns, as they
// were when Handle was answered.
type HaveCopy struct {
	Handle Handle `json:"handle"`
	Turns  int    `json:"turns"`
}

// Recovery is a session as it is: of the caller's copy keep the first Base
// turns, drop the rest, then append Turns.
type Recovery struct {
	Epoch   uint64            `json:"epoch"`
	Version uint64            `json:"version"`
	Base    int               `json:"base"`
	Count   int               `json:"count"` // turns of the session, with those below Base
	Meta    json.RawMessage   `json:"meta"`
	Digest  string            `json:"digest"` // equal digests are equal histories
	KV      []JudgedPlacement `json:"kv"`
	Plan    string            `json:"plan"` // PlanKV, PlanKVPrefix or PlanRecompute
	Parked  []ParkedWrite     `json:"-"`
	Handle  Handle            `json:"handle"`
	Lost    *Loss             `json:"lost"` // what a claimant accepted to be lost
	New     bool              `json:"new"`  // there is no such session yet

	Turns []Turn `json:"-"`
	// Dropped are accepted writes of this Session that were kept for repair
	// when the loss was accepted. Those that are still meant can be written
	// again under their ops, whether or not the store lost them.
	Dropped []LostWrite `json:"-"`
}

func (r *Recovery) mark() mark { return mark{handle: r.Handle, epoch: r.Epoch, version: r.Version} }

// Loss is what the store held and what had been promised.
type Loss struct {
	Have Have `json:"have"`
	Want Want `json:"want"`
}

// LostWrite is an accepted write that nobody repairs any more.
type LostWrite struct {
	Write
	Replaces bool // it was a replace
}

// ParkedWrite is an append that came from an instance which was no longer the
// owner. The owner adopts it by appending it under its op, see [ParkedWrite.Write].
type ParkedWrite struct {
	Op      string
	By      string // the instance it came from
	Version uint64 // it was made for
	Base    *int
	Turns   []Turn
	Meta    json.RawMessage
	Age     time.Duration
}

// Write is the append that adopts the parked write, after what is there.
func (p *ParkedWrite) Write() Write {
	w := Write{Op: p.Op, Base: p.Base, Turns: p.Turns, Meta: p.Meta}
	if p.Base == nil {
		w.At = AtEnd
	}
	return w
}

type wireParked struct {
	Op string `json:"op"`
	By struct {
		Instance string `json:"instance"`
	} `json:"by"`
	Version uint64          `json:"version"`
	Base    *int            `json:"base"`
	Turns   []wireTurn      `json:"turns"`
	Meta    json.RawMessage `json:"meta"`
	AgeMS   int64           `json:"age_ms"`
}

// wireRecovery is the record of an answer.
type wireRecovery struct {
	Recovery
	Parked []wireParked `json:"parked"`
}

func (w *wireRecovery) recovery() (*Recovery, error) {
	r := w.Recovery
	for i := range w.Parked {
		p := &w.Parked[i]
		parked := ParkedWrite{
			Op: p.Op, By: p.By.Instance, Version: p.Version, Base: p.Base, Meta: p.Meta,
			Age: time.Duration(p.AgeMS) * time.Millisecond,
		}
		for j := range p.Turns {
			t, err := p.Turns[j].turn()
			if err != nil {
				return nil, &permanentError{err}
			}
			parked.Turns = append(parked.Turns, t)
		}
		r.Parked = append(r.Parked, parked)
	}
	return &r, nil
}

// Recover asks for the session's context and, with [Claim], for the session. It
// repeats the call until it has an answer, at most for Config.RepeatFor. A store
// that lost earlier writes of this Session is repaired first, unless the loss
// is accepted.
func (s *Session) Recover(ctx context.Context, req RecoverRequest) (*Recovery, error) {
	return s.recoverWhole(ctx, noTurn, req)
}

func (s *Session) recoverWhole(ctx context.Context, turn turnState, req RecoverRequest) (*Recovery, error) {
	var r *Recovery
	err := s.recover(ctx, turn, req, false, func(res *http.Response) error {
		var t *turnStream
		var err error
		if r, t, err = openRecovery(res, req); err != nil {
			return err
		}
		for turn, err := range t.all() {
			if err != nil {
				return err
			}
			r.Turns = append(r.Turns, turn)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.recovered(req, r, len(r.Turns))
	return r, nil
}

// RecoverStream is Recover for contexts that should not wait in memory: use gets
// the record, whose Turns are empty, and the turns as they arrive. The call is
// repeated only until use was called; an error of use or of the turns is
// returned as it is. ErrChanged means that the turns seen so far may be of a
// context that is no more: recover again.
func (s *Session) RecoverStream(
	ctx context.Context, req RecoverRequest, use func(*Recovery, iter.Seq2[Turn, error]) error,
) error {
	return s.recover(ctx, noTurn, req, true, func(res *http.Response) error {
		r, t, err := openRecovery(res, req)
		if err != nil {
			return err
		}
		if err := use(r, t.all()); err != nil {
			return &permanentError{err}
		}
		if t.ended {
			s.recovered(req, r, t.next-r.Base)
		}
		return nil
	})
}

// maxTorn bounds how often a read starts anew because the context was rewritten
// meanwhile.
const maxTorn = 16

// recover makes the call until read has read an answer whole.
func (s *Session) recover(
	ctx context.Context, turn turnState, req RecoverRequest, streams bool, read func(*http.Response) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, s.w.conn.cfg.RepeatFor)
	defer cancel()
	own := sameCopy(req.Have, s.Have())
	for torn := 0; ; torn++ {
		err := s.presenting(ctx, turn, func(mark) error {
			if own {
				req.Have = s.Have() // a repair may have changed what the copy is worth
			}
			k, err := s.recoverCall(req, s.handleFor(req))
			if err != nil {
				return err
			}
			k.streams, k.read = streams, read
			_, err = s.w.conn.repeat(ctx, k)
			return err
		})
		if p := refusal(err); p == nil || p.Code != ErrChanged || torn == maxTorn {
			return err
		}
	}
}

func sameCopy(a, b *HaveCopy) bool { return a != nil && b != nil && *a == *b }

func openRecovery(res *http.Response, req RecoverRequest) (*Recovery, *turnStream, error) {
	var head wireRecovery
	t, err := openTurns(res, &head)
	if err != nil {
		return nil, nil, err
	}
	r, err := head.recovery()
	if err != nil {
		return nil, nil, err
	}
	t.expect(r.Base, &r.Count)
	if req.NoTurns {
		t.expect(r.Base, nil)
	}
	return r, t, nil
}

// recoverCall builds the request.
func (s *Session) recoverCall(req RecoverRequest, present Handle) (call, error) {
	k := call{act: "recover session", method: http.MethodPost, path: "/v1/recover"}
	s.key.identify(&k)
	k.set("Accept", typeNDJSON)
	by := s.w.credentials(present)
	turns := ""
	if req.NoTurns {
		turns = "none"
	}
	return k.withJSON(struct {
		Session     string      `json:"session"`
		Handle      string      `json:"handle,omitempty"`
		Instance    string      `json:"instance"`
		Incarnation string      `json:"incarnation"`
		Mode        RecoverMode `json:"mode"`
		Have        *HaveCopy   `json:"have,omitempty"`
		Turns       string      `json:"turns,omitempty"`
		AcceptLost  bool        `json:"accept_lost,omitempty"`
	}{s.key.ID, string(by.handle), by.instance, by.incarnation, req.Mode, req.Have, turns, req.AcceptLost})
}

// handleFor is the handle to present: to claim that of a route, since no other
// can, unless this instance is the owner already.
func (s *Session) handleFor(req RecoverRequest) Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case req.Handle != "":
		return req.Handle
	case req.Mode == Claim && s.hint.handle != "" && s.hint.epoch >= s.newest.epoch:
		return s.hint.handle
	}
	return s.newest.handle
}

// recovered takes in what a recover told; n is the number of turns it sent.
func (s *Session) recovered(req RecoverRequest, r *Recovery, n int) {
	m, boot := r.mark(), s.w.Incarnation()
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Mode == Claim && !r.New {
		s.owned = ownership{r.Epoch, boot}
	}
	if req.AcceptLost {
		r.Dropped = s.journal.takeAll()
		s.lostFrom = ""
	}
	if r.Lost != nil {
		s.giveUp(r)
	}
	if req.Mode != Prewarm { // a handle for prewarming writes nothing
		s.learn(m)
	}
	if !req.NoTurns && !r.New {
		s.copy = recovered(m, r.Base+n)
	}
}

// giveUp forgets what was promised beyond the place that the loss was accepted
// at, and the handles that say so: this is the one way back to an older place.
func (s *Session) giveUp(r *Recovery) {
	s.newest, s.copy = mark{}, copied{}
	if s.hint.version > r.Version {
		s.hint = mark{}
	}
	s.learn(s.hint)
}
