package redisstore

import (
	"crypto/sha1" //nolint:gosec // tells histories apart, as lua/append.lua does
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/maypok86/otter/v2"

	"berth/statestore"
)

// imagesKept bounds the records that a process remembers, a kilobyte and a half each.
const imagesKept = 16384

// imageRest is for how many appends a session goes without an image after one that was
// out of date: another process writes to it too.
const imageRest = 16

// images are records as they were after the last append of this process. Judging an
// append costs a function of Redis four times what storing it does. The plain one,
// which continues the record by the handle's word and touches nothing else, is judged
// here instead, by the record as it was; and its function only holds the numbers of the
// record against those, byte for byte, before it stores what was worked out. Whatever
// changes a record changes its numbers: it has moved on if they differ, and the append
// is judged there as any other.
type images struct {
	cache *otter.Cache[statestore.SessionDigest, image]
}

// image is a packed record, or for how many appends there should be none.
type image struct {
	packed string
	rest   int
}

func newImages() (*images, error) {
	cache, err := otter.New(&otter.Options[statestore.SessionDigest, image]{MaximumSize: imagesKept})
	if err != nil {
		return nil, fmt.Errorf("make the cache of records: %w", err)
	}
	return &images{cache}, nil
}

// of is the image of a session; wanted, where there is none and should be.
func (i *images) of(d statestore.SessionDigest) (im image, wanted bool) {
	im, ok := i.cache.GetIfPresent(d)
	switch {
	case !ok:
		return im, true
	case im.packed != "":
		return im, false
	case im.rest > 0:
		i.cache.Set(d, image{rest: im.rest - 1})
	}
	return im, im.rest == 0
}

func (i *images) keep(d statestore.SessionDigest, packed string) {
	i.cache.Set(d, image{packed: packed})
}

// passed drops the image of a session that is at another version by now.
func (i *images) passed(d statestore.SessionDigest, version uint64) {
	if im, ok := i.cache.GetIfPresent(d); ok && im.packed != "" && im.uint(atVersion, 6) != version {
		i.cache.Invalidate(d)
	}
}

// mistrust lets a session go without an image for a while.
func (i *images) mistrust(d statestore.SessionDigest) { i.cache.Set(d, image{rest: imageRest}) }

// Where a packed record has the numbers that an append reads or changes: the places of
// NUMBERS in lua/session.lua.
const (
	atExpires  = 1 + 2*6
	atCreated  = atExpires + 2*6
	atBound    = atCreated + 2*6
	atEpoch    = atBound + 6
	atVersion  = atEpoch + 6
	atTurns    = atVersion + 6
	atBytes    = atTurns + 6
	atTokens   = atBytes + 6
	atChain    = atTokens + 8
	atTombLife = atChain + 20 + 16 + (6 + 1 + 6 + 8 + 6) + (6 + 8)
	atKeep     = atTombLife + 6
	atDue      = atKeep + 6
	atParked   = atDue + 6 + 8
	atEntries  = atParked + 1
	atPieces   = atEntries + 4
	atStream   = atPieces + 4
	atSince    = atStream + 6
)

// What lua/log.lua calls SHORT and STRIDE.
const (
	shortEnd = 128
	stride   = 32768
)

func (im image) uint(at, n int) uint64 {
	f := fields{s: im.packed[at : at+n]}
	return f.uint(n)
}

// strings are where those of the record begin: after its ops.
func (im image) strings() int {
	return numbersSize + int(min(im.uint(atVersion, 6), statestore.OpsRemembered))*opSize //nolint:gosec // 32 at most
}

// owners are the owner and the tail of a record, as functions know them.
func (im image) owners() (owner, tail string) {
	f := fields{s: im.packed[im.strings():]}
	return f.take(f.int(2)), f.take(f.int(2))
}

// remembers reports whether an op is among the remembered ones.
func (im image) remembers(op statestore.OpDigest) bool {
	for ring := im.packed[numbersSize:im.strings()]; ring != ""; ring = ring[opSize:] {
		if ring[:len(op)] == string(op[:]) {
			return true
		}
	}
	return false
}

