package boltstore

import (
	"context"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"berth/statestore"
)

func TestFeedKeepsTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	events, err := s.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := make([]statestore.Event, 0, 20)
	for i := range 20 {
		id := "session " + strconv.Itoa(i)
		r := says(t, s, id, "op1", []byte("x"))
		says(t, s, id, "op2", []byte("y")) // the owner stays: no event
		want = append(want, statestore.Event{Kind: statestore.EventSession, Session: keyOf(id).Digest(), Epoch: r.Epoch})
	}
	for i, w := range want {
		if got := <-events; got != w {
			t.Fatalf("event %d is %+v, want %+v", i, got, w)
		}
	}
}

// A watcher that sleeps holds nobody up and is told that it missed something, as
// soon as it wakes and not only with the next event.
func TestSlowWatcherGetsAGap(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	events, err := s.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const many = 3 * feedBuffer
	for i := range many {
		s.feed.publish([]statestore.Event{{Kind: statestore.EventJob, Job: strconv.Itoa(i)}})
	}
	gap, last := false, ""
	for last != strconv.Itoa(many-1) {
		e := <-events
		gap = gap || e.Kind == statestore.EventGap
		last = e.Job
		if n, _ := strconv.Atoi(e.Job); !gap && n > 2*feedBuffer {
			t.Fatalf("event %d came without a gap", n)
		}
	}
	if !gap {
		t.Error("events were lost without a gap")
	}
}

func TestGapIsDeliveredWithoutANextEvent(t *testing.T) {
	t.Parallel()
	f := newFeed()
	events, err := f.watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.publish(make([]statestore.Event, feedBuffer+1))
	if e := <-events; e.Kind != statestore.EventGap {
		t.Errorf("got %+v", e)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	f := newFeed()
	ctx, cancel := context.WithCancel(t.Context())
	events, err := f.watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f.publish([]statestore.Event{{Kind: statestore.EventFleet}})
	cancel()
	for range events { //nolint:revive // closed, with or without the event
	}
	if n := len(f.watchers); n != 0 {
		t.Errorf("%d watchers stay", n)
	}
}
