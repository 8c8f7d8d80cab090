package handle

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"berth/statestore"
)

// MaxLen is the length no handle exceeds, in characters.
const MaxLen = 160

// MaxNames is how many instances one handle can name: the hint and its fallbacks.
const MaxNames = 4

// Purpose is what a handle may be used for. The zero value is none.
type Purpose uint8

// Purposes.
const (
	None     Purpose = iota
	Route            // made by a route: may claim and write
	Prewarm          // may read, on behalf of a planned move
	Save             // answered by a write: may write again
	Degraded         // made without the store: may write, cannot take an existing session
)

// Handle is what a handle says.
type Handle struct {
	Purpose Purpose
	Session statestore.SessionDigest // only the first 12 bytes travel
	Floor   statestore.Floor
	Second  *statestore.Floor
	// AffinityKey is zero unless the route was asked with one.
	AffinityKey statestore.AffinityKey
	Expires     time.Time // by the store's clock, whole seconds
	names       [MaxNames][nameLen]byte
	count       uint8
}

// Name adds an instance that the handle names; past [MaxNames] it does nothing.
func (h *Handle) Name(instance string) {
	if h.count < MaxNames {
		h.names[h.count] = nameOf(instance)
		h.count++
	}
}

// Names reports whether the handle names the instance.
func (h *Handle) Names(instance string) bool {
	name := nameOf(instance)
	for _, n := range h.names[:h.count] {
		if n == name {
			return true
		}
	}
	return false
}

// Presented is what the store is told of the handle when by presents it.
func (h *Handle) Presented(by string) statestore.Presented {
	return statestore.Presented{
		Floor:       h.Floor,
		Second:      h.Second,
		Named:       h.Purpose == Route && h.Names(by),
		AffinityKey: h.AffinityKey,
	}
}

func nameOf(instance string) [nameLen]byte {
	sum := sha256.Sum256([]byte(instance))
	return [nameLen]byte(sum[:nameLen])
}

// Why says why a handle was refused.
type Why string

// Reasons of an [Error].
const (
	Forged       Why = "forged"
	UnknownKey   Why = "unknown_key"
	Expired      Why = "expired"
	WrongPurpose Why = "purpose"
	OtherSession Why = "other_session"
)

// Error is a refused handle. It never contains the handle.
type Error struct{ Why Why }

func (e *Error) Error() string { return fmt.Sprintf("bad handle (%s)", e.Why) }

const (
	form       = 1
	nameLen    = 6
	sessionLen = 12
	floorLen   = 6 + 5 + 8
	macLen     = 16
	headLen    = 1 + 1 + 2 + sessionLen + 5 + floorLen
	maxBytes   = headLen + floorLen + 16 + 1 + MaxNames*nameLen + macLen

	purposeMask = 0x0f
	flagSecond  = 0x10
	flagKey     = 0x20
)

// encode appends the handle without its MAC.
func (h *Handle) encode(b []byte, key [2]byte) []byte {
	flags := byte(h.Purpose)
	if h.Second != nil {
		flags |= flagSecond
	}
	if h.AffinityKey != (statestore.AffinityKey{}) {
		flags |= flagKey
	}
	b = append(b, form, flags, key[0], key[1])
	b = append(b, h.Session[:sessionLen]...)
	b = appendUint(b, uint64(max(0, h.Expires.Unix())), 5) //nolint:gosec // not negative
	b = appendFloor(b, h.Floor)
	if h.Second != nil {
		b = appendFloor(b, *h.Second)
	}
	if flags&flagKey != 0 {
		b = append(b, h.AffinityKey[:]...)
	}
	b = append(b, h.count)
	for _, n := range h.names[:h.count] {
		b = append(b, n[:]...)
	}
	return b
}

var errForm = errors.New("not a handle")

// decode reads what encode wrote; b has no MAC.
func (h *Handle) decode(b []byte) error {
	r := reader{b: b}
	if r.next(1)[0] != form {
		return errForm
	}
	flags := r.next(1)[0]
	h.Purpose = Purpose(flags & purposeMask)
	r.next(2)
	copy(h.Session[:sessionLen], r.next(sessionLen))
	h.Expires = time.Unix(int64(readUint(r.next(5))), 0) //nolint:gosec // 40 bits
	h.Floor = r.floor()
	if flags&flagSecond != 0 {
		second := r.floor()
		h.Second = &second
	}
	if flags&flagKey != 0 {
		copy(h.AffinityKey[:], r.next(16))
	}
	h.count = min(r.next(1)[0], MaxNames)
	for i := range h.names[:h.count] {
		copy(h.names[i][:], r.next(nameLen))
	}
	if r.short || len(r.b) > 0 || h.Purpose == None || h.Purpose > Degraded {
		return errForm
	}
	return nil
}

// reader takes bytes off the front; past the end it yields zeros and notes it.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) next(n int) []byte {
	if len(r.b) < n {
		r.short, r.b = true, nil
		return make([]byte, n)
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) floor() statestore.Floor {
	return statestore.Floor{
		Epoch:   readUint(r.next(6)),
		Version: readUint(r.next(5)),
		Op:      statestore.OpDigest(r.next(8)),
	}
}

func appendFloor(b []byte, f statestore.Floor) []byte {
	b = appendUint(b, f.Epoch, 6)
	b = appendUint(b, f.Version, 5)
	return append(b, f.Op[:]...)
}

// appendUint appends the low n bytes of v, big-endian.
func appendUint(b []byte, v uint64, n int) []byte {
	var full [8]byte
	binary.BigEndian.PutUint64(full[:], v)
	return append(b, full[8-n:]...)
}

func readUint(b []byte) uint64 {
	var full [8]byte
	copy(full[8-len(b):], b)
	return binary.BigEndian.Uint64(full[:])
}
