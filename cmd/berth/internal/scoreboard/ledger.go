package scoreboard

import (
	"sync"

	"github.com/cespare/xxhash/v2"
)

// Ledger remembers what a server acknowledged, as one hash per turn, so that
// everything it stored can be held against it at the end. It is safe for
// concurrent use.
type Ledger struct {
	mu    sync.Mutex
	turns map[int][]uint64 // session → hash of each acknowledged turn
}

// Verdict says how a stored session differs from what was acknowledged.
type Verdict struct {
	Lost    int // acknowledged turns that are missing or hold other bytes
	Surplus int // turns beyond the acknowledged ones
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{turns: make(map[int][]uint64)} }

// Acknowledged notes that the server confirmed the next turn of a session.
func (l *Ledger) Acknowledged(session int, content []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turns[session] = append(l.turns[session], xxhash.Sum64(content))
}

// Check compares a session as it was loaded, from its first turn, with what
// was acknowledged.
func (l *Ledger) Check(session int, loaded [][]byte) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	want := l.turns[session]
	v := Verdict{Surplus: max(0, len(loaded)-len(want))}
	for i, sum := range want {
		if i >= len(loaded) || xxhash.Sum64(loaded[i]) != sum {
			v.Lost++
		}
	}
	return v
}
