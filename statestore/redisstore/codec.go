package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"berth/statestore"
)

// ErrDamaged: what is in Redis cannot be what was written.
var ErrDamaged = errors.New("the store's data is damaged")

// format is the version of the record's layout.
const format = 1

// numbersSize is how many bytes the numbers of a record take, before its ops.
const numbersSize = 1 + 11*6 + 2*4 + 20 + 16 + (6 + 1 + 6 + 8 + 6) + (6 + 8) + (3*6 + 8 + 1) + (4 + 4 + 6 + 4 + 4)

// fields takes big-endian fields off a packed string, as struct.pack in Lua
// writes them. The first that is not there spoils all.
type fields struct {
	s   string
	bad bool
}

func (f *fields) take(n int) string {
	if f.bad || n > len(f.s) {
		f.bad = true
		return ""
	}
	v := f.s[:n]
	f.s = f.s[n:]
	return v
}

// uint is an integer of n bytes.
func (f *fields) uint(n int) uint64 {
	var v uint64
	for _, c := range []byte(f.take(n)) {
		v = v<<8 | uint64(c)
	}
	return v
}

func (f *fields) int(n int) int                   { return int(f.uint(n)) }               //nolint:gosec // 48 bits at most
func (f *fields) millis() statestore.Millis       { return statestore.Millis(f.uint(6)) } //nolint:gosec // 48 bits
func (f *fields) text(width int) string           { return strings.Clone(f.take(f.int(width))) }
func (f *fields) owner() statestore.Owner         { return ownerOf(f.text(2)) }
func (f *fields) raw(dst []byte)                  { copy(dst, f.take(len(dst))) }
func (f *fields) reason() statestore.EndReason    { return endReasons[f.choice(len(endReasons))] }
func (f *fields) change() statestore.ChangeReason { return changeReasons[f.choice(len(changeReasons))] }

// choice is a byte that must be below n.
func (f *fields) choice(n int) int {
	v := f.int(1)
	if v >= n {
		f.bad = true
		return 0
	}
	return v
}

func (f *fields) floor() (fl statestore.Floor) {
	fl.Epoch, fl.Version = f.uint(8), f.uint(8)
	f.raw(fl.Op[:])
	return fl
}

// end reports whether the value was read to its last byte.
func (f *fields) end(what string) error {
	if f.bad || len(f.s) > 0 {
		return fmt.Errorf("%s: %w", what, ErrDamaged)
	}
	return nil
}

// Reasons by the numbers that lua/session.lua gives them.
var (
	endReasons    = [...]statestore.EndReason{"", statestore.Expired, statestore.Deleted}
	changeReasons = [...]statestore.ChangeReason{
		"", statestore.ChangeCreated, statestore.ChangeReported, statestore.ChangeClaimed, statestore.ChangeReplaced,
		statestore.ChangeLost, statestore.ChangeMoved, statestore.ChangeDetached, statestore.ChangeFinished,
	}
)

// extent is how much of a context lies where.
type extent struct {
	born    uint64 // the epoch that began this life
	entries int    // of the directory
	pieces  int    // in the open tail
	stream  uint64 // bytes of the whole
}

// mark is a place in the stream where a turn begins.
type mark struct {
	turn   uint64
	at     uint64 // byte of the stream
	bytes  uint64 // of the values before it
	tokens uint64 // of the turns before it
}

// decodeRecord reads what lua/session.lua packs.
func decodeRecord(s string) (*statestore.Record, extent, error) {
	f := &fields{s: s}
	r := new(statestore.Record)
	if v := f.uint(1); v != format {
		return nil, extent{}, fmt.Errorf("record of version %d: %w", v, ErrDamaged)
	}
	x := extent{born: f.uint(6)}
	r.Rewritten = f.uint(6)
	for _, m := range [...]*statestore.Millis{&r.Expires, &r.AffinityUntil, &r.Created, &r.LastTurn, &r.BoundAt} {
		*m = f.millis()
	}
	r.Epoch, r.Version, r.Turns, r.Bytes, r.Tokens = f.uint(6), f.uint(6), f.uint(6), f.uint(6), f.uint(8)
	f.raw(r.Digest[:])
	f.raw(r.AffinityKey[:])
	r.Before = statestore.Tombstone{Epoch: f.uint(6), Reason: f.reason()}
	if l := (statestore.AcceptedLoss{Epoch: f.uint(6), Want: f.uint(8)}); l.Epoch > 0 {
		r.Lost = &l
	}
	tail, plan := statestore.Tail{Epoch: f.uint(6)}, statestore.Reservation{Until: f.millis()}
	plan.Job.Token = f.uint(8)
	f.take(6 + 6 + 6 + 8) // tombstone life, backstop, due, last call
	x.read(f)
	r.Ops = decodeOps(f, r.Version)
	r.Owner, tail.Owner, plan.Job.ID, plan.Target = f.owner(), f.owner(), f.text(2), f.owner()
	if !tail.Owner.IsZero() {
		r.Tail = &tail
	}
	if plan.Until > 0 {
		r.Reserved = &plan
	}
	names := &fields{s: f.take(f.int(2)), bad: f.bad}
	r.Key = statestore.SessionKey{Tenant: names.text(2), Pool: names.text(2), ID: names.text(2)}
	r.Changes = decodeChanges(&fields{s: f.take(f.int(2)), bad: f.bad}, &f.bad)
	f.bad = f.bad || names.bad
	return r, x, f.end("record")
}

