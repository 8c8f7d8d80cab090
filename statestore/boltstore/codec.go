package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"berth/statestore"
	"berth/statestore/internal/frame"
)

// ErrDamaged: what is in the file cannot be what was written.
var ErrDamaged = errors.New("the store's file is damaged")

// Every binary value begins with its version. A change of the layout takes a new
// one, and decoding keeps understanding the old.
const codecVersion = 1

const (
	slotRecord    = 1
	slotTombstone = 2
)

// encoder appends fields: integers as varints, strings and bytes with their length.
type encoder struct{ b []byte }

func (e *encoder) uint(v uint64)              { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) millis(m statestore.Millis) { e.b = binary.AppendVarint(e.b, int64(m)) }
func (e *encoder) raw(b []byte)               { e.b = append(e.b, b...) }
func (e *encoder) bytes(b []byte)             { e.uint(uint64(len(b))); e.raw(b) }
func (e *encoder) string(s string)            { e.uint(uint64(len(s))); e.b = append(e.b, s...) }

func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) owner(o statestore.Owner) { e.string(o.Instance); e.string(o.Incarnation) }

func (e *encoder) tombstone(t statestore.Tombstone) { e.uint(t.Epoch); e.string(string(t.Reason)) }

func (e *encoder) floor(f statestore.Floor) { e.uint(f.Epoch); e.uint(f.Version); e.raw(f.Op[:]) }

// decoder takes fields off a value. The first that is not there spoils all.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n uint64) []byte {
	if d.bad || n > uint64(len(d.b)) {
		d.bad = true
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) number(n int) bool {
	if d.bad || n <= 0 {
		d.bad = true
		return false
	}
	d.b = d.b[n:]
	return true
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if !d.number(n) {
		return 0
	}
	return v
}

func (d *decoder) millis() statestore.Millis {
	v, n := binary.Varint(d.b)
	if !d.number(n) {
		return 0
	}
	return statestore.Millis(v)
}

// count is a number of items of at least one byte each.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad = true
		return 0
	}
	return int(n) //nolint:gosec // bounded by a length
}

func (d *decoder) raw(dst []byte) { copy(dst, d.take(uint64(len(dst)))) }
func (d *decoder) string() string { return string(d.take(d.uint())) }
func (d *decoder) bytes() []byte  { return append([]byte{}, d.take(d.uint())...) }
func (d *decoder) bool() bool     { b := d.take(1); return len(b) == 1 && b[0] == 1 }

func (d *decoder) owner() statestore.Owner {
	return statestore.Owner{Instance: d.string(), Incarnation: d.string()}
}

func (d *decoder) tombstone() statestore.Tombstone {
	return statestore.Tombstone{Epoch: d.uint(), Reason: statestore.EndReason(d.string())}
}

func (d *decoder) floor() (f statestore.Floor) {
	f.Epoch, f.Version = d.uint(), d.uint()
	d.raw(f.Op[:])
	return f
}

// end reports whether the value was read to its last byte.
func (d *decoder) end(what string) error {
	if d.bad || len(d.b) > 0 {
		return fmt.Errorf("%s: %w", what, ErrDamaged)
	}
	return nil
}

// encodeSlot is the value of a session; nothing for a slot with nothing in it.
func encodeSlot(s *slot) []byte {
	e := &encoder{b: make([]byte, 0, 1536)}
	e.raw([]byte{codecVersion})
	switch {
	case s.Record != nil:
		e.raw([]byte{slotRecord})
		e.millis(s.due)
		e.uint(uint64(s.tombstoneFor)) //nolint:gosec // not negative
		e.uint(s.parked)
		e.uint(s.parkedEver)
		e.record(s.Record)
	case s.Tombstone != statestore.Tombstone{}:
		e.raw([]byte{slotTombstone})
		e.millis(s.due)
		e.millis(s.until)
		e.tombstone(s.Tombstone)
	default:
		return nil
	}
	return e.b
}

func decodeSlot(b []byte) (*slot, error) {
	s := &slot{}
	if b == nil {
		return s, nil
	}
	d := &decoder{b: b}
	if v := d.take(1); d.bad || v[0] != codecVersion {
		return nil, fmt.Errorf("session of an unknown version: %w", ErrDamaged)
	}
	kind := d.take(1)
	switch {
	case !d.bad && kind[0] == slotRecord:
		s.due = d.millis()
		s.tombstoneFor = time.Duration(d.uint()) //nolint:gosec // as it was encoded
		s.parked, s.parkedEver = d.uint(), d.uint()
		s.Record = d.record()
	case !d.bad && kind[0] == slotTombstone:
		s.due, s.until = d.millis(), d.millis()
		s.Tombstone = d.tombstone()
	default:
		return nil, fmt.Errorf("session of an unknown kind: %w", ErrDamaged)
	}
	return s, d.end("session")
}

