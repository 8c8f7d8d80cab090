package redisstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"unsafe"

	"berth/statestore"
	"berth/statestore/internal/frame"
)

// pageBytes is how much of the log one read of a load asks for. Longer pages would
// keep Redis from other clients, shorter ones cost round trips.
const pageBytes = 512 << 10

// bytesOf is the text without a copy; nobody writes to it.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// load is a reading of turns under way.
type load struct {
	store *Store
	call  call
	contents
}

// page is what one read brought.
type page struct {
	span
	chunks, pieces []string
	err            error
}

// turns yields the turns from the from-th. While one page is decoded the next is
// on its way.
func (l *load) turns(ctx context.Context, from uint64) iter.Seq2[statestore.NumberedTurn, error] {
	return func(yield func(statestore.NumberedTurn, error) bool) {
		if from >= l.Turns {
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		first := l.before(from)
		start := l.parts[first]
		d := &decoder{next: start.next.turn, from: from, end: l.Turns, drop: start.next.at - start.from, yield: yield}
		for coming := l.ahead(ctx, first); coming != nil; {
			p := <-coming
			if p.err != nil {
				yield(statestore.NumberedTurn{}, p.err)
				return
			}
			coming = l.ahead(ctx, p.past)
			if !l.decode(d, p) {
				return
			}
		}
		if d.next < l.Turns {
			yield(statestore.NumberedTurn{}, fmt.Errorf("the log ends before turn %d of %d: %w", d.next, l.Turns, ErrDamaged))
		}
	}
}

// ahead begins to read the page that begins with a part; nil when there is none.
func (l *load) ahead(ctx context.Context, first int) <-chan page {
	if first == len(l.parts) {
		return nil
	}
	p := page{span: l.span(first)}
	coming := make(chan page, 1)
	go func() {
		p.chunks, p.pieces, p.err = l.store.readSpan(ctx, l.call, &l.contents, p.span)
		coming <- p
	}()
	return coming
}

// decode feeds a page in the order of the stream; false when nobody wants more.
func (l *load) decode(d *decoder, p page) bool {
	for i := p.first; i < p.past; i++ {
		if l.parts[i].chunk != "" {
			if !d.feed(p.chunks[0], l.parts[i].ending) {
				return false
			}
			p.chunks = p.chunks[1:]
		}
		_, to := l.end(i)
		n := to - l.parts[i].pieces
		if !d.feed(p.pieces[:n]...) {
			return false
		}
		p.pieces = p.pieces[n:]
	}
	return true
}

// decoder makes turns of pieces of the stream, wherever they were cut.
type decoder struct {
	next, from, end uint64
	drop            uint64 // bytes to pass over
	held            []byte // of a frame that is not whole yet
	need            uint64 // bytes of that frame; 0 while its head is not whole
	yield           func(statestore.NumberedTurn, error) bool
}

// feed takes the next pieces; false when nobody wants more.
func (d *decoder) feed(pieces ...string) bool {
	for _, p := range pieces {
		if n := min(d.drop, uint64(len(p))); n > 0 {
			d.drop -= n
			p = p[n:]
		}
		if !d.take(bytesOf(p)) {
			return false
		}
	}
	return true
}

// take decodes one piece.
func (d *decoder) take(p []byte) bool {
	for len(p) > 0 && d.next < d.end {
		src := p
		if len(d.held) > 0 {
			var ready bool
			if p, ready = d.complete(p); !ready {
				return true
			}
			src = d.held
		}
		n, ok := d.emit(src)
		switch {
		case !ok:
			return false
		case len(d.held) > 0:
			// A turn shares no memory with what it was decoded from.
			d.held, d.need = d.held[:0], 0
		case n == 0:
			d.held = append(d.held, p...)
			return true
		default:
			p = p[n:]
		}
	}
	return true
}

// headBytes is the most that the head of a frame takes.
const headBytes = 1 + 3*10 + 4

// complete moves from p to held what its frame lacks, and returns the rest of p.
// ready: the frame is whole, or is none, which emit will tell.
func (d *decoder) complete(p []byte) (rest []byte, ready bool) {
	if before := len(d.held); d.need == 0 {
		head := append(d.held, p[:min(len(p), headBytes)]...) //nolint:gocritic // held is cut back from it below
		info, err := frame.Measure(head)
		if err != nil {
			// A head that is short took all of p: p was shorter than a head.
			d.held = head
			return nil, !errors.Is(err, frame.ErrShort)
		}
		d.need = info.Size
		d.held = slices.Grow(head[:before], int(d.need)-before) //nolint:gosec // Measure bounds it by the largest turn
	}
	n := min(uint64(len(p)), d.need-uint64(len(d.held)))
	d.held = append(d.held, p[:n]...)
	return p[n:], uint64(len(d.held)) == d.need
}

// emit yields the frame at the start of src and says how long it is; 0 when it is
// not whole. False: nobody wants more, or the frame is corrupt.
func (d *decoder) emit(src []byte) (int, bool) {
	t, n, err := frame.Next(src)
	switch {
	case errors.Is(err, frame.ErrShort):
		return 0, true
	case err != nil:
		d.yield(statestore.NumberedTurn{}, fmt.Errorf("turn %d: %w: %w", d.next, err, ErrDamaged))
		return 0, false
	}
	d.next++
	if d.next <= d.from {
		return n, true
	}
	return n, d.yield(statestore.NumberedTurn{N: d.next - 1, Turn: t}, nil)
}
