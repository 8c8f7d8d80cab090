package services

import (
	"fmt"
	"sync/atomic"
	"time"

	"berth/statestore"
)

// awayPause is how long routes do without a store that let one wait in vain.
const awayPause = time.Second

// errAway answers a read that was not made.
var errAway = fmt.Errorf("the store let others wait in vain just now: %w", statestore.ErrUnavailable)

// patience keeps routes from waiting, one after the other, for a store that does
// not answer. Once a read of a record has waited in vain, no read is made for a
// pause, and then one at a time, until one is answered.
//
// Only a wait counts: a refusal that comes at once costs the next caller nothing.
// And only while nobody is answered: of a Cluster, one server may be away.
type patience struct {
	least    time.Duration // a wait that is worth sparing others
	start    time.Time
	answered atomic.Int64 // when the last answer came, since start
	until    atomic.Int64 // when reads are made again, since start; 0: they are made
	trying   atomic.Bool  // one is made after a pause
}

func newPatience(timeout time.Duration) *patience {
	return &patience{least: timeout / 10, start: time.Now()}
}

// enter reports whether a read may be made. leave has to follow it.
func (p *patience) enter() (leave func(), may bool) {
	switch until := p.until.Load(); {
	case until == 0:
		return func() {}, true
	case int64(time.Since(p.start)) < until || !p.trying.CompareAndSwap(false, true):
		return nil, false
	}
	return func() { p.trying.Store(false) }, true
}

// met takes in how a read that began then has ended.
func (p *patience) met(began time.Time, err error) {
	if err == nil {
		p.answered.Store(int64(time.Since(p.start)))
		p.until.Store(0)
		return
	}
	word, _ := degradedWord(err)
	if word == degradedStore && time.Since(began) >= p.least && p.answered.Load() <= int64(began.Sub(p.start)) {
		p.until.Store(int64(time.Since(p.start) + awayPause))
	}
}
