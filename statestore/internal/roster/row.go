package roster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"berth/statestore"
)

// ErrDamaged: the bytes are no rows.
var ErrDamaged = errors.New("load table is damaged")

// Row is what heartbeats leave of one boot of an instance.
//
//	count     8 bytes, big-endian: heartbeats so far
//	at        8 bytes, big-endian: ms of the last one, 0 for never
//	instance  length in a byte, name
//	boot      length in a byte, incarnation
//	ready     a byte
//	running, waiting, max_running          varints
//	kv_usage  8 bytes, big-endian
//	kv_generation, prefix_queries, prefix_hits   uvarints
//
// It says itself where it ends, so that a table is its rows in a row. What comes
// before ready can be changed and compared without reading the rest.
type Row struct {
	By    statestore.Owner
	Beats uint64
	At    statestore.Millis
	Last  statestore.Heartbeat
}

// RowOf is the row of an instance.
func RowOf(i *statestore.Instance) Row {
	return Row{By: i.Owner(), Beats: i.Beats, At: i.BeatAt, Last: i.LastBeat}
}

// AddTo gives an instance the heartbeats of the row, unless they are of another
// boot.
func (r *Row) AddTo(i *statestore.Instance) {
	if i.Owner() == r.By {
		i.Beats, i.BeatAt, i.LastBeat = r.Beats, r.At, r.Last
	}
}

// SameBoot reports whether a stored row is of the same boot.
func (r *Row) SameBoot(stored []byte) bool {
	instance, boot, _, err := names(stored)
	return err == nil && string(instance) == r.By.Instance && string(boot) == r.By.Incarnation
}

// head is the length of count and at.
const head = 16

// maxName is what the length of a name can say.
const maxName = 255

// Append appends the row to dst. Names must not pass 255 bytes.
func (r *Row) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, r.Beats)
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.At)) //nolint:gosec // the clock is past 1970
	for _, name := range [...]string{r.By.Instance, r.By.Incarnation} {
		dst = append(append(dst, byte(min(len(name), maxName))), name...) //nolint:gosec // bounded
	}
	return AppendTold(dst, &r.Last)
}

// AppendTold appends the part of a row that a heartbeat tells.
func AppendTold(dst []byte, b *statestore.Heartbeat) []byte {
	ready := byte(0)
	if b.Ready {
		ready = 1
	}
	dst = append(dst, ready)
	for _, n := range [...]int{b.Running, b.Waiting, b.MaxRunning} {
		dst = binary.AppendVarint(dst, int64(n))
	}
	dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(b.KVUsage))
	for _, n := range [...]uint64{b.KVGeneration, b.PrefixQueries, b.PrefixHits} {
		dst = binary.AppendUvarint(dst, n)
	}
	return dst
}

// names finds the instance and the boot in the first row of a table.
func names(table []byte) (instance, boot, told []byte, err error) {
	if len(table) < head {
		return nil, nil, nil, ErrDamaged
	}
	told = table[head:]
	for _, name := range [...]*[]byte{&instance, &boot} {
		if len(told) == 0 || len(told) <= int(told[0]) {
			return nil, nil, nil, ErrDamaged
		}
		end := 1 + int(told[0])
		*name, told = told[1:end], told[end:]
	}
	return instance, boot, told, nil
}

// readTold reads what AppendTold wrote, and returns what follows.
func readTold(b []byte, into *statestore.Heartbeat) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, ErrDamaged
	}
	into.Ready, b = b[0] == 1, b[1:]
	for _, n := range [...]*int{&into.Running, &into.Waiting, &into.MaxRunning} {
		v, size := binary.Varint(b)
		if size <= 0 {
			return nil, ErrDamaged
		}
		*n, b = int(v), b[size:]
	}
	if len(b) < 8 {
		return nil, ErrDamaged
	}
	into.KVUsage, b = math.Float64frombits(binary.BigEndian.Uint64(b)), b[8:]
	for _, n := range [...]*uint64{&into.KVGeneration, &into.PrefixQueries, &into.PrefixHits} {
		v, size := binary.Uvarint(b)
		if size <= 0 {
			return nil, ErrDamaged
		}
		*n, b = v, b[size:]
	}
	return b, nil
}

// ReadRow reads one row, which must be all of b.
func ReadRow(b []byte) (Row, error) {
	instance, boot, told, err := names(b)
	if err != nil {
		return Row{}, err
	}
	r := Row{By: statestore.Owner{Instance: string(instance), Incarnation: string(boot)}}
	r.Beats, r.At = counted(b)
	rest, err := readTold(told, &r.Last)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes follow a row: %w", len(rest), ErrDamaged)
	}
	return r, err
}

// counted reads the head of a row.
func counted(row []byte) (beats uint64, at statestore.Millis) {
	return binary.BigEndian.Uint64(row), statestore.Millis(binary.BigEndian.Uint64(row[8:])) //nolint:gosec // as in Append
}