func (e *encoder) record(r *statestore.Record) {
	e.string(r.Key.Tenant)
	e.string(r.Key.Pool)
	e.string(r.Key.ID)
	e.raw(r.AffinityKey[:])
	e.owner(r.Owner)
	for _, v := range [...]uint64{r.Epoch, r.Version, r.Turns, r.Tokens, r.Bytes, r.Rewritten} {
		e.uint(v)
	}
	e.raw(r.Digest[:])
	for _, m := range [...]statestore.Millis{r.Created, r.LastTurn, r.BoundAt, r.AffinityUntil, r.Expires} {
		e.millis(m)
	}
	e.uint(uint64(len(r.Ops)))
	for i := range r.Ops {
		o := &r.Ops[i]
		e.raw(o.Op[:])
		e.raw(o.Content[:])
		e.uint(o.Version)
		e.uint(o.Kept)
	}
	e.uint(uint64(len(r.Changes)))
	for _, c := range r.Changes {
		e.uint(c.Epoch)
		e.uint(c.Version)
		e.string(c.Instance)
		e.string(string(c.Reason))
		e.millis(c.At)
	}
	e.exceptional(r)
}

// exceptional encodes what most records do not have.
func (e *encoder) exceptional(r *statestore.Record) {
	e.tombstone(r.Before)
	e.bool(r.Tail != nil)
	if t := r.Tail; t != nil {
		e.owner(t.Owner)
		e.uint(t.Epoch)
	}
	e.bool(r.Lost != nil)
	if l := r.Lost; l != nil {
		e.uint(l.Epoch)
		e.uint(l.Want)
	}
	e.bool(r.Reserved != nil)
	if v := r.Reserved; v != nil {
		e.string(v.Job.ID)
		e.uint(v.Job.Token)
		e.owner(v.Target)
		e.millis(v.Until)
	}
}

func (d *decoder) record() *statestore.Record {
	r := &statestore.Record{Key: statestore.SessionKey{Tenant: d.string(), Pool: d.string(), ID: d.string()}}
	d.raw(r.AffinityKey[:])
	r.Owner = d.owner()
	for _, v := range [...]*uint64{&r.Epoch, &r.Version, &r.Turns, &r.Tokens, &r.Bytes, &r.Rewritten} {
		*v = d.uint()
	}
	d.raw(r.Digest[:])
	for _, m := range [...]*statestore.Millis{&r.Created, &r.LastTurn, &r.BoundAt, &r.AffinityUntil, &r.Expires} {
		*m = d.millis()
	}
	if n := d.count(); n > 0 {
		// Room for the op of the write that this record is decoded for.
		r.Ops = make([]statestore.Op, n, n+1)
		for i := range r.Ops {
			o := &r.Ops[i]
			d.raw(o.Op[:])
			d.raw(o.Content[:])
			o.Version, o.Kept = d.uint(), d.uint()
		}
	}
	if n := d.count(); n > 0 {
		r.Changes = make([]statestore.OwnerChange, n, n+1)
		for i := range r.Changes {
			r.Changes[i] = statestore.OwnerChange{
				Epoch: d.uint(), Version: d.uint(), Instance: d.string(),
				Reason: statestore.ChangeReason(d.string()), At: d.millis(),
			}
		}
	}
	d.exceptional(r)
	return r
}

func (d *decoder) exceptional(r *statestore.Record) {
	r.Before = d.tombstone()
	if d.bool() {
		r.Tail = &statestore.Tail{Owner: d.owner(), Epoch: d.uint()}
	}
	if d.bool() {
		r.Lost = &statestore.AcceptedLoss{Epoch: d.uint(), Want: d.uint()}
	}
	if d.bool() {
		r.Reserved = &statestore.Reservation{
			Job: statestore.JobRef{ID: d.string(), Token: d.uint()}, Target: d.owner(), Until: d.millis(),
		}
	}
}

// parkedWrite is a parked append with its place in the row and its time.
type parkedWrite struct {
	statestore.Parked
	seq uint64
	at  statestore.Millis
}

func encodeParked(p *parkedWrite, frames [][]byte) []byte {
	e := &encoder{}
	e.raw([]byte{codecVersion})
	e.uint(p.seq)
	e.millis(p.at)
	e.string(p.Op)
	e.owner(p.By)
	e.floor(p.Floor)
	e.bool(p.Base != nil)
	if p.Base != nil {
		e.uint(*p.Base)
	}
	e.bool(p.Meta != nil)
	if p.Meta != nil {
		e.bytes(p.Meta)
	}
	for _, f := range frames {
		e.raw(f)
	}
	return e.b
}

func decodeParked(b []byte) (*parkedWrite, error) {
	d := &decoder{b: b}
	if v := d.take(1); d.bad || v[0] != codecVersion {
		return nil, fmt.Errorf("parked write of an unknown version: %w", ErrDamaged)
	}
	p := &parkedWrite{seq: d.uint(), at: d.millis()}
	p.Op, p.By, p.Floor = d.string(), d.owner(), d.floor()
	if d.bool() {
		base := d.uint()
		p.Base = &base
	}
	if d.bool() {
		p.Meta = d.bytes()
	}
	for !d.bad && len(d.b) > 0 {
		t, n, err := frame.Next(d.b)
		if err != nil {
			return nil, fmt.Errorf("parked write: %w: %w", err, ErrDamaged)
		}
		p.Turns = append(p.Turns, t)
		d.b = d.b[n:]
	}
	return p, d.end("parked write")
}