// last is the op that made the record's version.
func (im image) last() string {
	at := numbersSize + int((im.uint(atVersion, 6)-1)%statestore.OpsRemembered)*opSize //nolint:gosec // 31 at most
	return im.packed[at : at+len(statestore.OpDigest{})]
}

// plain reports whether an append continues the record and changes nothing of it but
// the numbers and the ring.
func (im image) plain(w *write) bool {
	f := &w.handle.Floor
	version, turns := im.uint(atVersion, 6), im.uint(atTurns, 6)
	if w.kind != statestore.KindAppend || len(w.meta) > 0 || w.handle.Second != nil || w.base != nil && *w.base != turns {
		return false
	}
	if version == 0 || f.Version != version || f.Epoch != im.uint(atEpoch, 6) || string(f.Op[:]) != im.last() {
		return false
	}
	if im.uint(atParked, 1) > 0 || im.uint(atDue, 6) == 0 || im.uint(atBytes, 6)+w.bytes > statestore.MaxSessionBytes {
		return false
	}
	owner, tail := im.owners()
	return owner == packOwner(w.by) && tail == "" && !im.remembers(w.opDigest) && im.room(w)
}

// room reports whether the stream of a write goes where the session has keys already.
func (im image) room(w *write) bool {
	rest := len(w.stream) - w.chunked()
	switch {
	case w.staged || len(w.sizes) > 1:
		return false
	case len(w.sizes) == 0 && im.uint(atSince, 4) > stride:
		return false
	case len(w.sizes) == 1 && im.uint(atEntries, 4) == 0:
		return false
	}
	return rest == 0 || len(w.sizes) == 1 && rest <= shortEnd || im.uint(atPieces, 4) > 0
}

// followUp is a plain append, worked out.
type followUp struct {
	image
	write      *write
	front      []byte // of the record as it will be, with the times still to be filled in
	from, till uint64 // ms between which it holds
	entry      []byte // of the directory, if there is a chunk
	pieces     []any
}

// follow works out a plain append; false for others.
func (im image) follow(w *write) (n followUp, ok bool) {
	if im.packed == "" || !im.plain(w) {
		return n, false
	}
	retention, tombstone := millis(w.lives.Retention), millis(w.lives.Tombstone)
	expires, keep, due := im.uint(atExpires, 6), im.uint(atKeep, 6), im.uint(atDue, 6)
	if keep < retention+tombstone || expires == 0 {
		return n, false
	}
	n = followUp{image: im, write: w, from: due - min(due, retention), till: min(expires-1, keep-retention-tombstone)}
	n.layStream()
	n.front = append(make([]byte, 0, len(im.packed)+opSize), im.packed[:numbersSize]...)
	n.count(tombstone)
	n.addOp()
	return n, true
}

// layStream says where the stream of the write goes, as append_stream in lua/log.lua does.
func (n *followUp) layStream() {
	w := n.write
	rest := w.stream[w.chunked():]
	if len(w.sizes) == 1 {
		var ending []byte
		if len(rest) <= shortEnd {
			ending, rest = rest, nil
		}
		link := fields{s: string(w.links)}
		size, turn, at, before, tokens := link.uint(4), link.uint(4), link.uint(4), link.uint(4), link.uint(8)
		e := append(make([]byte, 0, 64+len(ending)), w.tag[:]...)
		e = append(e, 0, 0, 0, 0) // its first chunk
		e = appendUint(e, n.uint(atStream, 6), 6)
		e = appendUint(e, size+uint64(len(ending)), 4)
		e = appendUint(e, n.uint(atPieces, 4), 4)
		e = appendUint(e, n.uint(atTurns, 6)+turn, 6)
		e = appendUint(e, at, 4)
		e = appendUint(e, n.uint(atBytes, 6)+before, 6)
		e = binary.BigEndian.AppendUint64(e, n.uint(atTokens, 8)+tokens)
		e = append(e, ending...)
		n.entry = e
	}
	for len(rest) > 0 {
		size := min(pieceBytes, len(rest))
		n.pieces = append(n.pieces, rest[:size])
		rest = rest[size:]
	}
}

