package handle

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"sync"
	"time"

	"berth/statestore"
)

// Codec signs with its newest key and verifies with all. It is safe for
// concurrent use; keys never change in place, a rotation makes a new Codec.
type Codec struct {
	newest [2]byte
	macs   map[[2]byte]*sync.Pool // of hash.Hash, each keyed
}

// NewCodec takes the keys, newest first.
func NewCodec(keys []statestore.SigningKey) (*Codec, error) {
	if len(keys) == 0 {
		return nil, errors.New("a handle codec needs at least one key")
	}
	c := &Codec{newest: keys[0].ID, macs: make(map[[2]byte]*sync.Pool, len(keys))}
	for _, k := range keys {
		if len(k.Secret) < 16 {
			return nil, errors.New("a handle key needs at least 16 bytes")
		}
		c.macs[k.ID] = &sync.Pool{New: func() any { return hmac.New(sha256.New, k.Secret) }}
	}
	return c, nil
}

var encoding = base64.RawURLEncoding

// Sign returns the handle as the string that travels.
func (c *Codec) Sign(h *Handle) string {
	var out [MaxLen]byte
	return string(c.AppendSigned(out[:0], h))
}

// AppendSigned appends what [Codec.Sign] returns, without allocating for it.
func (c *Codec) AppendSigned(dst []byte, h *Handle) []byte {
	var raw [maxBytes + sha256.Size]byte
	b := h.encode(raw[:0], c.newest)
	b = c.appendMAC(b, c.macs[c.newest])
	return encoding.AppendEncode(dst, b)
}

func (c *Codec) appendMAC(b []byte, pool *sync.Pool) []byte {
	m := pool.Get().(hash.Hash)
	defer pool.Put(m)
	m.Reset()
	m.Write(b)
	var sum [sha256.Size]byte
	return append(b, m.Sum(sum[:0])[:macLen]...)
}

// Verify reads a handle that must be for the session and not be over at now, by
// the store's clock. Its errors are [Error].
func (c *Codec) Verify(s string, session statestore.SessionDigest, now time.Time) (Handle, error) {
	var h Handle
	if len(s) > MaxLen {
		return h, &Error{Why: Forged}
	}
	var raw [MaxLen]byte
	b, err := encoding.Strict().AppendDecode(raw[:0], []byte(s))
	if err != nil || len(b) < headLen+1+macLen {
		return h, &Error{Why: Forged}
	}
	pool := c.macs[[2]byte(b[2:4])]
	if pool == nil {
		return h, &Error{Why: UnknownKey}
	}
	body, mac := b[:len(b)-macLen], b[len(b)-macLen:]
	var again [MaxLen + sha256.Size]byte
	want := c.appendMAC(append(again[:0], body...), pool)[len(body):]
	if !hmac.Equal(mac, want) || h.decode(body) != nil {
		return Handle{}, &Error{Why: Forged}
	}
	if [sessionLen]byte(h.Session[:]) != [sessionLen]byte(session[:]) {
		return Handle{}, &Error{Why: OtherSession}
	}
	h.Session = session
	if !now.Before(h.Expires) {
		return Handle{}, &Error{Why: Expired}
	}
	return h, nil
}
