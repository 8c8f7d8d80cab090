package statestore

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"iter"
	"time"
)

// Limits of what one session may hold, in bytes.
const (
	MaxTurnBytes      = 16 << 20
	MaxSessionBytes   = 64 << 20
	MaxMetaBytes      = 64 << 10
	MaxPlacementBytes = 64 << 10
)

// TurnType says how a turn's bytes are to be read.
type TurnType uint8

// Types of turns. Both come back as the bytes that came.
const (
	TurnJSON  TurnType = iota + 1 // one JSON value
	TurnBytes                     // anything
)

// Turn is one appended piece of context.
type Turn struct {
	Type   TurnType
	Value  []byte
	Tokens uint64 // as the writer counts them; 0: not told
}

// NumberedTurn is a stored turn with its place in the session, from 0.
type NumberedTurn struct {
	N uint64
	Turn
}

// WriteKind tells an append from a replace.
type WriteKind uint8

// Kinds of writes to the context.
const (
	KindAppend WriteKind = iota + 1
	KindReplace
)

// ContentDigest identifies what a write says: kind, base, and the type and bytes
// of every turn, but not the handle it came with. It is the first 16 bytes of
// SHA-256 over their length-prefixed encoding.
type ContentDigest [16]byte

// DigestContent computes the digest of a write. base is nil for a write that
// keeps everything.
func DigestContent(kind WriteKind, base *uint64, turns []Turn) ContentDigest {
	h := sha256.New()
	h.Write([]byte{byte(kind)})
	if base != nil {
		putUint(h, *base+1)
	} else {
		putUint(h, 0)
	}
	for _, t := range turns {
		h.Write([]byte{byte(t.Type)})
		putUint(h, uint64(len(t.Value)))
		h.Write(t.Value)
	}
	return ContentDigest(h.Sum(nil)[:16])
}

func putUint(h hash.Hash, v uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	h.Write(b[:])
}

// Reading is a session as [Contexts.Load] found it.
type Reading struct {
	View
	Meta       []byte // JSON, nil when none was given
	Placements []PlacementSet
	Parked     []Parked
	// Turns yields the turns from the one asked for, in order, in separate
	// short reads. It may be ranged over once. When a write shortens or
	// replaces what is being read, it ends with [ErrChanged]; it never mixes.
	Turns iter.Seq2[NumberedTurn, error]
}

// Parked is an append that came from an instance which was no longer the owner.
type Parked struct {
	Op    string
	By    Owner
	Floor Floor // of the handle it presented
	Base  *uint64
	Turns []Turn
	Meta  []byte
	Age   time.Duration
}

// PlacementSet is what one instance says about the KV cache it holds for a
// session. Descriptors is a JSON array in the format kv/1, kept as it came.
type PlacementSet struct {
	By          Owner
	Descriptors []byte
	Age         time.Duration // since it was stored
}