// count changes the numbers of the record, as accept in lua/append.lua does, but for
// the times.
func (n *followUp) count(tombstone uint64) {
	w := n.write
	put := func(at, size int, v uint64) { appendUint(n.front[:at], v, size) }
	put(atVersion, 6, n.uint(atVersion, 6)+1)
	put(atTurns, 6, n.uint(atTurns, 6)+w.turns)
	put(atBytes, 6, n.uint(atBytes, 6)+w.bytes)
	put(atTokens, 8, n.uint(atTokens, 8)+w.tokens)
	put(atTombLife, 6, tombstone)
	chain := sha1.Sum(append([]byte(n.packed[atChain:atChain+sha1.Size]), w.content[:]...)) //nolint:gosec // see the import
	copy(n.front[atChain:], chain[:])
	rest, since := uint64(0), n.uint(atSince, 4)
	for _, p := range n.pieces {
		rest += uint64(len(p.([]byte))) //nolint:errcheck,forcetypeassert // layStream made them
	}
	if len(n.entry) > 0 {
		put(atEntries, 4, n.uint(atEntries, 4)+1)
		since = 0
	}
	put(atPieces, 4, n.uint(atPieces, 4)+uint64(len(n.pieces)))
	put(atStream, 6, n.uint(atStream, 6)+uint64(len(w.stream)))
	put(atSince, 4, since+rest)
}

// addOp adds the op to the ring. One that is not full yet grows, and moves the strings.
func (n *followUp) addOp() {
	version := n.uint(atVersion, 6)
	slot := numbersSize + int(version%statestore.OpsRemembered)*opSize //nolint:gosec // 31 at most
	w := n.write
	n.front = append(append(append(n.front, n.packed[numbersSize:slot]...), w.opDigest[:]...), w.content[:]...)
	n.front = appendUint(n.front, n.uint(atTurns, 6), 3)
	if version < statestore.OpsRemembered {
		n.front = append(n.front, n.packed[slot:]...)
	}
}

// guard is what the numbers of the record have to be.
func (n *followUp) guard() string { return n.packed[:numbersSize] }

// args is the append as lua/many.lua takes it.
func (n *followUp) args() []any {
	l := n.write.lives
	limits := appendUint(appendUint(make([]byte, 0, 24), n.from, 6), n.till, 6)
	limits = appendUint(appendUint(limits, millis(l.Affinity), 6), millis(l.Retention), 6)
	return append([]any{n.guard(), limits, n.front[atBound:], n.entry}, n.pieces...)
}

// stored is the record once it was stored, and the answer that lua/append.lua would give.
func (n *followUp) stored(now uint64) (packed string, receipt []any) {
	l := n.write.lives
	put := func(at int, v uint64) { appendUint(n.front[:at], v, 6) }
	affinity := now + millis(l.Affinity)
	put(atExpires, now+millis(l.Retention))
	put(atExpires+6, affinity)
	put(atCreated+6, now)
	var b strings.Builder
	b.Grow(len(n.packed) + opSize)
	b.Write(n.front)
	if len(n.front) < len(n.packed) {
		b.WriteString(n.packed[len(n.front):])
	}
	next := image{packed: b.String()}
	version, epoch := next.uint(atVersion, 6), next.uint(atEpoch, 6)
	r := make([]byte, 0, 128)
	for _, v := range [...]uint64{now, epoch, next.uint(atTurns, 6), next.uint(atBytes, 6), affinity, version, epoch} {
		r = appendUint(r, v, 6)
	}
	r = append(append(r, n.write.opDigest[:]...), 0, 0, 0)
	r = appendText(r, packOwner(n.write.by))
	return next.packed, []any{"ok", string(r)}
}
