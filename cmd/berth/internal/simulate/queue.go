package simulate

import (
	"slices"
	"time"
)

// moment is when a turn arrives, or its answer is complete.
type moment struct {
	at       time.Duration
	session  int32
	turn     int32 // which of the session
	instance int32 // that completes it; arrival where negative
	boot     int32 // of that instance
}

const arrival = -1

// queue yields moments in order of time. Those of later seconds wait unsorted
// in a bucket each; only the present second is a heap, small enough to stay in
// the core's cache however many sessions there are.
type queue struct {
	later  [][]moment // by second from begin
	begin  time.Duration
	heap   []moment
	second int
}

func newQueue(begin, end time.Duration) *queue {
	return &queue{later: make([][]moment, int((end-begin)/time.Second)+1), begin: begin, second: -1}
}

// open makes a second the present one.
func (q *queue) open(second int) {
	q.second = second
	q.heap, q.later[second] = q.later[second], nil
	for i := len(q.heap)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
}

// push adds a moment; one past the end is forgotten.
func (q *queue) push(m moment) {
	second := max(q.second, int((m.at-q.begin)/time.Second))
	switch {
	case second >= len(q.later):
	case second > q.second:
		q.later[second] = append(q.later[second], m)
	default:
		q.heap = append(q.heap, m)
		q.up(len(q.heap) - 1)
	}
}

// pop takes the earliest moment of the present second.
func (q *queue) pop() (moment, bool) {
	n := len(q.heap)
	if n == 0 {
		return moment{}, false
	}
	first := q.heap[0]
	q.heap[0] = q.heap[n-1]
	q.heap = q.heap[:n-1]
	q.down(0)
	return first, true
}

// take removes the moments that match and returns them in order.
func (q *queue) take(match func(*moment) bool) []moment {
	var taken []moment
	keep := func(list []moment) []moment {
		return slices.DeleteFunc(list, func(m moment) bool {
			if match(&m) {
				taken = append(taken, m)
				return true
			}
			return false
		})
	}
	q.heap = keep(q.heap)
	for i := len(q.heap)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
	for i := q.second + 1; i < len(q.later); i++ {
		q.later[i] = keep(q.later[i])
	}
	slices.SortFunc(taken, func(a, b moment) int {
		if sooner(&a, &b) {
			return -1
		}
		return 1
	})
	return taken
}

// sooner orders moments; ties by session and turn, so that runs are equal.
func sooner(a, b *moment) bool {
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.session != b.session:
		return a.session < b.session
	case a.turn != b.turn:
		return a.turn < b.turn
	}
	return a.instance < b.instance
}

func (q *queue) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !sooner(&q.heap[i], &q.heap[parent]) {
			return
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

func (q *queue) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(q.heap) {
			return
		}
		if right := child + 1; right < len(q.heap) && sooner(&q.heap[right], &q.heap[child]) {
			child = right
		}
		if !sooner(&q.heap[child], &q.heap[i]) {
			return
		}
		q.heap[i], q.heap[child] = q.heap[child], q.heap[i]
		i = child
	}
}
