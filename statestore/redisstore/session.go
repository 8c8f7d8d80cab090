package redisstore

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"berth/statestore"
)

// call is one call on one session, with the number by which the session remembers
// that it was made.
type call struct {
	store  *Store
	digest statestore.SessionDigest
	pool   string
	keys   []string
	number [8]byte
}

func (s *Store) newCall(key statestore.SessionKey) call {
	d := key.Digest()
	return s.callOn(d, key.Pool)
}

func (s *Store) callOn(d statestore.SessionDigest, pool string) call {
	c := call{store: s, digest: d, pool: pool, keys: s.keys.session(d)}
	// It tells calls apart and guards nothing; 0 is no call.
	binary.BigEndian.PutUint64(c.number[:], rand.Uint64()|1) //nolint:gosec // see above
	return c
}

// args is what lua/session.lua takes after the clock, and then what the transition
// does.
func (c *call) args(more ...any) []any {
	b := make([]byte, 0, 96)
	b = append(append(b, c.digest[:]...), c.number[:]...)
	b = appendText(appendText(b, c.pool), c.store.keys.channel())
	args := make([]any, 0, 1+len(more))
	return append(append(args, b), more...)
}

// millis is a lifetime as functions take it; a negative one is none.
func millis(d time.Duration) uint64 { return uint64(max(0, d.Milliseconds())) } //nolint:gosec // not negative

// Lookup reads a record.
func (s *Store) Lookup(ctx context.Context, key statestore.SessionKey) (statestore.View, error) {
	if err := key.Validate(); err != nil {
		return statestore.View{}, err
	}
	c := s.newCall(key)
	reply, err := s.read(ctx, lookupFn, []string{c.keys[keyRecord], c.keys[keyTombstone]})
	if err != nil {
		return statestore.View{}, err
	}
	v, _, err := viewOf(reply)
	if err != nil || !over(v) {
		return v, err
	}
	v, _, err = s.expire(ctx, c)
	return v, err
}

// viewOf reads what lua/lookup.lua returns.
func viewOf(reply any) (statestore.View, extent, error) {
	a, err := answerOf(reply)
	if err != nil {
		return statestore.View{}, extent{}, err
	}
	v := statestore.View{Now: a.millis(0)}
	if packed := a.text(1); packed != "" {
		r, x, err := decodeRecord(packed)
		if err != nil {
			return statestore.View{}, extent{}, err
		}
		v.Record, v.Exists = *r, true
		return v, x, nil
	}
	if packed := a.text(2); packed != "" {
		v.Tombstone, err = decodeTombstone(packed, v.Now)
	}
	return v, extent{}, err
}

// over reports whether the session's time is over, and nobody has ended it yet.
func over(v statestore.View) bool { return v.Exists && v.Now >= v.Expires }

// expire ends a session whose time is over, so that all callers are told the same
// epoch of its tombstone, and reports whether it did.
func (s *Store) expire(ctx context.Context, c call) (v statestore.View, ended bool, err error) {
	var a answer
	err = s.ask(ctx, func() error {
		reply, err := s.fcall(ctx, s.client, expireFn, c.keys, c.args())
		if err != nil {
			return err
		}
		a, err = answerOf(reply)
		return err
	})
	if err != nil {
		return v, false, err
	}
	v.Now = a.millis(0)
	if packed := a.text(1); packed != "" {
		r, _, err := decodeRecord(packed)
		if err != nil {
			return v, false, err
		}
		v.Record, v.Exists = *r, true
		return v, false, nil
	}
	v.Tombstone = statestore.Tombstone{Epoch: a.uint(2), Reason: a.endReason(3)}
	return v, a.flag(4), nil
}