func (x *extent) read(f *fields) {
	f.take(1) // parked writes
	x.entries, x.pieces, x.stream = f.int(4), f.int(4), f.uint(6)
	f.take(4 + 4) // bytes since the last entry, number of the next parked write
}

func decodeChanges(f *fields, bad *bool) (changes []statestore.OwnerChange) {
	for len(f.s) > 0 && !f.bad {
		c := statestore.OwnerChange{Epoch: f.uint(6), Version: f.uint(6), At: f.millis(), Reason: f.change(), Instance: f.text(1)}
		changes = append(changes, c)
	}
	*bad = *bad || f.bad
	return changes
}

// opSize is one remembered op: its digest, its content's, and the turns it kept.
const opSize = 8 + 16 + 3

// decodeOps reads the ring of ops, the last of which made the given version.
func decodeOps(f *fields, version uint64) []statestore.Op {
	n := min(version, statestore.OpsRemembered)
	ring := f.take(int(n) * opSize) //nolint:gosec // 32 at most
	if n == 0 || f.bad {
		return nil
	}
	ops := make([]statestore.Op, n)
	for i := range ops {
		o := &ops[i]
		o.Version = version - n + 1 + uint64(i) //nolint:gosec // an index
		at := &fields{s: ring[(o.Version-1)%statestore.OpsRemembered*opSize:]}
		at.raw(o.Op[:])
		at.raw(o.Content[:])
		o.Kept = at.uint(3)
	}
	return ops
}

// decodeTombstone reads a tombstone whose time may be over.
func decodeTombstone(s string, now statestore.Millis) (statestore.Tombstone, error) {
	f := &fields{s: s}
	f.take(1)
	t := statestore.Tombstone{Epoch: f.uint(6), Reason: f.reason()}
	until := f.millis()
	f.take(8) // the call that ended it
	if err := f.end("tombstone"); err != nil {
		return statestore.Tombstone{}, err
	}
	if now >= until {
		return statestore.Tombstone{}, nil
	}
	return t, nil
}

// packOwner is how functions know an owner; nobody is "".
func packOwner(o statestore.Owner) string {
	if o.IsZero() {
		return ""
	}
	return o.Instance + "\x00" + o.Incarnation
}

func ownerOf(s string) statestore.Owner {
	instance, incarnation, _ := strings.Cut(s, "\x00")
	return statestore.Owner{Instance: instance, Incarnation: incarnation}
}

func appendFloor(b []byte, f statestore.Floor) []byte {
	b = binary.BigEndian.AppendUint64(b, f.Epoch)
	b = binary.BigEndian.AppendUint64(b, f.Version)
	return append(b, f.Op[:]...)
}

// packHandle is the floors of a handle, its own first; "" for no handle.
func packHandle(p *statestore.Presented) []byte {
	if p == nil {
		return nil
	}
	b := appendFloor(make([]byte, 0, 48), p.Floor)
	if p.Second != nil {
		b = appendFloor(b, *p.Second)
	}
	return b
}

func packFloor(f *statestore.Floor) []byte {
	if f == nil {
		return nil
	}
	return appendFloor(nil, *f)
}

func appendText(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(s))) //nolint:gosec // names and ops are short
	return append(b, s...)
}

// packNames is the session's key as its record keeps it.
func packNames(k statestore.SessionKey) []byte {
	return appendText(appendText(appendText(nil, k.Tenant), k.Pool), k.ID)
}

// appendNames is packNames with its length before it.
func appendNames(b []byte, k statestore.SessionKey) []byte {
	b = appendUint(b, uint64(3*2+len(k.Tenant)+len(k.Pool)+len(k.ID)), 2)
	return appendText(appendText(appendText(b, k.Tenant), k.Pool), k.ID)
}

// appendUint appends the n low bytes of v; what is larger becomes all ones.
func appendUint(b []byte, v uint64, n int) []byte {
	if n < 8 {
		v = min(v, 1<<(8*n)-1)
	}
	for i := n - 1; i >= 0; i-- {
		b = append(b, byte(v>>(8*i)))
	}
	return b
}
